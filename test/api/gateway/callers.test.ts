// Whose key comes and whose goes on, what is kept of a call, and how one is stopped (19 §2.2, §2.3, §2.7).
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import fs from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { awaitClient } from '#core/engine/gateway/relay-call.ts';
import { manualClock } from '../../support/manual-clock.ts';
import { KEYS } from '../../support/registry-at.ts';
import { until } from '../../support/until.ts';
import { claudeCode, everything, jsonOf, startGateway } from './world.ts';

const OPUS = 'claude-opus-4-7';
const MARK = 'the-marked-string';
const hash = (token: string) => createHash('sha256').update(token).digest('hex');
const BODY = { model: OPUS, max_tokens: 50, messages: [{ role: 'user', content: MARK }] };

// Promise 19.10: in mode server the client's credential is nowhere.
test("the server's key goes to the provider, and what the client sent is nowhere", async () => {
  const world = await startGateway();
  const headers = {
    ...claudeCode('s1'),
    authorization: 'Bearer of-the-client-1',
    'x-api-key': 'of-the-client-2',
    cookie: 'of-the-client-3',
  };
  expect((await world.post('/v1/messages', BODY, headers)).status).toBe(200);
  const [call] = world.provider.received;
  expect(call!.headers).toMatchObject({ 'x-api-key': KEYS.anthropic });
  expect(JSON.stringify(call!.headers)).not.toContain('of-the-client');
  expect(await everything(world)).not.toContain('of-the-client');
});

// Promise 19.10: in mode client it goes to that address alone.
test("in the client's own mode its credential goes to that address alone, unchanged, and is kept nowhere", async () => {
  const config = {
    gateway: { credentials: 'client' as const, keys: { me: { token_sha256: hash('ours'), daily_usd: null } } },
  };
  const world = await startGateway(
    () => ({ status: 401, raw: '{"type":"error","error":{"type":"authentication_error","message":"of-the-client"}}' }),
    { config, wires: [] },
  );
  const headers = { ...claudeCode('s1'), authorization: 'Bearer of-the-client' };
  expect((await world.post('/v1/messages', BODY, headers)).status).toBe(401);
  expect(world.provider.received).toEqual([]);
  for (let i = 0; i < 2; i++)
    expect((await world.post('/v1/messages', BODY, { ...headers, 'x-metis-token': 'ours' })).status).toBe(401);
  // The client's own refused key takes nothing out.
  expect(world.provider.received).toHaveLength(2);
  expect(world.provider.received[0]!.headers.authorization).toBe('Bearer of-the-client');
  expect(world.provider.received[0]!.headers['x-api-key']).toBeUndefined();
  expect(world.provider.received[0]!.headers['x-metis-token']).toBeUndefined();
  expect(await everything(world)).not.toContain('of-the-client');
});

// Promise 19.10: an unknown key is 401 in the wire's envelope, a foreign origin 403.
test('a configured key closes /v1 to calls without one, in the envelope of each wire, and opens nothing else', async () => {
  const config = {
    server: { auth_tokens: ['0123456789abcdef0123456789abcdef'] },
    gateway: { keys: { ci: { token_sha256: hash('ours'), daily_usd: null } } },
  };
  const world = await startGateway(undefined, { config });
  const { post } = world;
  const claude = await post('/v1/messages', BODY, { 'x-api-key': 'wrong' });
  expect([claude.status, await jsonOf(claude)]).toMatchObject([
    401,
    { type: 'error', error: { type: 'authentication_error' } },
  ]);
  const gpt = await post('/v1/chat/completions', { model: 'gpt-5', messages: [] });
  expect([gpt.status, await jsonOf(gpt)]).toMatchObject([401, { error: { code: 'unauthorized', param: null } }]);
  expect((await post('/v1/messages', BODY, { 'x-api-key': 'ours' })).status).toBe(200);
  expect((await post('/v1/messages', BODY, { authorization: 'Bearer 0123456789abcdef0123456789abcdef' })).status).toBe(
    200,
  );
  expect((await fetch(`${world.server.url}/sessions`, { headers: { authorization: 'Bearer ours' } })).status).toBe(401);
  const page = await post('/v1/messages', BODY, { 'x-api-key': 'ours', origin: 'https://elsewhere.example' });
  expect([page.status, (await jsonOf(page)).error.type]).toEqual([403, 'permission_error']);
  expect(world.provider.received).toHaveLength(2);
});

