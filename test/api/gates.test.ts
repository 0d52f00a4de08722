// The gates of the HTTP server: their order, their codes, one envelope for all.
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { connect, type Socket } from 'node:net';
import { describe, expect, test } from 'vitest';
import { silentLogger } from '#core/ports/logger.ts';
import { startServer, type TestServer } from '../support/http.ts';
import { manualClock } from '../support/manual-clock.ts';
import { planner, scenario } from '../support/scenario.ts';
import { until } from '../support/until.ts';

const TOKEN = 'a-token-of-at-least-thirty-two-characters';
const MIB = 1_048_576;

/** Sends bytes as they are and reads the answer: for what no HTTP client would send. */
function raw(server: TestServer, text: string): Promise<{ status: number; head: string; body: string }> {
  return new Promise((resolve, reject) => {
    const socket = connect(server.port, '127.0.0.1', () => socket.write(text));
    let answer = '';
    socket.on('data', (chunk) => {
      answer += String(chunk);
    });
    socket.on('error', reject);
    socket.on('close', () => {
      const [head = '', body = ''] = answer.split('\r\n\r\n');
      resolve({ status: Number(/^HTTP\/1.1 (\d+)/.exec(head)?.[1]), head, body });
    });
  });
}
function get(path: string, headers: Readonly<Record<string, string>>): string {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  return `GET ${path} HTTP/1.1\r\n${lines.join('')}Connection: close\r\n\r\n`;
}
async function code(answer: { body: string }): Promise<string> {
  return JSON.parse(answer.body).error.code;
}

test('a server that goes down waits for no connection on which nothing was asked', async () => {
  const server = await startServer();
  const silent = connect(server.port, '127.0.0.1');
  const half = connect(server.port, '127.0.0.1', () => half.write('GET /healthz HTTP/1.1\r\nHo'));
  const closed = [silent, half].map((socket) => once(socket.on('error', () => {}).resume(), 'close'));
  await Promise.all([silent, half].map((socket) => once(socket, 'connect')));
  // Connections are taken in order: with this answer both of them have been.
  expect((await server.call('GET', '/healthz')).status).toBe(200);
  await server.app.close();
  await Promise.all(closed);
});

