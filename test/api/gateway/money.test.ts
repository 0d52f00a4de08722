// A cap that holds over a client's calls: they wait, make do with less, and only then are refused (19 §2.5, §2.6).
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import type { LlmCallCompleted } from '#protocol/event/turn-events.ts';
import { toPusd } from '#protocol/money.ts';
import { priceFileA } from '../../support/prices.ts';
import { until } from '../../support/until.ts';
import { claudeCode, type GatewayWorld, jsonOf, startGateway } from './world.ts';

const OPUS = 'claude-opus-4-7';
const KEY = 'a-token-of-the-gateway-for-ci';
const hash = (token: string) => createHash('sha256').update(token).digest('hex');

function ask(world: GatewayWorld, headers: Readonly<Record<string, string>>, rest: object = {}): Promise<Response> {
  const body = { model: OPUS, max_tokens: 6000, messages: [{ role: 'user', content: 'hi' }], ...rest };
  return world.post('/v1/messages', body, headers);
}

async function spent(world: GatewayWorld): Promise<bigint> {
  const { totals } = await world.server.client.getCost({ from: 'all' });
  return toPusd(totals.cost_usd);
}

// Promise 19.8: eight calls with a bound of 64 000 under $0.50 all succeed and never pass it.
test('eight calls at once whose bounds are far above a limit all succeed, lowered or waiting, and it is never passed', async () => {
  // Fixture A: an answer of 6000 tokens may cost $0.45, and each costs $0.0095.
  const world = await startGateway(() => ({ usage: { input: 100, output: 100 } }));
  const limited = { 'x-metis-budget-usd': '0.5' };
  const headers = (i: number) => ({ ...claudeCode('s1', i === 0 ? undefined : `a${i}`), ...limited });
  const answers = await Promise.all(
    Array.from({ length: 8 }, (_, i) => ask(world, headers(i), { max_tokens: 64_000 })),
  );
  expect(answers.map(({ status }) => status)).toEqual(Array(8).fill(200));
  expect(await spent(world)).toBeLessThanOrEqual(toPusd('0.5'));
  const bounds = world.provider.received.map(({ body }) => body.max_tokens as number);
  expect(Math.max(...bounds)).toBeLessThan(64_000);
  expect(Math.min(...bounds)).toBeGreaterThanOrEqual(4096);
  const [root] = (await world.server.client.listSessions({ door: 'gateway' })).sessions;
  expect(root!.budget).toMatchObject({ max_cost_usd: '0.5', reserved_usd: '0' });
});

// Promise 19.8: eight calls that cost all they may: without the reservation they would pass the limit.
test('eight calls at once that cost all they may: one is let through, and the limit is not passed', async () => {
  let go = () => {};
  const held = new Promise<void>((resolve) => {
    go = resolve;
  });
  const world = await startGateway(({ body }) => ({
    before: held,
    usage: { input: 10, output: body.max_tokens as number },
  }));
  const headers = (i: number) => ({ ...claudeCode('s1', i === 0 ? undefined : `a${i}`), 'x-metis-budget-usd': '0.5' });
  const answers = Array.from({ length: 8 }, (_, i) => ask(world, headers(i), { max_tokens: 64_000 }));
  // Each has looked at what is left before the first costs anything.
  await until(() => world.server.events.filter(({ type }) => type === 'route.decided').length === 8);
  go();
  const statuses = (await Promise.all(answers)).map(({ status }) => status);
  expect(statuses.toSorted()).toEqual([200, ...Array(7).fill(402)]);
  expect(world.provider.received).toHaveLength(1);
  expect(await spent(world)).toBeLessThanOrEqual(toPusd('0.5'));
});

// Promise 19.8: an estimate never passes the bound of its call.
test('what is estimated of an answer is never more than its bound allows, so that no cap is passed', async () => {
  // Ten times what the bound allows, broken off before its counts.
  const said = { type: 'content_block_delta', delta: { type: 'text_delta', text: 'x'.repeat(160_000) } };
  const raw = `data: ${JSON.stringify(said)}\n\n`;
  const world = await startGateway(() => ({ raw }));
  const answer = await ask(
    world,
    { ...claudeCode('s1'), 'x-metis-budget-usd': '0.4' },
    { max_tokens: 4096, stream: true },
  );
  await answer.text();
  const { payload } = await world.server.event('llm.call_completed');
  expect(payload).toMatchObject({ output_tokens: 4096, usage_estimated: true });
  expect(await spent(world)).toBeLessThanOrEqual(toPusd('0.4'));
});

