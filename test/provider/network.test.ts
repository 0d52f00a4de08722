// The network behind the seam, against real sockets: proxies, TLS, backpressure, abort and what failures are called (11.1, 11.7, 11.8).
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import http, { type RequestListener } from 'node:http';
import https from 'node:https';
import net, { type AddressInfo } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { createHttpClient } from '#models/http/http-client.ts';
import type { HttpResponse } from '#models/http/provider-http.ts';
import { StartupError } from '#protocol/errors.ts';
import { makeCertificate } from '../support/certificate.ts';
import { message, text } from '../support/messages.ts';
import { until } from '../support/until.ts';
import { drain, modelEntry, realAdapter, request } from './support.ts';

const CLIENT = path.resolve(import.meta.dirname, '../../src/models/http/http-client.ts');
const never = new AbortController().signal;
const asking = (url: string, signal = never) => ({
  url,
  headers: { 'content-type': 'application/json', 'x-mark': 'm' },
  body: [Buffer.from('{"a":"ü"}')],
  signal,
  of: { request: request(), attempt: 1 },
});

async function listen(server: net.Server): Promise<number> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    if (server instanceof http.Server) server.closeAllConnections();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}
const serve = async (listener: RequestListener) =>
  `http://127.0.0.1:${await listen(http.createServer(listener))}/v1/x?y=1`;

async function whole(response: HttpResponse): Promise<string> {
  const pieces: Uint8Array[] = [];
  for (;;) {
    const piece = await response.readPiece();
    if (piece === null) return Buffer.concat(pieces).toString('utf8');
    pieces.push(piece);
  }
}
const echo: RequestListener = async (asked, response) => {
  const pieces: Buffer[] = [];
  for await (const piece of asked) pieces.push(piece);
  const { method, url, headers } = asked;
  response.setHeader('request-id', 'r');
  response.end(JSON.stringify({ method, url, mark: headers['x-mark'], body: Buffer.concat(pieces).toString('utf8') }));
};

/** A proxy as companies have them: it knows `CONNECT` and keeps what was asked of it. */
async function startTunnel(answer = 'HTTP/1.1 200 OK\r\n\r\n') {
  const asked: { target: string; authorization: string | undefined }[] = [];
  const server = http.createServer((_, response) => response.writeHead(405).end());
  server.on('connect', (connecting, socket, head) => {
    asked.push({ target: connecting.url ?? '', authorization: connecting.headers['proxy-authorization'] });
    if (!answer.includes(' 200 ')) return socket.end(answer);
    const [host, port] = (connecting.url ?? '').split(':');
    const far = net.connect(Number(port), host, () => {
      socket.write(answer);
      far.write(head);
      far.pipe(socket).pipe(far);
    });
    for (const side of [far, socket]) {
      side.on('error', () => {});
      side.on('close', () => (side === far ? socket : far).destroy());
    }
  });
  return { port: await listen(server), asked };
}