test('a server that goes down waits for no connection that its client would keep behind an answer', async () => {
  const server = await startServer({ scenario: scenario(planner({ hang: true })) });
  const session = await server.session();
  const client = connect(server.port, '127.0.0.1');
  const closed = once(client.setEncoding('utf8'), 'close');
  let heard = '';
  client.on('data', (text) => {
    heard += text;
  });
  const body = '{"content":"hi"}';
  client.write(
    `POST /sessions/${session.id}/turns HTTP/1.1\r\nHost: 127.0.0.1:${server.port}\r\nPrefer: wait=60\r\n` +
      `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
  );
  await server.event('llm.call_started');
  await server.app.close();
  await closed;
  expect(heard).toMatch(/^HTTP\/1\.1 202 /);
});

test('no answer may be kept by a cache or taken for another type, errors and refused bytes included', async () => {
  const server = await startServer({ config: { server: { allowed_hosts: [] } } });
  const own = { Host: `127.0.0.1:${server.port}` };
  const answers = await Promise.all([
    raw(server, get('/sessions', own)),
    raw(server, get('/no/such', own)),
    raw(server, get('/healthz', { Host: 'evil.example' })),
    raw(server, get('/metrics', own)),
    raw(server, get('/analytics/cost?format=csv', own)),
    raw(server, 'no request at all\r\n\r\n'),
  ]);
  expect(answers.map(({ status }) => status)).toEqual([200, 404, 403, 200, expect.any(Number), 400]);
  for (const { head } of answers) {
    expect(head).toMatch(/^cache-control: no-store\r?$/im);
    expect(head).toMatch(/^x-content-type-options: nosniff\r?$/im);
  }
});

const own = ({ port }: { readonly port: number }) => ({ Host: `127.0.0.1:${port}` });

describe('connections beyond the limit', () => {
  const LIMIT = 501;
  const BEYOND = 100;
  async function start() {
    const server = await startServer({
      config: { stream: { max_connections: 1 } },
      scenario: { version: 1, rules: [{ match: {}, times: 'inf', respond: { hang: true } }] },
    });
    const open = async (text = '') => {
      const socket = connect(server.port, '127.0.0.1').on('error', () => {});
      await once(socket, 'connect');
      socket.write(text);
      return socket;
    };
    return { server, open };
  }

  // Promise 05.28: silent connections make room for requests, the oldest first.
  test('silent ones make room for requests, the oldest first', async () => {
    const { server, open } = await start();
    let gone = 0;
    const held = [];
    for (let i = 0; i < LIMIT + BEYOND; i += 1) {
      const socket = await open();
      socket.resume().once('close', () => {
        gone += 1;
      });
      held.push(socket);
    }
    for (let i = 0; i < 3; i += 1) expect((await raw(server, get('/sessions', own(server)))).status).toBe(200);
    await until(() => gone >= BEYOND);
    expect(held.slice(0, BEYOND).every(({ destroyed }) => destroyed)).toBe(true);
    expect(held.at(-1)!.destroyed).toBe(false);
  });

  // Promise 05.28: an idle connection makes room when none is silent.
  test('one that waits for its next request makes room when none is silent', async () => {
    const { server, open } = await start();
    const held: Socket[] = [];
    for (let i = 0; i < LIMIT; i += 1) {
      const socket = await open(`GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:${server.port}\r\n\r\n`);
      await once(socket, 'data');
      held.push(socket.resume());
    }
    expect((await raw(server, get('/sessions', own(server)))).status).toBe(200);
    await until(() => held[0]!.destroyed);
    expect(held.at(-1)!.destroyed).toBe(false);
  });

  // Promise 05.28: the health routes are served when each connection is at work.
  test('where each has a request under way the health routes are served, others are too_many_connections', async () => {
    const { server, open } = await start();
    const body = 'x'.repeat(10);
    const slow = `POST /sessions HTTP/1.1\r\nHost: 127.0.0.1:${server.port}\r\nContent-Type: application/json\r\nContent-Length: ${body.length + 1}\r\n\r\n${body}`;
    const held = [];
    let begun = 0;
    server.app.server.on('request', () => {
      begun += 1;
    });
    for (let i = 0; i < LIMIT; i += 1) held.push(await open(slow));
    await until(() => begun === LIMIT);
    const refused = await raw(server, get('/sessions', own(server)));
    expect([refused.status, await code(refused)]).toEqual([503, 'too_many_connections']);
    expect(refused.head).toMatch(/^connection: close\r?$/im);
    expect((await raw(server, get('/healthz', own(server)))).status).toBe(200);
    for (const socket of held) socket.destroy();
    await until(async () => (await raw(server, get('/sessions', own(server)))).status === 200);
  });

  // Promise 05.28: a head that does not come ends its connection.
  test('one that sends no whole head is ended after 10 s', async () => {
    const { server, open } = await start();
    expect([server.app.server.headersTimeout, server.app.server.requestTimeout]).toEqual([10_000, 120_000]);
    const socket = await open('GET /healthz HTTP/1.1\r\n');
    await once(socket.resume(), 'close');
  });
});

test('an id of any length is refused in the envelope, behind the gates', async () => {
  const server = await startServer({ config: { server: { auth_tokens: [TOKEN] } } });
  for (const [length, authorization, expected] of [
    [5000, 'Bearer x', [401, 'unauthorized']],
    [9000, 'Bearer x', [401, 'unauthorized']],
    [5000, `Bearer ${TOKEN}`, [400, 'validation_error']],
    [9000, `Bearer ${TOKEN}`, [414, 'uri_too_long']],
  ] as const) {
    const answer = await server.call('GET', `/sessions/${'x'.repeat(length)}`, undefined, { authorization });
    expect([answer.status, answer.body.error.code]).toEqual(expected);
  }
});

describe('host and origin', () => {
  // Promise 05.19: foreign hosts are refused.
  test('a foreign Host is refused, whatever the path, and loopback names need our port', async () => {
    const server = await startServer({ config: { server: { allowed_hosts: ['metis.example', 'pinned.example:81'] } } });
    const ask = (host: string) => raw(server, get('/healthz', { Host: host }));
    for (const host of ['evil.example', 'localhost:1', 'localhost', 'pinned.example', 'metis.example.evil', '']) {
      const answer = await ask(host);
      expect([host, answer.status, await code(answer)]).toEqual([host, 403, 'host_not_allowed']);
    }
    for (const host of [`localhost:${server.port}`, `[::1]:${server.port}`, 'METIS.example:9', 'pinned.example:81']) {
      expect([host, (await ask(host)).status]).toEqual([host, 200]);
    }
  });

  test('two Hosts are refused, whichever comes first, and a target in absolute form is judged by its own', async () => {
    const server = await startServer();
    const ours = `localhost:${server.port}`;
    for (const [first, second] of [
      [ours, 'evil.example'],
      ['evil.example', ours],
    ]) {
      const answer = await raw(server, get('/healthz', { Host: `${first}\r\nHost: ${second}` }));
      expect([first, answer.status, await code(answer)]).toEqual([first, 403, 'host_not_allowed']);
    }
    for (const foreign of ['http://evil.example/healthz', `http://evil.example@${ours}/healthz`, 'http:///healthz']) {
      const answer = await raw(server, get(foreign, { Host: ours }));
      expect([foreign, answer.status, await code(answer)]).toEqual([foreign, 403, 'host_not_allowed']);
    }
    expect((await raw(server, get(`HTTP://${ours}/healthz?x`, { Host: 'proxy.example' }))).status).toBe(200);
    expect((await raw(server, get(`http://${ours}?x`, { Host: ours }))).status).toBe(404);
  });

  test('what another page loads without an Origin is refused, a link that is followed is not', async () => {
    const server = await startServer();
    const ask = (headers: Readonly<Record<string, string>>, path = '/models') =>
      raw(server, get(path, { Host: `localhost:${server.port}`, ...headers }));
    const fetched = (site: string, mode: string, dest: string) => ({
      'Sec-Fetch-Site': site,
      'Sec-Fetch-Mode': mode,
      'Sec-Fetch-Dest': dest,
    });
    const workspace = `/sessions?workspace_path=${encodeURIComponent(server.workspace)}`;
    for (const site of ['cross-site', 'same-site']) {
      for (const [mode, dest] of [
        ['no-cors', 'script'],
        ['no-cors', 'image'],
        ['no-cors', 'empty'],
        ['navigate', 'iframe'],
        ['navigate', 'object'],
      ] as const) {
        const answer = await ask(fetched(site, mode, dest), workspace);
        expect([site, dest, answer.status, await code(answer)]).toEqual([site, dest, 403, 'origin_not_allowed']);
      }
      expect((await ask(fetched(site, 'navigate', 'document'))).status).toBe(200);
    }
    for (const site of ['same-origin', 'none']) expect((await ask(fetched(site, 'cors', 'empty'))).status).toBe(200);
  });

  test('a request without Host is refused in our envelope', async () => {
    const server = await startServer();
    const answer = await raw(server, 'GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n');
    expect([answer.status, await code(answer)]).toEqual([403, 'host_not_allowed']);
  });

  test('pages of an allowed host are ours over TLS too, which a proxy in front ends', async () => {
    const server = await startServer({ config: { server: { allowed_hosts: ['metis.example'] } } });
    const ask = (Host: string, Origin: string) => raw(server, get('/models', { Host, Origin }));
    for (const [host, origin] of [
      ['metis.example', 'https://metis.example'],
      ['metis.example:443', 'https://metis.example'],
      ['metis.example:8443', 'https://METIS.example:8443'],
      ['metis.example', 'http://metis.example'],
    ] as const)
      expect([origin, (await ask(host, origin)).status]).toEqual([origin, 200]);
    for (const [host, origin] of [
      ['metis.example', 'https://metis.example:8443'],
      ['metis.example', 'https://metis.example.evil'],
      ['metis.example', 'ftp://metis.example'],
      ['evil.example', 'https://evil.example'],
    ] as const)
      expect([origin, (await ask(host, origin)).status]).toEqual([origin, 403]);
  });

  // Promise 05.19: foreign origins are refused, a listed one gets its CORS headers.
  test('foreign origins are refused on GET and POST, a listed one gets its CORS headers', async () => {
    const listed = 'https://app.example';
    const server = await startServer({ config: { server: { cors_allowed_origins: [listed] } } });
    for (const origin of ['https://evil.example', 'null', `http://127.0.0.1:${server.port + 1}`]) {
      for (const [method, body] of [['GET'], ['POST', {}]] as const) {
        const answer = await server.call(method, '/sessions', body, { origin });
        expect([origin, answer.status, answer.body.error.code]).toEqual([origin, 403, 'origin_not_allowed']);
      }
    }
    const ours = await server.call('GET', '/models', undefined, { origin: server.base });
    expect([ours.status, ours.headers.get('access-control-allow-origin')]).toEqual([200, null]);
    const theirs = await server.call('GET', '/models', undefined, { origin: listed });
    expect(theirs.status).toBe(200);
    expect(theirs.headers.get('access-control-allow-origin')).toBe(listed);
    expect(theirs.headers.get('vary')).toBe('Origin');
    expect(theirs.headers.get('access-control-expose-headers')).toBe('Retry-After, Idempotency-Replayed, Location');
  });

  test('a preflight is answered before the token is asked for', async () => {
    const listed = 'https://app.example';
    const server = await startServer({ config: { server: { cors_allowed_origins: [listed], auth_tokens: [TOKEN] } } });
    const answer = await server.call('OPTIONS', '/sessions', undefined, {
      origin: listed,
      'access-control-request-method': 'POST',
    });
    expect(answer.status).toBe(204);
    expect(answer.headers.get('access-control-allow-headers')).toBe(
      'Authorization, Content-Type, Idempotency-Key, Last-Event-ID, Prefer',
    );
    expect(answer.headers.get('access-control-allow-methods')).toBe('DELETE, GET, PATCH, POST, PUT');
    expect(answer.headers.get('access-control-max-age')).toBe('600');
  });
});

