// What each part of a reservation is good for: a call that it should refuse, beside one that it should let pass (19 §2.5).
import { createHash } from 'node:crypto';
import Database from 'better-sqlite3';
import { expect, test } from 'vitest';
import { until } from '../../support/until.ts';
import type { Said } from './provider.ts';
import { claudeCode, type GatewayWorld, jsonOf, startGateway } from './world.ts';

const OPUS = 'claude-opus-4-7';
const hash = (token: string) => createHash('sha256').update(token).digest('hex');

function limited(session: string, usd: string) {
  return { 'x-metis-session': session, 'x-metis-budget-usd': usd };
}

function ask(world: GatewayWorld, headers: Readonly<Record<string, string>>, rest: object = {}): Promise<Response> {
  const body = { model: OPUS, max_tokens: 6000, messages: [{ role: 'user', content: 'hi' }], ...rest };
  return world.post('/v1/messages', body, headers);
}

// Promise 19.8: a header lowers the limit of a new session and never raises it.
test('a client can lower the limit of a new session by its header, and never raise it', async () => {
  const world = await startGateway(() => ({}), { config: { budgets: { session_default_usd: '0.5' } } });
  for (const [session, asked] of [
    ['lower', '0.2'],
    ['higher', '5'],
    ['same', '0.5'],
  ] as const)
    await (await ask(world, limited(session, asked), { max_tokens: 10 })).text();
  await (await ask(world, { 'x-metis-session': 'none' }, { max_tokens: 10 })).text();
  const { sessions } = await world.server.client.listSessions({ door: 'gateway' });
  expect(sessions.map(({ client_ref, budget }) => [client_ref, budget!.max_cost_usd]).sort()).toEqual([
    ['higher', '0.5'],
    ['lower', '0.2'],
    ['none', '0.5'],
    ['same', '0.5'],
  ]);
});

// Promise 19.8: each of several answers is reserved.
test('several answers of one call are reserved each', async () => {
  const world = await startGateway();
  // Fixture A: an answer of 5,000 tokens costs $0.05 on GPT-5, and at least 4,096 tokens are asked for.
  const chat = (session: string, n: number) =>
    world.post('/v1/chat/completions', { model: 'gpt-5', max_tokens: 5000, n, messages: [] }, limited(session, '0.12'));
  expect((await chat('two', 2)).status).toBe(200);
  expect((await chat('three', 3)).status).toBe(402);
});

// Promise 19.8: a prompt is reserved in the class of its cache write.
test('a prompt is reserved in the class that it can be written to a cache in, also where an escape hides it', async () => {
  const world = await startGateway();
  const bodies = {
    plain: { text: 'cache-control', more: '"ttl":"5m"' },
    written: { text: 'cache_control', more: '"ttl":"5m"' },
    hour: { text: 'cache_control', more: '"ttl":"1h"' },
    hidden: { text: '\\u0063ache_control', more: '"ttl":"5m"' },
    harmless: { text: '\\u00e9ache-control', more: '"ttl":"5m"' },
  };
  const needed: Record<string, number> = {};
  for (const [name, { text, more }] of Object.entries(bodies)) {
    const filler = 'x'.repeat(60_000 - text.length);
    const block = `{"type":"text","text":"${filler}","${text}":{"type":"ephemeral",${more}}}`;
    const body = `{"model":"${OPUS}","max_tokens":1,"messages":[{"role":"user","content":[${block}]}]}`;
    const refused = await world.post('/v1/messages', body, limited(name, '0.01'));
    expect(refused.status).toBe(402);
    const { message } = (await jsonOf(refused)).error;
    needed[name] = Number(/may cost up to ([\d.]+) USD/.exec(message)![1]) - 0.000075;
  }
  // Fixture A, a million: $15 for input, $18.75 for a cache write, $30 for one that lasts an hour.
  expect(needed.written! / needed.plain!).toBeCloseTo(1.25, 6);
  expect(needed.hour! / needed.plain!).toBeCloseTo(2, 6);
  expect(needed.hidden! / needed.plain!).toBeCloseTo(2, 6);
  expect(needed.harmless! / needed.plain!).toBeCloseTo(1, 6);
});