describe('a request', () => {
  test('arrives as it was given, and its answer piece by piece', async () => {
    const url = await serve(echo);
    const response = await createHttpClient({})(asking(url));
    expect([response.status, response.header('request-id'), response.header('nothing')]).toEqual([200, 'r', null]);
    expect(JSON.parse(await whole(response))).toEqual({
      method: 'POST',
      url: '/v1/x?y=1',
      mark: 'm',
      body: '{"a":"ü"}',
    });
    expect([response.isEnded(), await response.readPiece()]).toEqual([true, null]);
  });

  // A history of several hundred kB is sent from where it is kept.
  test('a long history arrives in one body of a stated length, also when it is sent again', async () => {
    const long = message(1, 'user', [text('äbc '.repeat(200_000))]);
    const arrived: { length: string | undefined; encoding: string | undefined; body: string }[] = [];
    const url = await serve(async (asked, response) => {
      const pieces: Buffer[] = [];
      for await (const piece of asked) pieces.push(piece);
      const body = Buffer.concat(pieces).toString('utf8');
      arrived.push({ length: asked.headers['content-length'], encoding: asked.headers['transfer-encoding'], body });
      response
        .setHeader('retry-after-ms', '0')
        .writeHead(arrived.length === 1 ? 429 : 400)
        .end('{}');
    });
    const adapter = realAdapter({ type: 'anthropic', baseUrl: new URL(url).origin, maxRetries: 1 });
    const { error } = await drain(adapter, request({ entry: modelEntry('anthropic:m'), messages: [long] }));
    expect(error?.provider_status).toBe(400);
    expect(arrived).toHaveLength(2);
    const [{ body, length, encoding }] = arrived as [(typeof arrived)[0]];
    expect([length, encoding]).toEqual([String(Buffer.byteLength(body)), undefined]);
    expect(JSON.parse(body).messages[0].content[0].text).toBe('äbc '.repeat(200_000));
    expect(arrived[1]!.body).toBe(body);
  });

  test('an answer that comes before a long body has arrived is the answer', async () => {
    const long = message(1, 'user', [text('abc '.repeat(8_000_000))]);
    const url = await serve((_, response) => {
      response.writeHead(413, { 'content-type': 'application/json' }).end('{"error":{"message":"too long by far"}}');
    });
    const adapter = realAdapter({ type: 'anthropic', baseUrl: new URL(url).origin, maxRetries: 0 });
    const ask = request({ entry: modelEntry('anthropic:m'), messages: [long] });
    for (const time of [1, 2]) {
      const { error } = await drain(adapter, ask);
      expect([time, error?.provider_status, error?.message]).toEqual([time, 413, 'too long by far']);
    }
  });

  test('a head without end is no answer', async () => {
    const url = await serve((_, response) => response.writeHead(200, { 'x-long': 'x'.repeat(20_000) }).end());
    await expect(createHttpClient({})(asking(url))).rejects.toMatchObject({ code: 'UND_ERR_HEADERS_OVERFLOW' });
  });

  test('a hint before the answer is not the answer', async () => {
    const url = await serve((_, response) => {
      response.writeEarlyHints({ link: '</a>; rel=preload' });
      response.end('here');
    });
    const response = await createHttpClient({})(asking(url));
    expect([response.status, await whole(response)]).toEqual([200, 'here']);
  });

  // Promise 11.23: nobody reads: the provider is held up.
  test('an answer that nobody reads is not taken in', async () => {
    const total = 256 * 2 ** 20;
    const part = Buffer.alloc(2 ** 20, 'x');
    let sent = 0;
    const url = await serve((asked, response) => {
      if (asked.url === '/small') return void response.end('small');
      const write = () => {
        while (sent < total) {
          sent += part.length;
          if (!response.write(part)) return void response.once('drain', write);
        }
        response.end();
      };
      write();
    });
    const send = createHttpClient({});
    const response = await send(asking(url));
    let before: number;
    do {
      before = sent;
      for (let i = 0; i < 50; i++) await whole(await send(asking(new URL('/small', url).href)));
    } while (sent > before && sent < total);
    expect(sent).toBeLessThan(total);
    let read = 0;
    // All but the last part as they come, the rest one by one.
    const take = (piece: Uint8Array) => {
      read += piece.byteLength;
      return read < total - part.length;
    };
    expect(await response.readPieces(take)).toBe(false);
    for (let piece = await response.readPiece(); piece !== null; piece = await response.readPiece())
      read += piece.byteLength;
    expect(read).toBe(total);
    expect(await response.readPieces(take)).toBe(true);
  });
});

describe('abort', () => {
  const stalling = async (head: boolean) => {
    let asked = false;
    let gone = false;
    const url = await serve((_, response) => {
      asked = true;
      response.on('close', () => {
        gone = true;
      });
      if (head) response.writeHead(200).write('first');
    });
    return { url, asked: () => asked, gone: () => gone };
  };

  test('before the head: rejected at once with the reason, and the connection is closed', async () => {
    const { url, asked, gone } = await stalling(false);
    const abort = new AbortController();
    const reason = new Error('enough');
    const outcome = createHttpClient({})(asking(url, abort.signal)).catch((error: unknown) => error);
    await until(asked);
    abort.abort(reason);
    expect(await outcome).toBe(reason);
    await until(gone);
  });

  test('while a piece is waited for: rejected at once, and the connection is closed', async () => {
    const { url, gone } = await stalling(true);
    const abort = new AbortController();
    const response = await createHttpClient({})(asking(url, abort.signal));
    expect(Buffer.from((await response.readPiece())!).toString()).toBe('first');
    const reading = response.readPiece();
    const reason = new Error('enough');
    abort.abort(reason);
    await expect(reading).rejects.toBe(reason);
    await expect(response.readPiece()).rejects.toBe(reason);
    await until(gone);
  });

  test('while pieces are passed on: rejected at once, what arrived before is kept, and the connection is closed', async () => {
    const { url, gone } = await stalling(true);
    const abort = new AbortController();
    const response = await createHttpClient({})(asking(url, abort.signal));
    const reason = new Error('enough');
    const taken: string[] = [];
    const reading = response.readPieces((piece) => {
      taken.push(Buffer.from(piece).toString());
      queueMicrotask(() => abort.abort(reason));
      return true;
    });
    await expect(reading).rejects.toBe(reason);
    expect(taken).toEqual(['first']);
    await expect(response.readPieces(() => true)).rejects.toBe(reason);
    await until(gone);
  });

  test('a body that is cut off closes the connection', async () => {
    const { url, gone } = await stalling(true);
    const response = await createHttpClient({})(asking(url));
    response.cancel();
    expect(response.isEnded()).toBe(true);
    await until(gone);
  });

  // Promise 11.12: cancelling closes a connection that is still being opened, to a proxy too.
  test('while the connection is being opened: it is closed, whatever the other side was asked for', async () => {
    const open = new Set<net.Socket>();
    let heard = 0;
    const port = await listen(
      net.createServer((socket) => {
        open.add(socket);
        socket.on('data', () => heard++);
        socket.on('error', () => {});
        socket.on('close', () => open.delete(socket));
      }),
    );
    const silent = `http://127.0.0.1:${port}`;
    for (const [url, env] of [
      [`https://127.0.0.1:${port}`, {}],
      ['http://provider.test', { HTTP_PROXY: silent }],
      ['https://provider.test', { HTTPS_PROXY: silent }],
    ] as const) {
      heard = 0;
      const abort = new AbortController();
      const reason = new Error('enough');
      const outcome = createHttpClient(env)(asking(url, abort.signal)).catch((error: unknown) => error);
      await until(() => heard > 0);
      abort.abort(reason);
      expect(await outcome).toBe(reason);
      await until(() => open.size === 0);
    }
  });

  test('one that came before leaves no trace on the wire', async () => {
    let connections = 0;
    const server = http.createServer(echo).on('connection', () => connections++);
    const url = `http://127.0.0.1:${await listen(server)}/`;
    await expect(createHttpClient({})(asking(url, AbortSignal.abort(new Error('no'))))).rejects.toThrow('no');
    expect(connections).toBe(0);
  });
});