describe('tokens', () => {
  test('are needed on every path but the health routes, known or not', async () => {
    const server = await startServer({ config: { server: { auth_tokens: [TOKEN, `${TOKEN}-2`] } } });
    for (const header of [undefined, 'Bearer wrong', `Basic ${TOKEN}`, `Bearer ${TOKEN}x`]) {
      const headers = header === undefined ? {} : { authorization: header };
      for (const path of ['/models', '/no/such/path']) {
        const answer = await server.call('GET', path, undefined, headers);
        expect([path, answer.status, answer.body.error.code]).toEqual([path, 401, 'unauthorized']);
        expect(answer.headers.get('www-authenticate')).toBe('Bearer');
      }
    }
    expect((await server.call('GET', '/healthz')).status).toBe(200);
    expect((await server.call('GET', '/readyz')).status).toBe(200);
    for (const token of [TOKEN, `${TOKEN}-2`]) {
      expect((await server.call('GET', '/models', undefined, { authorization: `Bearer ${token}` })).status).toBe(200);
    }
  });
});

test('two Authorization headers are none, whichever of them is right', async () => {
  const server = await startServer({ config: { server: { auth_tokens: [TOKEN] } } });
  const Host = `localhost:${server.port}`;
  const ask = (value: string) => raw(server, get('/models', { Host, Authorization: value }));
  expect((await ask(`Bearer ${TOKEN}`)).status).toBe(200);
  for (const [first, second] of [
    [TOKEN, 'wrong'],
    ['wrong', TOKEN],
    [TOKEN, TOKEN],
  ])
    expect((await ask(`Bearer ${first}\r\nAuthorization: Bearer ${second}`)).status).toBe(401);
});

