// Other programs' doors on several nodes: the gateway's calls and the connections of MCP clients find their node (16 §5.5).
import { once } from 'node:events';
import http from 'node:http';
import net, { type AddressInfo } from 'node:net';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { describe, expect, onTestFinished, test } from 'vitest';
import { start, temporaryHome } from '../app/metis.ts';
import type { FakeCall } from '../support/fake-provider.ts';
import { type ServingNode, startNodes } from '../support/nodes.ts';
import { pause } from '../support/planned-work.ts';
import { KEYS } from '../support/registry-at.ts';
import { postgresService } from '../support/services.ts';
import { until } from '../support/until.ts';

const { url, missing } = await postgresService();

/** A tree without use is released after 30 s, by a node that goes down at once. */
const LONG_ANSWER_MS = process.env.METIS_CLUSTER === 'full' ? 40_000 : 0;
const DRAINED_MS = 1000;
const MODEL = 'claude-haiku-4-5';

/** A call of a client that names its session; the answer's bytes. */
async function message(node: ServingNode, session: string, text: string) {
  const response = await fetch(`${node.url}/v1/messages`, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      'x-api-key': 'of-the-client',
      'x-claude-code-session-id': session,
      'user-agent': 'claude-cli/2.1.0 (external, cli)',
    },
    body: JSON.stringify({
      model: MODEL,
      max_tokens: 100,
      stream: true,
      messages: [{ role: 'user', content: [{ type: 'text', text }] }],
    }),
  });
  return { status: response.status, headers: response.headers, text: await response.text() };
}

/** Takes each request to the other node than the one before. */
async function balancer(nodes: readonly ServingNode[]) {
  const asked: string[] = [];
  const next = ({ method, url: target }: http.IncomingMessage): ServingNode => {
    const node = nodes[asked.length % nodes.length]!;
    asked.push(`${node.name} ${method} ${target?.split('?')[0]}`);
    return node;
  };
  const server = http.createServer((request, response) => {
    const node = next(request);
    const { host } = new URL(node.url);
    const onward = http.request(node.url + request.url, {
      method: request.method!,
      headers: { ...request.headers, host },
    });
    onward.on('error', () => response.destroy());
    onward.on('response', (answer) => {
      response.writeHead(answer.statusCode!, answer.headers);
      response.flushHeaders();
      answer.pipe(response);
    });
    request.pipe(onward);
    response.on('close', () => onward.destroy());
  });
  server.on('upgrade', (request, near) => {
    const { hostname, port, host } = new URL(next(request).url);
    const far = net.connect({ host: hostname, port: Number(port) });
    const headers = Object.entries({ ...request.headers, host }).map(([name, value]) => `${name}: ${value}\r\n`);
    far.write(`GET ${request.url} HTTP/1.1\r\n${headers.join('')}\r\n`);
    for (const socket of [near, far]) socket.on('error', () => {});
    near.pipe(far).pipe(near);
    near.on('close', () => far.destroy());
    far.on('close', () => near.destroy());
    sockets.add(far);
  });
  const sockets = new Set<net.Socket>();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, asked };
}