test('a call that fits only behind another waits for it, in the order in which they came', async () => {
  const gates: (() => void)[] = [];
  const world = await startGateway(() => ({ before: new Promise<void>((go) => gates.push(go)) }));
  const limited = { ...claudeCode('s1'), 'x-metis-budget-usd': '0.5' };
  const first = ask(world, limited);
  await world.server.event('llm.call_started');
  const others = [
    ask(world, { ...limited, ...claudeCode('s1', 'a') }),
    ask(world, { ...limited, ...claudeCode('s1', 'b') }),
  ];
  await world.server.event('route.decided', (event) => event.session_id !== world.server.events[0]!.session_id);
  expect(world.provider.received).toHaveLength(1);
  for (let i = 0; i < 3; i++) {
    await until(() => gates.length > i);
    gates[i]!();
    await world.server.until(() =>
      world.server.events.filter(({ type }) => type === 'llm.call_completed').length > i ? true : undefined,
    );
  }
  for (const answer of [first, ...others]) expect((await answer).status).toBe(200);
});

// Promise 22.13: a raised limit lets a waiting call pass at once, while others still hold their money.
test('a call that waits for money passes as soon as the limit is raised', async () => {
  const gates: (() => void)[] = [];
  const world = await startGateway(() => ({ before: new Promise<void>((go) => gates.push(go)) }));
  const limited = { ...claudeCode('s1'), 'x-metis-budget-usd': '0.5' };
  const answers = [ask(world, limited)];
  const { session_id } = await world.server.event('llm.call_started');
  answers.push(ask(world, { ...limited, ...claudeCode('s1', 'a') }));
  await until(() => world.server.engine.budget.waiters.size === 1);
  await world.server.client.updateSession(session_id, { max_cost_usd: '2' });
  await until(() => gates.length === 2);
  for (const open of gates) open();
  for (const answer of answers) expect((await answer).status).toBe(200);
});

// Promise 22.13: a limit that is lowered while a call is prepared holds for that call.
test('a limit that is lowered while the tokens of a call are counted refuses it', async () => {
  const world = await startGateway();
  const limited = { ...claudeCode('s1'), 'x-metis-budget-usd': '0.5' };
  expect((await ask(world, limited)).status).toBe(200);
  const [root] = (await world.server.client.listSessions({ door: 'gateway' })).sessions;
  let finish = () => {};
  const counting = new Promise<void>((begun) => {
    const count = async () => {
      begun();
      await new Promise<void>((resolve) => {
        finish = resolve;
      });
      return 1000;
    };
    Object.assign(world.server.engine, { tokenizer: { count } });
  });
  const body = { model: 'gpt-5-mini', input: 'x'.repeat(3000) };
  const answer = world.post('/v1/responses', body, limited);
  await counting;
  await world.server.client.updateSession(root!.id, { max_cost_usd: '0.0001' });
  finish();
  expect((await answer).status).toBe(400);
  expect(world.provider.received).toHaveLength(1);
});

// Promise 22.13: a call under a limit keeps the prices that it was reserved with.
test('prices that are taken while calls are open pass no limit: each is stamped with what it was reserved with', async () => {
  let go = () => {};
  const held = new Promise<void>((resolve) => {
    go = resolve;
  });
  const world = await startGateway(() => ({ before: held, usage: { input: 100, output: 4000 } }));
  const { server, folder } = world;
  const limited = { ...claudeCode('s1'), 'x-metis-budget-usd': '0.5' };
  const session = await server.session(folder, 'opus', { max_cost_usd: '0.9', on_reached: 'stop' });
  const calls = [ask(world, limited), ask(world, claudeCode('s2'))];
  const turn = server.turn(session, 'hi');
  await until(() => world.provider.received.length === 3);
  const dear = JSON.parse(priceFileA());
  dear.pricing_version = 'dear';
  for (const entry of Object.values<Record<string, string>>(dear.models)) entry.output_per_mtok_usd = '900';
  fs.writeFileSync(path.join(folder, 'prices-0.json'), JSON.stringify(dear));
  await server.reload();
  go();
  await Promise.all([...calls, turn]);
  const rows = server.events.flatMap(({ type, session_id, payload }) =>
    type === 'llm.call_completed' ? [{ session_id, ...(payload as LlmCallCompleted) }] : [],
  );
  const versions = rows.map(({ pricing_version }) => pricing_version);
  expect(versions.toSorted()).toEqual(['A', 'A', 'dear']);
  for (const { pricing_version, cost_usd } of rows)
    if (pricing_version === 'A') expect(toPusd(cost_usd)).toBeLessThanOrEqual(toPusd('0.5'));
  expect((await server.client.getSession(session)).budget).toMatchObject({ reserved_usd: '0' });
  expect((await ask(world, limited)).status).toBe(402);
});