test('a body that says it is encoded is refused, not read as something else', async () => {
  const server = await startServer();
  const body = { workspace_path: server.workspace };
  const encoded = await server.call('POST', '/sessions', body, { 'content-encoding': 'gzip' });
  expect([encoded.status, encoded.body.error.code]).toEqual([415, 'unsupported_media_type']);
  expect((await server.call('POST', '/sessions', body, { 'content-encoding': 'Identity' })).status).toBe(201);
});

describe('rate', () => {
  // Promise 05.26: the sixth request in a minute is 429 with Retry-After, health answers.
  test('the sixth request within a minute is told when to come back, health still answers', async () => {
    const server = await startServer({ config: { server: { rate_limit_rpm: 5 } } });
    for (const path of ['/models', '/nope', '/models', '/nope', '/models']) {
      expect((await server.call('GET', path)).status).not.toBe(429);
    }
    const sixth = await server.call('GET', '/models');
    expect([sixth.status, sixth.body.error.code]).toEqual([429, 'rate_limit_exceeded']);
    expect(Number(sixth.headers.get('retry-after'))).toBeGreaterThan(0);
    expect((await server.call('GET', '/healthz')).status).toBe(200);
  });

  test('is counted per token', async () => {
    const second = `${TOKEN}-2`;
    const server = await startServer({ config: { server: { rate_limit_rpm: 1, auth_tokens: [TOKEN, second] } } });
    const ask = (token: string) => server.call('GET', '/models', undefined, { authorization: `Bearer ${token}` });
    expect([(await ask(TOKEN)).status, (await ask(second)).status, (await ask(TOKEN)).status]).toEqual([200, 200, 429]);
  });
});

describe('routes', () => {
  test('an unknown path is not_found, a known one with another method names those it takes', async () => {
    const server = await startServer();
    const unknown = await server.call('POST', '/nope', { a: 1 }, { 'content-type': 'text/plain' });
    expect([unknown.status, unknown.body.error.code]).toEqual([404, 'not_found']);
    expect(unknown.body.error.details).toEqual({ resource: 'route' });
    const put = await server.call('PUT', '/sessions', 'x', { 'content-type': 'text/plain' });
    expect([put.status, put.body.error.code, put.headers.get('allow')]).toEqual([
      405,
      'method_not_allowed',
      'GET, POST',
    ]);
    const undecodable = await server.call('GET', '/sessions/%ff');
    expect([undecodable.status, undecodable.body.error.code]).toEqual([404, 'not_found']);
  });

  test('a target above 8192 bytes is uri_too_long, headers above 16 KiB are headers_too_large', async () => {
    const server = await startServer();
    const Host = `localhost:${server.port}`;
    for (const length of [8193, 20_000]) {
      const answer = await raw(server, get(`/${'a'.repeat(length - 1)}`, { Host }));
      expect([length, answer.status, await code(answer)]).toEqual([length, 414, 'uri_too_long']);
    }
    expect((await raw(server, get(`/${'a'.repeat(8191)}`, { Host }))).status).toBe(404);
    const headers = await raw(server, get('/healthz', { Host, 'X-Long': 'x'.repeat(17_000) }));
    expect([headers.status, await code(headers)]).toEqual([431, 'headers_too_large']);
  });

  test('what is no HTTP is answered in the envelope', async () => {
    const server = await startServer();
    const answer = await raw(server, 'NONSENSE\r\n\r\n');
    expect([answer.status, await code(answer)]).toEqual([400, 'validation_error']);
  });

  test('an upgrade on a path that takes none is refused in the envelope', async () => {
    const server = await startServer();
    const upgrade = { Host: `localhost:${server.port}`, Upgrade: 'websocket' };
    const answer = await raw(server, get('/healthz', upgrade).replace('Connection: close', 'Connection: Upgrade'));
    expect([answer.status, await code(answer)]).toEqual([400, 'validation_error']);
  });

  test('the stream without an upgrade, or with a broken handshake, is refused in the envelope', async () => {
    const server = await startServer();
    const session = await server.session();
    const url = `/sessions/${session.id}/stream`;
    const plain = await server.call('GET', url);
    expect([plain.status, plain.body.error.details.issues[0].path]).toEqual([400, 'Upgrade']);
    const upgrade = { Host: `localhost:${server.port}`, Upgrade: 'websocket' };
    const answer = await raw(server, get(url, upgrade).replace('Connection: close', 'Connection: Upgrade'));
    expect([answer.status, await code(answer)]).toEqual([400, 'validation_error']);
  });
});