describe('failures', () => {
  const failing = async (baseUrl: string) =>
    (await drain(realAdapter({ type: 'openai', baseUrl, maxRetries: 0 }), request({ entry: modelEntry('openai:m') })))
      .error;

  test('a closed port, a name that does not exist, a reset: the detail is the reason of the system', async () => {
    const closed = net.createServer();
    const port = await listen(closed);
    closed.close();
    expect(await failing(`http://127.0.0.1:${port}`)).toMatchObject({
      error_class: 'network',
      error_detail: 'ECONNREFUSED',
    });
    const nowhere = await failing('http://does-not-exist.invalid');
    expect(nowhere!.error_detail).toMatch(/^(ENOTFOUND|EAI_AGAIN)$/);
    const reset = await serve((_, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' }).write(': first\n\n');
      setImmediate(() => response.socket?.resetAndDestroy());
    });
    const broken = await failing(new URL('/', reset).href);
    expect(broken!.error_class).toBe('network');
    expect(broken!.error_detail).toMatch(/^(ECONNRESET|UND_ERR_SOCKET)$/);
  });
});

describe('TLS and proxies', () => {
  let folder = '';
  let ca = '';
  let keys: { key: Buffer; cert: Buffer };
  beforeAll(() => {
    folder = fs.mkdtempSync(path.join(os.tmpdir(), 'metis-tls-'));
    const made = makeCertificate(folder, 'DNS:localhost,IP:127.0.0.1');
    ca = made.authority;
    keys = { key: fs.readFileSync(made.key), cert: fs.readFileSync(made.certificate) };
    return () => fs.rmSync(folder, { recursive: true, force: true });
  });
  const serveTls = async () => `https://localhost:${await listen(https.createServer(keys, echo))}/v1/x`;

  /** The request made by a process that trusts the authority, with these variables. */
  async function trusting(url: string, env: Record<string, string>) {
    const script = `
      import { createHttpClient } from ${JSON.stringify(CLIENT)};
      const answer = await createHttpClient(process.env)({
        url: ${JSON.stringify(url)}, headers: { 'x-mark': 'm' }, body: [Buffer.from('{}')], signal: new AbortController().signal,
      });
      let text = '';
      for (let piece = await answer.readPiece(); piece; piece = await answer.readPiece()) text += Buffer.from(piece);
      console.log(text);`;
    const run = promisify(execFile)(process.execPath, ['--input-type=module', '-e', script], {
      env: { PATH: process.env.PATH, NODE_EXTRA_CA_CERTS: ca, ...env },
    });
    return JSON.parse((await run).stdout) as { mark: string; url: string };
  }

  // Promise 11.23: an unknown authority is refused, one the machine trusts is taken.
  test('a certificate of an unknown authority is refused; one that the machine trusts is taken', async () => {
    const url = await serveTls();
    await expect(createHttpClient({})(asking(url))).rejects.toMatchObject({
      code: expect.stringMatching(/SELF_SIGNED_CERT|UNABLE_TO_VERIFY|UNABLE_TO_GET_ISSUER/),
    });
    expect(await trusting(url, {})).toMatchObject({ mark: 'm', url: '/v1/x' });
  });

  // Promise 11.23: a proxy of the environment is asked for a tunnel, and TLS goes through it.
  test('HTTPS_PROXY is asked for a tunnel, through which TLS is spoken with the provider itself', async () => {
    const url = await serveTls();
    const { port, asked } = await startTunnel();
    expect(await trusting(url, { HTTPS_PROXY: `http://127.0.0.1:${port}` })).toMatchObject({ mark: 'm' });
    expect(asked).toEqual([{ target: new URL(url).host, authorization: undefined }]);
  });

  test('HTTP_PROXY with a name and a password, in lower case and without a scheme', async () => {
    const url = await serve(echo);
    const { port, asked } = await startTunnel();
    const { host } = new URL(url);
    expect(
      await whole(await createHttpClient({ HTTP_PROXY: `http://me:pa%20ss@127.0.0.1:${port}` })(asking(url))),
    ).toContain('"mark":"m"');
    expect(await whole(await createHttpClient({ http_proxy: `127.0.0.1:${port}` })(asking(url)))).toContain(
      '"mark":"m"',
    );
    const basic = `Basic ${Buffer.from('me:pa ss').toString('base64')}`;
    expect(asked).toEqual([
      { target: host, authorization: basic },
      { target: host, authorization: undefined },
    ]);
  });

  // Promise 11.23: what `NO_PROXY` names is reached directly.
  test.each(['127.0.0.1', 'elsewhere.test, 127.0.0.1', '*', ' * '])('NO_PROXY=%s goes by itself', async (NO_PROXY) => {
    const url = await serve(echo);
    const { port, asked } = await startTunnel();
    const send = createHttpClient({ HTTP_PROXY: `http://127.0.0.1:${port}`, NO_PROXY });
    expect(await whole(await send(asking(url)))).toContain('"mark":"m"');
    expect(asked).toEqual([]);
  });

  test('a proxy that refuses is a failure of the network, and one that is no address stops the start', async () => {
    const url = await serve(echo);
    const { port } = await startTunnel('HTTP/1.1 407 Proxy Authentication Required\r\n\r\n');
    await expect(createHttpClient({ HTTP_PROXY: `http://127.0.0.1:${port}` })(asking(url))).rejects.toThrow('407');
    for (const HTTPS_PROXY of ['socks5://127.0.0.1:1080', 'http://', 'http://a b', 'http://me:100%@h'])
      expect(() => createHttpClient({ HTTPS_PROXY })).toThrow(StartupError);
    expect(() => createHttpClient({ HTTPS_PROXY: 'socks5://secret@h' })).toThrow(
      /HTTPS_PROXY: must be the address of an HTTP proxy/,
    );
  });

  // Promise 11.23: a proxy that ends its connection unanswered fails the attempt, and is not asked again by it.
  test.each(['', 'HTTP/1.1 200 Conn', 'HTTP/1.1 100 Continue\r\n\r\n'])(
    'a proxy that answers "%s" and ends is a failure of the network, and is asked once',
    async (answer) => {
      let asked = 0;
      const port = await listen(
        net.createServer((socket) => {
          socket.on('error', () => {});
          socket.once('data', () => {
            asked++;
            socket.end(answer);
          });
        }),
      );
      const env = { HTTP_PROXY: `http://127.0.0.1:${port}`, HTTPS_PROXY: `http://127.0.0.1:${port}` };
      for (const url of ['http://provider.test', 'https://provider.test']) {
        asked = 0;
        await expect(createHttpClient(env)(asking(url))).rejects.toMatchObject({ code: 'ECONNRESET' });
        expect(asked).toBe(1);
      }
    },
  );

  test("a header that is there twice passes a proxy twice; what follows the proxy's address does not matter", async () => {
    const url = await serve((asked, response) => response.end(asked.rawHeaders.join()));
    const { port } = await startTunnel();
    const send = createHttpClient({ HTTP_PROXY: `http://127.0.0.1:${port}/path?a#b`, NO_PROXY: ' elsewhere.test ' });
    const headers = [
      ['x-part', 'one'],
      ['x-part', 'two'],
    ] as const;
    expect(await whole(await send({ ...asking(url), headers }))).toContain('x-part,one,x-part,two');
  });

  test('a call through a proxy is given up at once too', async () => {
    const url = await serve(() => {});
    const { port, asked } = await startTunnel();
    const abort = new AbortController();
    const running = createHttpClient({ HTTP_PROXY: `http://127.0.0.1:${port}` })(asking(url, abort.signal));
    const outcome = running.catch((error: unknown) => error);
    await until(() => asked.length === 1);
    const reason = new Error('enough');
    abort.abort(reason);
    expect(await outcome).toBe(reason);
  });
});