// Promise 19.9: a spent limit is 402 billing_error, not to be retried, 400 on responses; nothing sent; a raised one passes.
test('a spent limit is said in one sentence after one request: 402, nothing sent; a raised one lets the next call pass', async () => {
  const world = await startGateway(() => ({ usage: { input: 100, output: 5000 } }));
  const headers = { ...claudeCode('s1'), 'x-metis-budget-usd': '0.4' };
  expect((await ask(world, headers, { max_tokens: 5000 })).status).toBe(200);
  const refused = await ask(world, headers);
  expect(refused.status).toBe(402);
  expect(refused.headers.get('x-should-retry')).toBe('false');
  const { type, error } = await jsonOf(refused);
  const [root] = (await world.server.client.listSessions({ door: 'gateway' })).sessions;
  expect([type, error.type]).toEqual(['error', 'billing_error']);
  expect(error.message).toContain('The Metis session limit of 0.4 USD is reached: 0.3765 USD spent');
  expect(error.message).toContain(`(session ${root!.id})`);
  expect(world.provider.received).toHaveLength(1);
  expect((await world.server.event('budget.exceeded')).payload).toMatchObject({ scope: 'session', limit_usd: '0.4' });

  const gpt = await world.post('/v1/responses', { model: 'gpt-5', input: 'hi' }, headers);
  expect([gpt.status, (await jsonOf(gpt)).error.code]).toEqual([400, 'budget_exceeded']);
  const { max_cost_usd } = JSON.parse(/\{"max_cost_usd".*?\}/.exec(error.message)![0]);
  await world.server.client.updateSession(root!.id, { max_cost_usd });
  expect((await ask(world, headers)).status).toBe(200);
});

test('a bound is lowered where it stands, and set where the client gave none; thinking keeps its budget', async () => {
  const world = await startGateway(() => ({ usage: { input: 1, output: 1 } }));
  const limited = (session: string) => ({ 'x-metis-session': session, 'x-metis-budget-usd': '0.6' });
  const body = `{"model":"${OPUS}","messages":[],"max_tokens" : 9000 ,"thinking":{"type":"enabled","budget_tokens":5000}}`;
  await world.post('/v1/messages', body, limited('a'));
  const sent = world.provider.received[0]!.bytes.toString();
  const bound = /"max_tokens" : (\d+),/.exec(sent)?.[1];
  expect(Number(bound)).toBeGreaterThan(5000);
  expect(Number(bound)).toBeLessThan(9000);
  expect(sent).toBe(body.replace('9000 ', String(bound)));

  const chat = '{"model":"gpt-5","messages":[]}';
  await world.post('/v1/chat/completions', chat, { 'x-metis-session': 'b', 'x-metis-budget-usd': '0.05' });
  expect(world.provider.received[1]!.bytes.toString()).toMatch(
    /^\{"max_completion_tokens":4\d{3},"model":"gpt-5","messages":\[\]\}$/,
  );
  await world.post('/v1/responses', '{"model":"gpt-5","input":"x"}', {
    'x-metis-session': 'c',
    'x-metis-budget-usd': '0.05',
  });
  expect(world.provider.received[2]!.body.max_output_tokens).toBeGreaterThanOrEqual(4096);
  const tight = await world.post('/v1/messages', body, { 'x-metis-session': 'd', 'x-metis-budget-usd': '0.3' });
  expect(tight.status).toBe(402);
});