describe('what a client offers or expects', () => {
  const offer =
    'Connection: close, Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n';

  test('an upgrade to HTTP/2 is left alone and the request answered, its body included', async () => {
    const server = await startServer();
    const host = `Host: localhost:${server.port}\r\n`;
    const plain = await raw(server, `GET /healthz HTTP/1.1\r\n${host}${offer}\r\n`);
    expect([plain.status, plain.head.includes('Upgrade')]).toEqual([200, false]);
    const body = JSON.stringify({ workspace_path: server.workspace });
    const type = `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n`;
    const made = await raw(server, `POST /sessions HTTP/1.1\r\n${host}${offer}${type}\r\n${body}`);
    expect(made.status).toBe(201);
    expect(server.events.map((event) => event.type)).toEqual(['session.created']);
  });

  test('an expectation that is not met is told so in the envelope, behind the gates that look at the caller', async () => {
    const server = await startServer();
    const Host = `localhost:${server.port}`;
    const answer = await raw(server, get('/healthz', { Host, Expect: 'banana' }));
    expect([answer.status, await code(answer)]).toEqual([417, 'expectation_failed']);
    const foreign = await raw(server, get('/healthz', { Host: 'evil.example', Expect: 'banana' }));
    expect([foreign.status, await code(foreign)]).toEqual([403, 'host_not_allowed']);
    const met = await raw(server, get('/healthz', { Host, Expect: '100-Continue' }));
    expect(met.status).toBe(100);
  });
});

/** Writes all of it before it looks at any answer, as simple clients do, and reads to the end. */
function stubborn(server: TestServer, head: string, chunk: Buffer, times: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect(server.port, '127.0.0.1', () => {
      socket.write(head);
      more(times);
    });
    const parts: Buffer[] = [];
    function more(left: number): void {
      if (left > 0) socket.write(chunk, () => more(left - 1));
      else socket.on('data', (part) => parts.push(part));
    }
    socket.on('error', reject);
    socket.on('close', () => resolve(String(Buffer.concat(parts))));
  });
}

describe('an answer that comes before the end of what a client sends', () => {
  const MEGABYTE = Buffer.alloc(1_000_000, ' ');
  const chunked = Buffer.concat([Buffer.from(`${MEGABYTE.length.toString(16)}\r\n`), MEGABYTE, Buffer.from('\r\n')]);
  const CHUNKED = 'Transfer-Encoding: chunked\r\n';
  const JSON_413 = { type: 'application/json', status: 413 };

  test.each([
    { how: 'announced', length: `Content-Length: ${20 * MEGABYTE.length}\r\n`, chunk: MEGABYTE, ...JSON_413 },
    { how: 'not announced', length: CHUNKED, chunk: chunked, ...JSON_413 },
    { how: 'of another type', length: CHUNKED, chunk: chunked, type: 'text/plain', status: 415 },
  ])('reaches it: a body that is too large and $how', async ({ length, chunk, type, status }) => {
    const server = await startServer();
    const head = `POST /sessions HTTP/1.1\r\nHost: localhost:${server.port}\r\nConnection: close\r\nContent-Type: ${type}\r\n`;
    const end = chunk === chunked ? Buffer.concat([chunk, Buffer.from('0\r\n\r\n')]) : chunk;
    const last = chunk === chunked ? 1 : 20;
    const body = chunk === chunked ? Buffer.concat([...Array.from({ length: 19 }, () => chunked), end]) : chunk;
    const answer = await stubborn(server, `${head}${length}\r\n`, body, last);
    expect(answer.slice(0, 12)).toBe(`HTTP/1.1 ${status}`);
  });

  test('reaches it: headers that go on after they are too large', async () => {
    const server = await startServer();
    const line = Buffer.from(`X-Long: ${'x'.repeat(8_000)}\r\n`);
    const head = `GET /healthz HTTP/1.1\r\nHost: localhost:${server.port}\r\n`;
    expect((await stubborn(server, head, line, 500)).slice(0, 12)).toBe('HTTP/1.1 431');
  });

  test('is the last thing read from a client that goes on without end', async () => {
    const clock = manualClock();
    const server = await startServer({ clock });
    const socket = connect(server.port, '127.0.0.1');
    socket.on('error', () => {});
    const closed = new Promise((resolve) => socket.once('close', resolve));
    const head = `POST /sessions HTTP/1.1\r\nHost: localhost:${server.port}\r\nContent-Type: text/plain\r\n`;
    socket.write(`${head}Transfer-Encoding: chunked\r\n\r\n`);
    const [answer] = await once(socket, 'data');
    expect(String(answer).slice(0, 12)).toBe('HTTP/1.1 415');
    const more = () => socket.write(chunked, (error) => error ?? more());
    more();
    await closed;
    const slow = connect(server.port, '127.0.0.1');
    slow.write(`${head}Transfer-Encoding: chunked\r\n\r\n`);
    await once(slow, 'data');
    const cut = once(slow, 'close');
    clock.advance(20_000);
    await cut;
  });

  test('is not written into another answer: nonsense behind a stream only ends it', async () => {
    const server = await startServer();
    const session = await server.session();
    const socket = connect(server.port, '127.0.0.1');
    let text = '';
    socket.on('data', (part) => {
      text += String(part);
    });
    socket.write(
      `GET /sessions/${session.id}/events HTTP/1.1\r\nHost: localhost:${server.port}\r\nAccept: text/event-stream\r\n\r\n`,
    );
    await once(socket, 'data');
    const closed = once(socket, 'close');
    socket.write('NONSENSE\r\n\r\n');
    await closed;
    expect(text.match(/HTTP\/1\.1/g)).toHaveLength(1);
  });
});