// Promise 19.13: a marked string of prompt and answer is nowhere.
test('what is said is kept nowhere, whichever way a call ends', async () => {
  const world = await startGateway((call) => {
    if (call.body.max_tokens === 3) return { status: 500, raw: `{"error":{"type":"cannot read ${MARK}"}}` };
    if (call.body.max_tokens === 1)
      return { status: 400, raw: `{"type":"error","error":{"type":"invalid_request_error","message":"${MARK}"}}` };
    return call.body.max_tokens === 2 ? { breaks: true, text: MARK } : { text: MARK };
  });
  const { post } = world;
  expect(await (await post('/v1/messages', BODY)).text()).toContain(MARK);
  expect(await (await post('/v1/messages', { ...BODY, stream: true, metadata: { user_id: MARK } })).text()).toContain(
    MARK,
  );
  expect((await post('/v1/messages', { ...BODY, max_tokens: 1 })).status).toBe(400);
  expect((await post('/v1/messages', { ...BODY, max_tokens: 3 })).status).toBe(500);
  await expect((await post('/v1/messages', { ...BODY, max_tokens: 2, stream: true })).text()).rejects.toThrow();
  expect((await post('/v1/messages', `{"model":"${MARK} x","messages":"${MARK}"}`)).status).toBe(400);
  await world.server.until(() =>
    world.server.events.filter(({ type }) => /^llm\.call_(completed|failed)$/.test(type)).length === 5
      ? true
      : undefined,
  );
  expect(await everything(world)).not.toContain(MARK);
});

// Promise 19.13: with gateway.record it is in files of mode 0600.
test('with gateway.record each exchange is a file of its own that others cannot read', async () => {
  const folder = fs.mkdtempSync('/tmp/metis-record-');
  const world = await startGateway(() => ({ text: MARK }), {
    config: { gateway: { record: path.join(folder, 'kept') } },
  });
  await (await world.post('/v1/messages', { ...BODY, stream: true }, { 'x-api-key': 'of-the-client' })).text();
  await world.server.close();
  const [name] = fs.readdirSync(path.join(folder, 'kept'));
  const file = path.join(folder, 'kept', name!);
  expect(fs.statSync(file).mode & 0o777).toBe(0o600);
  const kept = fs.readFileSync(file, 'utf8');
  expect(JSON.parse(kept)).toMatchObject({
    adapter: 'anthropic',
    path: '/v1/messages',
    status: 200,
    end: 'complete',
    body: { messages: [{ content: MARK }] },
  });
  expect(kept).not.toContain('of-the-client');
  expect(kept).not.toContain(KEYS.anthropic);
});