// Promise 19.28: advisors and fallbacks are reserved at their own price.
test('an advisor and a fallback are reserved at their own price beside the answer; one without a price is refused', async () => {
  const world = await startGateway();
  const haiku = { model: 'claude-haiku-4-5', max_tokens: 1000 };
  const advisor = (rest: object) => ({ tools: [{ type: 'advisor_20260301', name: 'advisor', ...rest }] });
  const status = async (session: string, limit: string, rest: object) =>
    (await ask(world, { 'x-metis-session': session, 'x-metis-budget-usd': limit }, { ...haiku, ...rest })).status;
  // Fixture A: an advice of Opus costs $3 for its window and $0.75 for 10,000 tokens; each answer of Haiku $0.205.
  const twice = advisor({ model: OPUS, max_uses: 2, max_tokens: 10_000 });
  expect(await status('a', '8.11', twice)).toBe(402);
  expect(await status('b', '8.12', twice)).toBe(200);
  // Opus as a fallback may write the same answer: $0.075 and its prompt.
  const fallback = { fallbacks: [{ model: OPUS }] };
  expect(await status('c', '0.08', fallback)).toBe(402);
  expect(await status('d', '0.2', fallback)).toBe(200);

  const unknown = await ask(
    world,
    { 'x-metis-session': 'e', 'x-metis-budget-usd': '50' },
    advisor({ model: 'claude-next', max_uses: 1 }),
  );
  expect([unknown.status, (await jsonOf(unknown)).error.message]).toEqual([
    402,
    expect.stringMatching(/^tools: .*limit of 50 USD: the model "claude-next" has no price here/),
  ]);
  expect(world.provider.received).toHaveLength(2);
  const free = await ask(world, { 'x-metis-session': 'f' }, advisor({ model: 'claude-next' }));
  expect(free.status).toBe(200);
});

// Promise 19.9: daily_usd stops its key alone.
test("a key's cap of a day stops that key alone, and its calls are summed by its name", async () => {
  const config = {
    gateway: {
      keys: {
        ci: { token_sha256: hash(KEY), daily_usd: '0.4' },
        me: { token_sha256: hash('of-mine'), daily_usd: null },
      },
    },
  };
  const world = await startGateway(() => ({ usage: { input: 100, output: 5000 } }), { config });
  const ci = (session: string) => ({ ...claudeCode(session), 'x-api-key': KEY });
  expect((await ask(world, ci('s1'), { max_tokens: 5000 })).status).toBe(200);
  const stopped = await ask(world, ci('s2'));
  expect(stopped.status).toBe(402);
  expect((await jsonOf(stopped)).error.message).toContain("key's daily limit of 0.4 USD");
  expect((await world.server.event('budget.exceeded')).payload.scope).toBe('key');
  const mine = { ...claudeCode('s1'), authorization: 'Bearer of-mine' };
  expect((await ask(world, mine)).status).toBe(200);
  const { data } = await world.server.client.getCost({ group_by: 'caller', from: 'all' });
  expect((data as { caller?: string | null; call_count: number }[]).map((row) => [row.caller, row.call_count])).toEqual(
    [
      ['ci', 1],
      ['me', 1],
    ],
  );
  const sessions = (await world.server.client.listSessions({ door: 'gateway' })).sessions;
  expect(sessions.map((one) => [one.caller, one.client_ref]).sort()).toEqual([
    ['ci', 's1'],
    ['ci', 's2'],
    ['me', 's1'],
  ]);
});

// Promise 19.26: the warning of a gateway call does not count that call as running.
test('a warning follows the call that used up the share of its limit, and does not count that call as running', async () => {
  const world = await startGateway(() => ({ usage: { input: 0, output: 4300 } }));
  // Fixture A: the answer costs $0.3225, 80 % of the limit is $0.32.
  const headers = { ...claudeCode('s1', 'a'), 'x-metis-budget-usd': '0.4' };
  expect((await ask(world, headers, { max_tokens: 4300 })).status).toBe(200);
  const warnings = () => world.server.events.filter(({ type }) => type === 'budget.warning');
  await until(() => warnings().length === 2);
  const amounts = { scope: 'session', limit_usd: '0.4', spent_usd: '0.3225', reserved_usd: '0', needed_usd: '0' };
  const completed = await world.server.event('llm.call_completed');
  const root = completed.payload.root_session_id;
  expect(warnings().map(({ session_id, parent_event_id, payload }) => [session_id, parent_event_id, payload])).toEqual([
    [completed.session_id, completed.id, expect.objectContaining(amounts)],
    [root, completed.id, expect.objectContaining(amounts)],
  ]);
  expect(root).not.toBe(completed.session_id);
});