describe('bodies', () => {
  // Promise 05.2: malformed JSON is a validation_error.
  // Promise 05.3: wrong media type 415, too large 413.
  test('media type comes before size, size before form', async () => {
    const server = await startServer();
    const send = async (body: string, type: string) => {
      const response = await fetch(`${server.base}/sessions`, {
        method: 'POST',
        body,
        headers: { 'content-type': type },
      });
      const parsed = (await response.json()) as { error: { code: string } };
      return [response.status, parsed.error.code];
    };
    const large = `"${'x'.repeat(MIB - 1)}"`;
    expect(Buffer.byteLength(large)).toBe(MIB + 1);
    expect(await send(large, 'text/plain')).toEqual([415, 'unsupported_media_type']);
    expect(await send('{}', 'application/json; charset=latin1')).toEqual([415, 'unsupported_media_type']);
    expect(await send(large, 'application/json')).toEqual([413, 'payload_too_large']);
    expect(await send('{"a":', 'application/json; charset=utf-8')).toEqual([400, 'validation_error']);
    expect(await send('', 'application/json')).toEqual([400, 'validation_error']);
    expect(await send('[]', 'application/json')).toEqual([400, 'validation_error']);
    expect(await send('{"__proto__":{}}', 'application/json')).toEqual([400, 'validation_error']);
  });

  test('a body whose size is not announced is cut off at the limit', async () => {
    const server = await startServer({ config: { server: { body_limit_bytes: 100 } } });
    const chunk = `${(101).toString(16)}\r\n${' '.repeat(101)}\r\n0\r\n\r\n`;
    const head = `POST /sessions HTTP/1.1\r\nHost: localhost:${server.port}\r\nContent-Type: application/json\r\n`;
    const answer = await raw(server, `${head}Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n${chunk}`);
    expect([answer.status, await code(answer)]).toEqual([413, 'payload_too_large']);
  });

  // Promise 05.3: an unknown body key is 400 and named.
  test('every fault of form is one validation_error that names the fields, unknown keys included', async () => {
    const server = await startServer();
    const answer = await server.call('POST', '/sessions', { workspace_path: 'relative', max_cost_usd: 0.5, bogus: 1 });
    expect([answer.status, answer.body.error.code]).toEqual([400, 'validation_error']);
    expect(answer.body.error.details.issues.map((i: { path: string }) => i.path).sort()).toEqual([
      'bogus',
      'max_cost_usd',
      'workspace_path',
    ]);
    const empty = await server.call('POST', '/sessions', {});
    expect(empty.body.error.message).toContain('workspace_path');
    const path = await server.call('GET', '/sessions/nope');
    expect([path.status, path.body.error.details.issues[0].path]).toEqual([400, 'session_id']);
    const query = await server.call('GET', '/sessions?include_workers=maybe&bogus=1');
    expect(query.body.error.details.issues.map((i: { path: string }) => i.path).sort()).toEqual([
      'bogus',
      'include_workers',
    ]);
  });

  // Promise 05.3: a query is strict where no parameter is known too.
  test.each([
    ['GET', '/models'],
    ['GET', '/pricing'],
    ['GET', '/nodes'],
    ['GET', '/sessions/SESSION'],
    ['POST', '/sessions', { workspace_path: '/' }],
    ['PATCH', '/sessions/SESSION', { max_cost_usd: '1' }],
    ['DELETE', '/sessions/SESSION'],
  ])('%s %s takes no query parameter, and does nothing with one', async (method, path, body?: object) => {
    const server = await startServer();
    const session = await server.session();
    const answer = await server.call(method, `${path.replace('SESSION', session.id)}?forse=true`, body);
    expect([answer.status, answer.body.error?.message]).toEqual([400, 'forse: unknown key']);
    expect((await server.call('GET', `/sessions/${session.id}`)).body).toEqual(session);
  });

  test('an unknown query parameter is named at once, whether it stands twice or has no name', async () => {
    const server = await startServer();
    const ask = async (path: string) => (await server.call('GET', path)).body.error;
    expect((await ask('/models?a=1&a=2')).message).toBe('a: unknown key');
    for (const query of ['=', '=x', '=x&=y']) {
      const { message, details } = await ask(`/models?${query}`);
      expect([message, details.issues]).toEqual(['unknown key ""', [{ path: '', message: 'unknown key ""' }]]);
    }
    expect((await ask('/sessions?limit=1&limit=2&a=1&a=2&include_workers=maybe')).details.issues).toEqual([
      { path: 'limit', message: 'is given more than once' },
      { path: 'include_workers', message: 'must be one of true, 1, yes, false, 0, no' },
      { path: 'a', message: 'unknown key' },
    ]);
  });

  test('a field that is missing is named with the part of the request that it belongs to', async () => {
    const server = await startServer();
    const ask = async (method: string, path: string, body?: object) =>
      (await server.call(method, path, body)).body.error.details.issues;
    const inQuery = [{ path: 'workspace_path', message: 'is required in the query' }];
    expect(await ask('DELETE', '/workers/reviewer')).toEqual(inQuery);
    expect(await ask('GET', '/workers/reviewer')).toEqual(inQuery);
    expect(await ask('PUT', '/workers/reviewer', {})).toContainEqual({
      path: 'workspace_path',
      message: 'is required in the body',
    });
  });

  test('a parameter of the other form of the same address is refused with the header that asks for that form', async () => {
    const server = await startServer();
    const { id } = await server.session();
    const ask = async (query: string, headers = {}) => {
      const answer = await server.call('GET', `/sessions/${id}/events?${query}`, undefined, headers);
      return [answer.status, answer.body.error?.message];
    };
    const stream = { accept: 'text/event-stream' };
    expect(await ask('snapshot=true')).toEqual([
      400,
      'snapshot: is of the stream alone: send "Accept: text/event-stream"',
    ]);
    expect(await ask('limit=5', stream)).toEqual([
      400,
      'limit: is not of the stream: leave out "Accept: text/event-stream"',
    ]);
    expect((await ask('preset=chat&snapshot=1'))[1]).toContain('(and 1 more)');
  });

  test('a probe may add parameters to its path, and whoever asks for an open page', async () => {
    const server = await startServer();
    for (const path of ['/healthz', '/readyz', '/metrics', '/docs', '/nodes/self'])
      expect([path, (await fetch(`${server.base}${path}?probe=1&probe=2`)).status]).toEqual([path, 200]);
    for (const path of ['/openapi.json', '/events.schema.json'])
      expect([path, (await fetch(`${server.base}${path}?probe=1`)).status]).toEqual([path, 400]);
  });

  test('a misspelt key is told with the one that was meant', async () => {
    const server = await startServer();
    const session = await server.session();
    const told = async (path: string, body: unknown) => (await server.call('POST', path, body)).body.error.message;
    const place = { workspace_path: server.workspace };
    expect(await told('/sessions', { ...place, max_cost: '1' })).toBe(
      'max_cost: unknown key; did you mean "max_cost_usd"?',
    );
    expect(await told('/sessions', { ...place, colour: 'red' })).toBe('colour: unknown key');
    const turns = `/sessions/${session.id}/turns`;
    expect(await told(turns, { contents: 'hi', content: 'hi' })).toContain('did you mean "content"?');
    const block = { type: 'image', sourec: {}, source: { kind: 'base64', data: 'AA==' }, media_type: 'image/png' };
    expect(await told(turns, { content: [block] })).toContain('did you mean "source"?');
    const { message } = (await server.call('GET', '/sessions?include_worker=true')).body.error;
    expect(message).toContain('did you mean "include_workers"?');
  });

  test('a probe may ask by HEAD, and durations have no more digits than they know', async () => {
    const server = await startServer();
    for (const path of ['/healthz', '/readyz']) {
      const answer = await fetch(`${server.base}${path}`, { method: 'HEAD' });
      expect([answer.status, await answer.text()]).toEqual([200, '']);
    }
    expect((await fetch(`${server.base}/models`, { method: 'HEAD' })).status).toBe(405);
    const { uptime_seconds } = (await server.call('GET', '/healthz')).body;
    expect(String(uptime_seconds)).toMatch(/^\d+(\.\d{1,3})?$/);
  });

  test('a fault is told in plain words, inside a message block and for a parameter that stands twice', async () => {
    const server = await startServer();
    const { body: session } = await server.call('POST', '/sessions', { workspace_path: server.workspace });
    const told = async (method: string, path: string, body?: unknown) =>
      (await server.call(method, path, body)).body.error.message;
    expect(await told('POST', '/sessions', {})).toBe('workspace_path: is required in the body');
    expect(await told('POST', `/sessions/${session.id}/turns`, { content: 5 })).toBe(
      'content: must be a string or a list',
    );
    const block = (content: unknown) => told('POST', `/sessions/${session.id}/turns`, { content: [content] });
    expect(await block({ type: 'nope' })).toBe('content.0.type: must be one of "text", "image"');
    expect(await block({ type: 'image', source: { kind: 'base64', data: 'AAAA' } })).toBe(
      'content.0.media_type: is required',
    );
    expect(await block({ type: 'image', source: { kind: 'url', data: 'x' }, media_type: 'image/png' })).toBe(
      'content.0.source.kind: must be one of "base64", "file_ref"',
    );
    expect(await told('GET', '/sessions?limit=1&limit=2')).toBe('limit: is given more than once');
    expect(await told('GET', `/sessions/${session.id}/events?since=a&since=b`)).toBe('since: is given more than once');
    expect(await told('GET', '/sessions?status=asleep')).toBe(
      'status: unknown: "asleep"; known: idle, running, interrupted, ended',
    );
  });

  test('an endpoint whose body is optional takes none at all', async () => {
    const server = await startServer();
    const answer = await server.call('POST', '/maintenance/prune');
    expect([answer.status, answer.body.dry_run]).toEqual([200, false]);
  });
});

