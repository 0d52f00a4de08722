// What a delegation over MCP asks of the server: the worker, and its result held back until it is there (19 §3.2).
import { once } from 'node:events';
import http from 'node:http';
import net, { type AddressInfo } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { doorHome, mcpOverStdio, serveIn, usage } from '../support/doors.ts';

interface Seen {
  readonly method: string;
  readonly path: string;
  readonly key: string | undefined;
  readonly waits: boolean;
}

// Promise 19.17: a delegation is one worker and two requests, its result looked up only where it was not brought.
test('a delegation is asked for once and its result comes by itself, without a look at any list', async () => {
  const { client, seen, metis } = await watched();
  const result = await client.callTool({ name: 'delegate', arguments: { tier: 'fast', task: 'slowly' } });
  expect(result.structuredContent).toMatchObject({ success: true, output: 'done' });
  const posts = seen.filter(({ path }) => path.endsWith('/delegations'));
  expect(posts.map(({ method, waits }) => [method, waits])).toEqual([
    ['POST', false],
    ['POST', true],
  ]);
  expect(posts[0]!.key).toMatch(/./);
  expect(posts[1]!.key).toBe(posts[0]!.key);
  expect(seen.filter(({ method, path }) => method === 'GET' && !path.endsWith('/stream'))).toEqual([]);
  expect(
    (await metis.listSessions({ include_workers: true })).sessions.filter(({ is_worker }) => is_worker),
  ).toHaveLength(1);
});

// Promise 20.7: `continue` over MCP goes on with the earlier worker.
test('a worker is continued, and each argument of the tool reaches the server', async () => {
  const home = doorHome([{ match: { role: 'worker' }, times: 'inf', respond: { text: 'done', usage } }]);
  const { client: metis } = await serveIn(home);
  const { client } = await mcpOverStdio(home);
  const delegate = (rest: object) =>
    client.callTool({ name: 'delegate', arguments: { tier: 'fast', task: 'look', ...rest } });
  const first = (await delegate({})).structuredContent as { worker_session_id: string };
  const shared = { isolation: 'shared', history: 'full' };
  const second = (await delegate({ continue: first.worker_session_id, ...shared })).structuredContent as typeof first;
  const view = await metis.getSession(second.worker_session_id);
  expect(view.continues_session_id).toBe(first.worker_session_id);
  await expect(delegate({ apply: 'never', isolation: 'shared' })).rejects.toThrow('apply: needs isolation');
  await expect(delegate({ history: 'summary' })).rejects.toThrow('history: needs `continue`');
});

test('where the result is not brought it is looked up once the worker has ended', async () => {
  const { client, seen } = await watched(({ waits }) => waits);
  const result = await client.callTool({ name: 'delegate', arguments: { tier: 'fast', task: 'slowly' } });
  expect(result.structuredContent).toMatchObject({ success: true, output: 'done' });
  expect(seen.some(({ waits }) => waits)).toBe(true);
});

test('the answer of a call that was cancelled over HTTP ends, and holds no connection', async () => {
  const home = doorHome([{ match: { role: 'worker' }, respond: { text: 'late', usage, delay_ms: 60_000 } }]);
  const { url, client: metis } = await serveIn(home);
  const target = new URL(`/mcp?workspace=${encodeURIComponent(home.workspace)}`, url);
  const headers: Record<string, string> = {
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
  };
  const post = (message: object) =>
    fetch(target, { method: 'POST', headers, body: JSON.stringify({ jsonrpc: '2.0', ...message }) });
  const clientInfo = { name: 'test', version: '1' };
  const hello = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo };
  const opened = await post({ id: 1, method: 'initialize', params: hello });
  headers['mcp-session-id'] = opened.headers.get('mcp-session-id')!;
  await opened.text();
  const params = { name: 'delegate', arguments: { tier: 'fast', task: 'wait' } };
  const call = await post({ id: 'one', method: 'tools/call', params });
  const running = async () => (await metis.listSessions({ include_workers: true, status: ['running'] })).sessions;
  await expect.poll(running).not.toEqual([]);
  const back = await post({ method: 'notifications/cancelled', params: { requestId: 'one' } });
  expect(back.status).toBe(202);
  expect(await call.text()).not.toContain('"result"');
  await expect.poll(running).toEqual([]);
});

/** A server behind another that keeps what it is asked, and refuses some of it. */
async function watched(refuses: (seen: Seen) => boolean = () => false) {
  const home = doorHome([
    { match: { role: 'worker', user_contains: 'slowly' }, respond: { text: 'done', usage, delay_ms: 600 } },
  ]);
  const { url, client: metis } = await serveIn(home);
  const { host, port } = new URL(url);
  const seen: Seen[] = [];
  const note = ({ method = '', url: path = '', headers }: http.IncomingMessage): Seen => {
    const key = headers['idempotency-key'] as string | undefined;
    const one = { method, path: path.split('?')[0]!, key, waits: headers.prefer !== undefined };
    // Whether a server is there at all is asked by whoever looks for one.
    if (path !== '/healthz' && path !== '/readyz') seen.push(one);
    return one;
  };
  const between = http.createServer((request, response) => {
    if (refuses(note(request))) {
      response.writeHead(503).end();
      return;
    }
    const { method, url: path } = request;
    const headers = { ...request.headers, host };
    const onward = http.request({ host: '127.0.0.1', port, method, path, headers }, (answer) => {
      response.writeHead(answer.statusCode!, answer.headers);
      answer.pipe(response);
    });
    onward.on('error', () => response.destroy());
    request.pipe(onward);
  });
  between.on('upgrade', (request, socket, head) => {
    note(request);
    const onward = net.connect(Number(port), '127.0.0.1', () => {
      const lines = Object.entries({ ...request.headers, host }).map(([name, value]) => `${name}: ${value}\r\n`);
      onward.write(`${request.method} ${request.url} HTTP/1.1\r\n${lines.join('')}\r\n`);
      onward.write(head);
      onward.pipe(socket).pipe(onward);
    });
    for (const one of [onward, socket]) one.on('error', () => onward.destroy());
  });
  between.listen(0, '127.0.0.1');
  await once(between, 'listening');
  onTestFinished(() => {
    between.closeAllConnections();
    between.close();
  });
  const at = `http://127.0.0.1:${(between.address() as AddressInfo).port}`;
  const { client } = await mcpOverStdio(home, { args: ['--server', at] });
  return { client, seen, metis };
}