describe.skipIf(url === null)(`doors${missing && `, skipped: ${missing}`}`, () => {
  test("a client's calls are relayed by the owner of its tree, an MCP client's go where its connection is", async () => {
    const calls: FakeCall[] = [];
    const nodes = await startNodes({
      database: url!,
      answer: (call) => {
        calls.push(call);
        return { text: `heard ${call.user}`, usage: { input: 10, output: 5 } };
      },
      // No node is to lose a tree here, however busy the machine is.
      set: { 'cluster.lease_seconds': 30 },
    });
    const [a, b] = await Promise.all([nodes.startHere('a'), nodes.startHere('b')]);

    const first = await message(a, 'mine', 'one');
    expect([first.status, first.text]).toEqual([200, expect.stringContaining('heard one')]);
    const second = await message(b, 'mine', 'two');
    expect([second.status, second.headers.get('content-type')]).toEqual([200, expect.stringContaining('event-stream')]);
    expect(second.text).toContain('heard two');
    expect(second.text.trimEnd().endsWith('"type":"message_stop"}')).toBe(true);
    expect(second.headers.get('x-metis-session')).toBe(first.headers.get('x-metis-session'));
    const owned = 'SELECT n.name FROM trees t JOIN nodes n ON n.id = t.owner_node WHERE t.root_session_id = $1';
    expect(await nodes.rows(owned, first.headers.get('x-metis-session'))).toEqual([{ name: 'a' }]);
    // Relayed with the key of the adapter; neither the client's nor a header of ours went on.
    for (const { headers } of calls) {
      expect(headers['x-api-key']).toBe(KEYS.anthropic);
      expect(Object.keys(headers).filter((name) => name.startsWith('x-metis-'))).toEqual([]);
    }
    expect(await nodes.rows('SELECT count(*) AS n FROM llm_calls')).toEqual([{ n: '2' }]);

    // Two first calls of a client: one tree, whoever is later comes again.
    const together = await Promise.all([message(a, 'both', 'x'), message(b, 'both', 'y')]);
    for (const { status, headers } of together.filter((answer) => answer.status !== 200))
      expect([status, headers.get('retry-after')]).toEqual([503, expect.any(String)]);
    expect(together.map(({ status }) => status)).toContain(200);
    expect((await message(b, 'both', 'z')).status).toBe(200);
    expect((await message(a, 'both', 'z')).status).toBe(200);
    expect(await nodes.rows("SELECT count(*) AS n FROM sessions WHERE client_ref = 'both'")).toEqual([{ n: '1' }]);

    // Each request to the other node than the one before.
    let turn = 0;
    const asked: string[] = [];
    const alternate: typeof fetch = (target, init) => {
      const { pathname, search } = new URL(String(target));
      const { url: at, name } = [a, b][turn++ % 2]!;
      asked.push(name);
      return fetch(new URL(pathname + search, at), init);
    };
    const client = new Client({ name: 'test', version: '1' }, { versionNegotiation: { mode: 'legacy' } });
    onTestFinished(async () => void (await client.close().catch(() => {})));
    const target = new URL(`/mcp?workspace=${encodeURIComponent(nodes.workspace('w'))}`, a.url);
    await client.connect(new StreamableHTTPClientTransport(target, { fetch: alternate }));
    for (const task of ['first', 'second', 'third']) {
      const result = await client.callTool({ name: 'delegate', arguments: { tier: 'fast', task } });
      expect(result.structuredContent).toMatchObject({ success: true, output: expect.stringContaining('heard') });
    }
    expect(new Set(asked)).toEqual(new Set(['a', 'b']));
    expect(await nodes.rows("SELECT count(*) AS n FROM sessions WHERE door = 'mcp' AND is_worker = 0")).toEqual([
      { n: '1' },
    ]);
  });

  // Promise 16.23: the first call of a gateway session is whole and booked after more than 30 s (`npm test -- cluster`) and while its node drains.
  test.each(['runs on', 'goes down'])(
    'the first call of a client is answered whole and booked on a node that %s',
    async (how) => {
      let answer = () => {};
      const held = new Promise<void>((resolve) => {
        answer = resolve;
      });
      const nodes = await startNodes({
        database: url!,
        answer: async () => {
          await held;
          return { text: 'whole', usage: { input: 10, output: 5 } };
        },
        set: { 'shutdown.drain_seconds': 60 },
      });
      const node = await nodes.startHere('a');
      const first = message(node, 'new', 'go');
      await until(() => nodes.fake.calls.length === 1);
      const stopped = how === 'goes down' ? node.stop() : null;
      await pause(stopped === null ? LONG_ANSWER_MS : DRAINED_MS);
      answer();
      const { status, text } = await first;
      expect([status, text.trimEnd().endsWith('"type":"message_stop"}')]).toEqual([200, true]);
      if (stopped !== null) expect((await stopped).code).toBe(0);
      const booked = 'SELECT c.input_tokens FROM llm_calls c JOIN sessions s ON s.id = c.session_id';
      expect(await nodes.rows(booked)).toEqual([{ input_tokens: '10' }]);
    },
  );

  test('metis run works through a balancer that takes each request to another node', async () => {
    const nodes = await startNodes({
      database: url!,
      answer: ({ user }) => ({ text: `heard ${user}`, usage: { input: 10, output: 5 } }),
    });
    const { url: address, asked } = await balancer(await Promise.all([nodes.startHere('a'), nodes.startHere('b')]));
    const home = temporaryHome();
    onTestFinished(home.remove);
    for (const word of ['one', 'two']) {
      const run = start(['run', word, '--server', address, '--workspace', nodes.workspace('w')], { home: home.path });
      onTestFinished(async () => void (await run.stop('SIGKILL')));
      expect(await run.finished).toMatchObject({ code: 0, stdout: `heard ${word}\n` });
    }
    const submitted = asked.filter((line) => line.endsWith('/turns'));
    const opened = asked.filter((line) => line.endsWith('POST /sessions'));
    expect([opened.length, submitted.length]).toEqual([2, 2]);
    expect(new Set(asked.map((line) => line[0]))).toEqual(new Set(['a', 'b']));
  });
});