describe('going down', () => {
  test('every path answers 503 with Retry-After, health included', async () => {
    const server = await startServer();
    server.drain();
    for (const path of ['/healthz', '/sessions', '/nope']) {
      const answer = await server.call('GET', path);
      expect([answer.status, answer.body.error.code]).toEqual([503, 'service_shutting_down']);
      expect(answer.headers.get('retry-after')).toBe('5');
    }
  });
});

describe('a database that takes nothing', () => {
  const said: string[] = [];
  const log = { ...silentLogger, error: (_: unknown, text: string) => void said.push(text) };

  test('is what a writing request is told, and the next one is served when there is room', async () => {
    const server = await startServer({ log });
    const pages = Number(server.db.db.pragma('page_count', { simple: true }));
    server.db.db.pragma(`max_page_count = ${pages}`);
    const workspace_path = server.workspace;
    let answer = await server.call('POST', '/sessions', { workspace_path });
    while (answer.status === 201) answer = await server.call('POST', '/sessions', { workspace_path });
    expect([answer.status, answer.body.error.code]).toEqual([503, 'storage_unavailable']);
    expect(answer.body.error.message).toContain('the disk is full');
    expect(said).toEqual(['commit failed']);
    expect((await server.call('GET', '/sessions')).status).toBe(200);
    server.db.db.pragma('max_page_count = 1000000');
    expect((await server.call('POST', '/sessions', { workspace_path })).status).toBe(201);
  });
});