// Promise 14.14: A client's conversation goes on under a cap that its bytes alone would pass, wherever its breakpoints move.
test('a long conversation goes on under a cap that its bytes alone would pass, wherever its breakpoints move; an edit does not', async () => {
  // A token for four bytes, and a client that marks its newest message.
  const world = await startGateway(({ bytes }) => ({ usage: { written: Math.ceil(bytes.length / 4), output: 1 } }));
  const headers = { ...claudeCode('s1'), 'x-metis-budget-usd': '2.1' };
  const system = [{ type: 'text', text: 'You are of help. '.repeat(600) }];
  const said = (text: string, marked: boolean) => ({
    role: 'user',
    content: [{ type: 'text', text, ...(marked ? { cache_control: { type: 'ephemeral' } } : {}) }],
  });
  const talk = (texts: readonly string[], to: Readonly<Record<string, string>> = headers) =>
    ask(world, to, { max_tokens: 10, system, messages: texts.map((text, i) => said(text, i === texts.length - 1)) });
  const texts = Array.from({ length: 6 }, (_, i) => `${i} and so on `.repeat(900));
  for (let count = 1; count <= texts.length; count++) expect((await talk(texts.slice(0, count))).status).toBe(200);
  // At $18.75 per million the bytes of all are $1.6; what is left does not hold them.
  const edited = await talk(['Changed', ...texts.slice(1)]);
  expect(edited.status).toBe(402);
  expect((await talk([...texts, 'And now?'])).status).toBe(200);
  expect(await spent(world)).toBeLessThanOrEqual(toPusd('2.1'));

  const known = { ...claudeCode('s2'), 'x-metis-budget-usd': '0.19' };
  // The system text's 10 kB alone would take $0.19; the first call of the first session tells what they are.
  expect((await talk(['Hi'], known)).status).toBe(200);
});

test('a first call that is refused names the limit that lets it leave', async () => {
  const world = await startGateway(() => ({ usage: { input: 5000, output: 10 } }));
  const text = '7 3 1 '.repeat(3000);
  const body = { max_tokens: 10, messages: [{ role: 'user', content: text }] };
  const refused = await ask(world, { ...claudeCode('s1'), 'x-metis-budget-usd': '0.1' }, body);
  expect(refused.status).toBe(402);
  const { error } = await jsonOf(refused);
  const { max_cost_usd } = JSON.parse(/\{"max_cost_usd".*?\}/.exec(error.message)![0]);
  expect(Number(max_cost_usd)).toBeGreaterThan((15 * text.length) / 1e6);
  const [root] = (await world.server.client.listSessions({ door: 'gateway' })).sessions;
  await world.server.client.updateSession(root!.id, { max_cost_usd });
  expect((await ask(world, claudeCode('s1'), body)).status).toBe(200);
});

test("a client's call teaches what its prompt is counted as; one that breaks off, or was answered by several models, teaches nothing", async () => {
  const round = (model: string) => ({ type: 'message', model, input_tokens: 40, output_tokens: 1 });
  const whole = (...models: readonly string[]) => {
    const usage = { input_tokens: 40, output_tokens: 1, iterations: models.map(round) };
    const message = { type: 'message', role: 'assistant', model: OPUS, content: [{ type: 'text', text: 'ok' }] };
    return { raw: JSON.stringify({ ...message, stop_reason: 'end_turn', usage }) };
  };
  const said = [{ usage: { input: 40, output: 1 }, breaks: true }, whole(OPUS, 'claude-haiku-4-5'), whole(OPUS)];
  const world = await startGateway(() => said.shift()!);
  const { sessions } = world.server.engine.prompts;
  const limited = { ...claudeCode('s1'), 'x-metis-budget-usd': '2' };
  for (const known of [0, 0, 1]) {
    const left = said.length;
    const answer = await ask(world, limited, { stream: left === 3 });
    await answer.text().catch(() => null);
    await world.server.until(() =>
      world.server.events.filter(({ type }) => type === 'llm.call_completed').length > 3 - left ? true : undefined,
    );
    await until(() => world.server.engine.budget.reserved.size === 0);
    expect(sessions.size).toBe(known);
  }
});