describe('a call that is stopped', () => {
  // Promise 19.11: a client that closes closes the provider's socket, one cancelled row.
  test('by its client closes the connection to the provider, and is booked once as cut off', async () => {
    const world = await startGateway(() => ({ midway: new Promise(() => {}) }));
    const gone = new AbortController();
    const response = await fetch(`${world.server.url}/v1/messages`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...claudeCode('s1') },
      body: JSON.stringify({ ...BODY, stream: true }),
      signal: gone.signal,
    });
    const reader = response.body!.getReader();
    await reader.read();
    gone.abort();
    await world.provider.received[0]!.cut;
    const booked = await world.server.event('llm.call_completed');
    expect(booked.payload).toMatchObject({ stop_reason: 'cancelled', error_class: 'cancelled', input_tokens: 100 });
    expect(world.server.events.filter(({ type }) => type.startsWith('llm.call_'))).toHaveLength(2);
  });

  test('before anything came costs nothing', async () => {
    const world = await startGateway(() => ({ before: new Promise(() => {}) }));
    const gone = new AbortController();
    const pending = fetch(`${world.server.url}/v1/messages`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(BODY),
      signal: gone.signal,
    }).catch(() => null);
    await world.server.event('llm.call_started');
    await until(() => world.provider.received.length === 1);
    gone.abort();
    await pending;
    expect((await world.server.event('llm.call_failed')).payload).toMatchObject({ error_class: 'cancelled' });
  });

  // Promise 19.11: DELETE of the root aborts its tree, the next call is 400.
  test('by the stop button: every call of the tree ends, its sub-agents end, and the next call is refused', async () => {
    const world = await startGateway(() => ({ midway: new Promise(() => {}) }));
    const stream = { ...BODY, stream: true };
    const answers = await Promise.all([
      world.post('/v1/messages', stream, claudeCode('s1')),
      world.post('/v1/messages', stream, claudeCode('s1', 'a')),
    ]);
    const { sessions } = await world.server.client.listSessions({ include_workers: true });
    const root = sessions.find(({ is_worker }) => !is_worker)!;
    expect((await world.server.call('DELETE', `/sessions/${root.id}`)).status).toBe(200);
    for (const answer of answers) await expect(answer.text()).rejects.toThrow();
    const after = (await world.server.client.listSessions({ include_workers: true })).sessions;
    expect(after.map(({ status }) => status)).toEqual(['ended', 'ended']);
    expect(world.server.events.filter(({ type }) => type === 'llm.call_completed')).toHaveLength(2);
    const next = await world.post('/v1/messages', BODY, claudeCode('s1', 'b'));
    expect([next.status, (await jsonOf(next)).error]).toEqual([
      400,
      // What the client shows says how to go on.
      { type: 'invalid_request_error', message: expect.stringMatching(/"s1" was ended.*x-metis-session/) },
    ]);
    expect(world.provider.received).toHaveLength(2);
  });

  // Promise 19.11: a sub-agent's first call that comes beside the DELETE of its root is refused.
  test("by the stop button, a sub-agent's first call that was on its way to the store", async () => {
    const world = await startGateway();
    expect((await world.post('/v1/messages', BODY, claudeCode('s1'))).status).toBe(200);
    const { sessions } = world.server.engine.store;
    const { id } = (await world.server.client.listSessions({})).sessions[0]!;
    const read = sessions.findWorkerInTree;
    const mutable = sessions as { findWorkerInTree: typeof read };
    mutable.findWorkerInTree = async (...asked) => {
      const found = await read(...asked);
      // The root has been looked at; it ends before the call is known to be there.
      expect((await world.server.call('DELETE', `/sessions/${id}`)).status).toBe(200);
      return found;
    };
    const late = await world.post('/v1/messages', BODY, claudeCode('s1', 'a'));
    mutable.findWorkerInTree = read;
    expect([late.status, (await jsonOf(late)).error.message]).toEqual([400, expect.stringContaining('ended')]);
    expect((await world.server.client.listSessions({ include_workers: true })).sessions).toHaveLength(1);
    expect(world.provider.received).toHaveLength(1);
  });

  // Promise 19.11: DELETE ends the call of a client that takes nothing of its answer.
  test('by the stop button, of a client that takes nothing of its answer', async () => {
    let sent = 0;
    const piece = `data: {"type":"content_block_delta","delta":{"text":"${'x'.repeat(64 * 1024)}"}}\n\n`;
    const raw = Array.from({ length: 2000 }, () => piece);
    const world = await startGateway(() => ({ raw, sends: () => sent++ }));
    const { hostname, port } = new URL(world.server.url);
    const deaf = net.connect(Number(port), hostname).on('error', () => {});
    onTestFinished(() => void deaf.destroy());
    const body = JSON.stringify({ ...BODY, stream: true });
    const head = [`POST /v1/messages HTTP/1.1`, `host: ${hostname}:${port}`, 'content-type: application/json'];
    deaf.write(`${head.join('\r\n')}\r\ncontent-length: ${body.length}\r\n\r\n${body}`);
    await once(deaf, 'readable');
    const { sessions } = await world.server.client.listSessions({});
    // Nothing goes on any more: every buffer on the way is full.
    for (let still = 0, before = 0; still < 20; before = sent) {
      await world.server.client.listSessions({});
      still = sent === before ? still + 1 : 0;
    }
    expect((await world.server.call('DELETE', `/sessions/${sessions[0]!.id}`)).status).toBe(200);
    const ends = world.server.events.filter(({ type }) => type === 'llm.call_completed');
    expect(ends.map(({ payload }) => payload)).toMatchObject([{ error_class: 'cancelled' }]);
  });

  test('by the time for which its client takes nothing of the answer, which is not held against the provider', async () => {
    const clock = manualClock();
    const taken = awaitClient(clock, new Promise(() => {}), new AbortController().signal);
    clock.advance(299_999);
    expect(clock.pending()).toBe(1);
    clock.advance(1);
    await expect(taken).rejects.toMatchObject({
      error_class: 'cancelled',
      message: 'the client took nothing for 300 s',
    });
    const left = new AbortController();
    const stopped = awaitClient(clock, new Promise(() => {}), left.signal);
    left.abort();
    await expect(stopped).rejects.toThrow('the call was cancelled');
    await awaitClient(clock, Promise.resolve(), new AbortController().signal);
    expect(clock.pending()).toBe(0);
  });

  test('by a shutdown is booked before the server is gone', async () => {
    const world = await startGateway(() => ({ midway: new Promise(() => {}) }));
    const response = await world.post('/v1/messages', { ...BODY, stream: true }, claudeCode('s1'));
    const reading = response.text().catch(() => null);
    await world.server.event('llm.call_started');
    await world.server.close();
    await reading;
    expect(world.server.events.at(-1)!.type).toMatch(/^llm\.call_(completed|failed)$/);
  });
});

test('a provider that cannot be reached is 502, and a server without a key for the wire says so', async () => {
  const world = await startGateway(undefined, { wires: ['openai'] });
  const none = await world.post('/v1/messages', BODY);
  expect([none.status, (await jsonOf(none)).error.message]).toEqual([
    400,
    expect.stringMatching(/^anthropic:\S+ cannot be reached: this server has no key for anthropic; .*metis doctor/),
  ]);
  await world.provider.close();
  const gone = await world.post('/v1/chat/completions', { model: 'gpt-5', messages: [] });
  expect(gone.status).toBe(502);
  expect((await jsonOf(gone)).error.message).toContain('could not reach the provider');
});