describe('a client that leaves', () => {
  test('in the middle of its body is no error', async () => {
    const told: [string, string][] = [];
    let heard = () => {};
    const one = new Promise<void>((resolve) => {
      heard = resolve;
    });
    const note = (level: string) => (_: unknown, text: string) => {
      if (!/body|failed/.test(text)) return;
      told.push([level, text]);
      heard();
    };
    const log = { ...silentLogger, error: note('error'), warn: note('warn'), debug: note('debug') };
    const server = await startServer({ log });
    const socket = connect(server.port, '127.0.0.1');
    await once(socket, 'connect');
    const arrived = once(server.app.server, 'request');
    socket.write(`POST /sessions HTTP/1.1\r\nHost: 127.0.0.1:${server.port}\r\nContent-Type: application/json\r\n`);
    socket.write('Content-Length: 1000\r\n\r\n{"workspace');
    const [request] = (await arrived) as [IncomingMessage];
    await until(() => request.readableFlowing === true);
    socket.destroy();
    await one;
    expect(told).toEqual([['debug', 'the client closed the connection before its body was complete']]);
  });
});

describe('bugs', () => {
  test('are an opaque internal_error whose request id is in the log', async () => {
    const lines: Readonly<Record<string, unknown>>[] = [];
    const server = await startServer({ log: { ...silentLogger, error: (fields) => lines.push(fields) } });
    server.db.db.exec('DROP TABLE price_versions; ALTER TABLE sessions RENAME TO gone');
    const answer = await server.call('GET', '/sessions');
    expect([answer.status, answer.body.error.code]).toEqual([500, 'internal_error']);
    expect(JSON.stringify(answer.body)).not.toContain('gone');
    expect(lines.map((line) => line.request_id)).toEqual([answer.body.error.details.request_id]);
  });
});