// Promise 19.8: the floor of a lowered bound is the budget of thinking.
test('a bound is not lowered to the budget of thinking or below it, at which the provider would refuse', async () => {
  const world = await startGateway(() => ({ usage: { input: 1, output: 1 } }));
  const thinking = { type: 'enabled', budget_tokens: 7000 };
  // Fixture A: 7,001 tokens cost $0.525, 4,096 cost $0.307.
  expect((await ask(world, limited('a', '0.45'), { max_tokens: 9000 })).status).toBe(200);
  expect((await ask(world, limited('b', '0.45'), { max_tokens: 9000, thinking })).status).toBe(402);
  expect((await ask(world, limited('c', '0.6'), { max_tokens: 9000, thinking })).status).toBe(200);
  expect(world.provider.received.at(-1)!.body.max_tokens).toBeGreaterThan(7000);
});

// Promise 19.8: an opening that cannot be stored holds no money.
test('an opening that cannot be stored gives its reservation back', async () => {
  const config = { budgets: { daily_usd: '0.5' }, gateway: { wait_seconds: 1 } };
  const world = await startGateway(() => ({ usage: { input: 1, output: 1 } }), { config });
  const db = new Database(world.server.engine.config.storage.db_path);
  db.exec("CREATE TRIGGER refuse BEFORE INSERT ON sessions BEGIN SELECT RAISE(ABORT, 'no'); END");
  expect((await ask(world, claudeCode('s1'))).status).toBeGreaterThanOrEqual(500);
  db.exec('DROP TRIGGER refuse');
  db.close();
  // Both reserve $0.45 of the day's $0.5.
  expect((await ask(world, claudeCode('s1'))).status).toBe(200);
  expect(world.provider.received).toHaveLength(1);
});

// Promise 19.8: calls wait in the order in which they came.
test('a small call waits behind a large one that came before it, though it would fit', async () => {
  const gates: (() => void)[] = [];
  const world = await startGateway(() => ({ before: new Promise<void>((go) => gates.push(go)) }));
  const call = (name: string, max_tokens: number) =>
    ask(world, { ...claudeCode('s1', name), 'x-metis-budget-usd': '0.5' }, { max_tokens, metadata: { user_id: name } });
  const count = (type: string) => world.server.events.filter((event) => event.type === type).length;
  const answers = [call('first', 6000)];
  await until(() => count('llm.call_started') === 1);
  answers.push(call('large', 6000));
  await until(() => count('route.decided') === 2);
  // $0.0075 and its prompt, of the $0.05 that are left.
  answers.push(call('small', 100));
  await until(() => count('route.decided') === 3);
  expect(count('llm.call_started')).toBe(1);
  for (let i = 0; i < 3; i++) {
    await until(() => gates.length > i);
    gates[i]!();
  }
  for (const answer of answers) expect((await answer).status).toBe(200);
  const order = world.provider.received.map(({ body }) => (body.metadata as { user_id: string }).user_id);
  expect(order).toEqual(['first', 'large', 'small']);
});

// Promise 19.9: daily_usd counts its own key alone.
test("a key's cap counts the calls of that key alone", async () => {
  const key = (token: string) => ({ token_sha256: hash(token), daily_usd: '0.4' });
  const config = { gateway: { keys: { ci: key('a-token-of-ci'), me: key('a-token-of-mine') } } };
  const world = await startGateway(() => ({ usage: { input: 100, output: 5000 } }), { config });
  const as = (token: string) => ask(world, { ...claudeCode('s1'), 'x-api-key': token }, { max_tokens: 5000 });
  expect((await as('a-token-of-ci')).status).toBe(200);
  expect((await as('a-token-of-mine')).status).toBe(200);
  expect((await as('a-token-of-ci')).status).toBe(402);
  expect((await as('a-token-of-mine')).status).toBe(402);
});

