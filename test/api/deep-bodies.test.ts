// Bodies without end in depth or number: refused where a body is read, before anything walks through them (05 §1.2).
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { expect, test, vi } from 'vitest';
import { type Answer, startServer, type TestServer } from '../support/http.ts';
import { ROOT, startReal } from '../support/real-server.ts';

const TOKEN = 'a-token-of-at-least-thirty-two-characters';
const shippedRegistry = () => fs.readFileSync(path.join(ROOT, 'config/registry.yaml'), 'utf8');
const deep = (levels: number) => `{"workspace_path":${'['.repeat(levels)}${']'.repeat(levels)}}`;

async function send(server: TestServer, path: string, body: string, headers = {}): Promise<Answer> {
  const response = await fetch(`${server.base}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body,
  });
  return { status: response.status, headers: response.headers, body: await response.json() };
}
const outcome = ({ status, body }: Answer) => [status, body.error.code, body.error.message];

test.each([{}, { 'idempotency-key': 'key-1' }])(
  'a deep body with the headers %j is a fault of the caller',
  async (headers) => {
    const server = await startServer();
    for (const levels of [100, 5_000, 500_000]) {
      const answer = await send(server, '/sessions', deep(levels), headers);
      expect(outcome(answer)).toEqual([400, 'validation_error', 'the body is nested deeper than 100 levels at line 1']);
    }
    // One level less gets to the next check.
    const shallow = await send(server, '/sessions', deep(99), headers);
    expect([shallow.status, shallow.body.error.message]).toEqual([400, 'workspace_path: must be a string']);
  },
);

test('a body of endless parts is refused before values are made of it', async () => {
  const server = await startServer();
  const answer = await send(server, '/sessions', `[${'1,'.repeat(200_000)}1]`);
  expect(outcome(answer)).toEqual([400, 'validation_error', 'the body has more than 20000 values at line 1']);
});

// Promise 05.29: keys, values and levels of a body are bounded before it is parsed.
test('a body of many keys is refused before values are made of it', async () => {
  const server = await startServer();
  const keys = (count: number) => `{${Array.from({ length: count }, (_, i) => `"k${i}":1`).join(',')}}`;
  const answer = await send(server, '/sessions', keys(10_001));
  expect(outcome(answer)).toEqual([400, 'validation_error', 'the body has more than 10000 keys']);
  expect((await send(server, '/sessions', keys(10_000))).body.error.message).toContain('workspace_path: is required');
});

// Promise 05.29: a large body is parsed on a thread with the same answers.
test('a body above 256 KiB is parsed on a thread, with the same answers', async () => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'metis-body-'));
  const server = await startReal({ folder, registry: shippedRegistry(), wires: [] });
  const { bodies } = server.engine;
  const read = vi.spyOn(bodies!, 'readBody');
  const answerTo = async (to: string, body: string) => {
    const headers = { 'content-type': 'application/json' };
    const answer = await fetch(`${server.url}${to}`, { method: 'POST', headers, body });
    return [answer.status, await answer.text()] as const;
  };
  const pad = ' '.repeat(bodies!.above);
  for (const [body, message] of [
    [`{"workspace_path":1${pad}}`, 'workspace_path: must be a string'],
    [`{"x":${'['.repeat(100)}${']'.repeat(100)}${pad}}`, 'nested deeper than 100 levels'],
    [`{"workspace_path":"a"${pad}`, 'the body is not valid JSON'],
    [`{"__proto__":{}${pad}}`, 'the body is not valid JSON'],
    [`{"constructor":{"prototype":{}}${pad}}`, 'the body is not valid JSON'],
  ] as const) {
    const small = await answerTo('/sessions', body.replace(pad, ''));
    expect(read).not.toHaveBeenCalled();
    expect(small).toEqual([400, expect.stringContaining(message)]);
    expect(await answerTo('/sessions', body)).toEqual(small);
    expect(read).toHaveBeenCalledOnce();
    read.mockClear();
  }
  const [status, text] = await answerTo('/sessions', `{"workspace_path":${JSON.stringify(folder)}${pad}}`);
  expect([status, JSON.parse(text)]).toEqual([
    201,
    expect.objectContaining({ workspace_path: fs.realpathSync(folder) }),
  ]);
  expect((await answerTo('/mcp', `{"jsonrpc":"2.0"${pad}}`))[0]).toBe(400);
  expect(read).toHaveBeenCalledTimes(2);
});

test('the thread has the bytes while it parses them', async () => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'metis-body-'));
  const { bodies } = (await startReal({ folder, registry: shippedRegistry(), wires: [] })).engine;
  const bytes = Buffer.from(`{"a":["\\u00e9",1,null]${' '.repeat(300_000)}}`);
  const read = bodies!.readBody(bytes);
  expect(bytes.byteLength).toBe(0);
  expect(await read).toEqual({ ok: true, value: { a: ['é', 1, null] } });
});

test('who asks, and for what, is judged before the depth of the body', async () => {
  const server = await startServer({ config: { server: { auth_tokens: [TOKEN] } } });
  const authorization = `Bearer ${TOKEN}`;
  expect(outcome(await send(server, '/sessions', deep(5_000)))[0]).toBe(401);
  expect(outcome(await send(server, '/nowhere', deep(5_000), { authorization }))[0]).toBe(404);
  const typed = { authorization, 'content-type': 'text/plain' };
  expect(outcome(await send(server, '/sessions', deep(5_000), typed))[0]).toBe(415);
  const large = `{"a":"${'x'.repeat(2_000_000)}"}`;
  expect(outcome(await send(server, '/sessions', large, { authorization }))[0]).toBe(413);
  // A body that breaks its schema is told before a key that breaks its form.
  const both = await send(server, '/sessions', '{}', { authorization, 'idempotency-key': 'x'.repeat(300) });
  expect(both.body.error.details.issues[0].path).toBe('workspace_path');
});

test('names a caller made up are told in one bounded line', async () => {
  const server = await startServer();
  const keys = Object.fromEntries(Array.from({ length: 5_000 }, (_, i) => [`key\n${i}${'y'.repeat(50)}`, 1]));
  const answer = await send(server, '/sessions', JSON.stringify({ ...keys, [`z\n${'w'.repeat(300_000)}`]: 1 }));
  expect(answer.status).toBe(400);
  expect(answer.body.error.message).toMatch(/^[^\n]{1,300}$/);
  expect(answer.body.error.details.issues).toHaveLength(100);
});

test('a frame nested without end ends its own connection only', async () => {
  const server = await startServer();
  const created = await server.call('POST', '/sessions', { workspace_path: server.workspace });
  const socket = server.connect(`/sessions/${created.body.id}/stream`);
  await new Promise((resolve) => socket.ws.once('open', resolve));
  socket.ws.send(`{"type":"subscribe","x":${'['.repeat(25_000)}${']'.repeat(25_000)}}`);
  expect((await socket.closed).code).not.toBe(1006);
  expect((await server.call('GET', '/healthz')).status).toBe(200);
});