// Promise 19.37: models that a request names or lets its provider choose are reserved or refused.
test('models of `models` and `preset` are reserved too, and an advisor without a count is refused', async () => {
  const world = await startGateway();
  const chat = (session: string, limit: string, rest: object) =>
    world.post(
      '/v1/chat/completions',
      { model: 'gpt-5-mini', max_tokens: 5000, messages: [], ...rest },
      limited(session, limit),
    );
  // Fixture A: 5,000 tokens cost $0.01 on GPT-5 mini and $0.05 on GPT-5.
  expect((await chat('alone', '0.02', {})).status).toBe(200);
  expect((await chat('beside', '0.05', { models: ['gpt-5'] })).status).toBe(402);
  expect((await chat('enough', '0.1', { models: ['gpt-5'] })).status).toBe(200);
  const refused = async (answer: Promise<Response>) => (await jsonOf(await answer)).error.message;
  expect(await refused(chat('unknown', '5', { models: ['x/y'] }))).toMatch(/^models: .*"x\/y" has no price here/);
  expect(await refused(chat('preset', '5', { preset: 'mine' }))).toMatch(/^preset: .*the provider chooses the model/);
  const tools = [{ type: 'openrouter:subagent' }];
  expect(await refused(chat('subagent', '5', { tools }))).toMatch(/^tools: .*the provider chooses the model/);
  const advisor = [{ type: 'advisor_20260301', name: 'advisor', model: OPUS }];
  expect(await refused(ask(world, limited('advisor', '50'), { tools: advisor }))).toMatch(/^tools: .*set max_uses/);
  expect(world.provider.received).toHaveLength(2);
});

// Promise 19.37: a summary that the provider writes first is reserved.
test('a summary that the provider writes first is reserved, once the prompt may be as long as that', async () => {
  const world = await startGateway();
  const text = 'x'.repeat(20_000);
  const compacted = (value: number) => ({
    messages: [{ role: 'user', content: text }],
    context_management: { edits: [{ type: 'compact_20260112', trigger: { type: 'input_tokens', value } }] },
  });
  // Fixture A: the prompt costs at most $0.33, the answer $0.45; a summary of 8,192 tokens $0.61, and two windows $6.
  expect((await ask(world, limited('a', '0.9'), compacted(100_000))).status).toBe(200);
  expect((await ask(world, limited('b', '0.9'), compacted(10_000))).status).toBe(402);
  expect((await ask(world, limited('c', '6.9'), compacted(10_000))).status).toBe(402);
  expect((await ask(world, limited('d', '7.1'), compacted(10_000))).status).toBe(200);
});

test('calls that are cut off before they are counted are booked under a limit by what their prompt can be at most', async () => {
  let answer: Said = { usage: null, breaks: true };
  const world = await startGateway(() => answer);
  const image = { type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } };
  // An honest tokenizer counts one token for two of these bytes, and thousands for the image.
  const content = [{ type: 'text', text: '1 '.repeat(5000) }, image];
  const messages = [{ role: 'user', content }];
  const chat = (headers: Readonly<Record<string, string>>) =>
    world.post('/v1/chat/completions', { model: 'gpt-5', max_tokens: 10, stream: true, messages }, headers);
  await (await chat(limited('cut', '5'))).text().catch(() => '');
  const chunk = { id: 'chatcmpl_1', model: 'gpt-5', choices: [{ index: 0, delta: { role: 'assistant' } }] };
  answer = { raw: [`data: ${JSON.stringify(chunk)}\n\n`, ': thinking\n\n', ''], breaks: true };
  await (await chat(limited('wordless', '5'))).text().catch(() => '');
  await (await chat({ 'x-metis-session': 'free' })).text().catch(() => '');
  const failed = await world.server.event('llm.call_failed');
  const booked = world.server.events.flatMap((event) => (event.type === 'llm.call_completed' ? [event.payload] : []));
  expect(booked.map(({ usage_estimated }) => usage_estimated)).toEqual([true, true]);
  // The registry names no size of its images: 16,384 tokens each.
  for (const { input_tokens } of booked) expect(input_tokens).toBeGreaterThan(10_000 + 16_384);
  expect(failed.payload).toMatchObject({ error_class: 'network' });
});
