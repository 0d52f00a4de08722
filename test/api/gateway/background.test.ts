// Answers that a provider makes in the background: relayed, and booked when fetched; a limit holds their money (19 §2.2).
import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { manualClock } from '../../support/manual-clock.ts';
import { until } from '../../support/until.ts';
import type { Received, Said } from './provider.ts';
import { type GatewayWorld, jsonOf, startGateway } from './world.ts';

const ASKED = { model: 'gpt-5', input: 'hi', background: true };
const ID = 'resp_1';
const DAY_MS = 24 * 60 * 60 * 1000;
const hash = (token: string) => createHash('sha256').update(token).digest('hex');

function response(status: string, rest: object = {}): string {
  return JSON.stringify({ id: ID, object: 'response', status, background: true, model: 'gpt-5', output: [], ...rest });
}
const USAGE = { input_tokens: 1000, output_tokens: 200, total_tokens: 1200 };
const DONE = response('completed', {
  output: [{ type: 'message', role: 'assistant', content: [{ type: 'output_text', text: 'hello' }] }],
  usage: USAGE,
});

/** Says what a fetch finds from now on. */
function provider() {
  const state = { fetched: response('in_progress') };
  const answer = ({ method, path, body }: Received): Said => {
    if (method === 'DELETE') return { raw: `{"id":"${ID}","object":"response.deleted","deleted":true}` };
    if (path.endsWith('/cancel')) return { raw: response('cancelled') };
    if (method === 'GET') return { raw: state.fetched };
    if (body.stream !== true) return { raw: response('queued') };
    const event = (type: string) => `data: ${JSON.stringify({ type, response: JSON.parse(response('queued')) })}\n\n`;
    return { raw: [event('response.created'), event('response.queued')], breaks: false };
  };
  return { state, answer };
}

const ends = (world: GatewayWorld) =>
  world.server.events.filter(({ type }) => type === 'llm.call_completed' || type === 'llm.call_failed');
const fetchIt = (world: GatewayWorld, init: RequestInit = {}, action = '') =>
  fetch(`${world.server.url}/v1/responses/${ID}${action}`, init);

describe('a background answer', () => {
  // Promise 19.27: a background answer under a limit holds its money until its end is fetched.
  test('holds its reservation under a limit until its end is fetched', async () => {
    const { state, answer } = provider();
    const world = await startGateway(answer);
    const limited = { 'x-metis-session': 'a', 'x-metis-budget-usd': '1.5' };
    const bounded = { ...ASKED, max_output_tokens: 5000 };
    expect((await world.post('/v1/responses', bounded, limited)).status).toBe(200);
    const readBudget = async () => (await world.server.client.listSessions({ door: 'gateway' })).sessions[0]!.budget!;
    expect(Number((await readBudget()).reserved_usd)).toBeGreaterThan(0.05);
    await (await fetchIt(world)).text();
    expect(Number((await readBudget()).reserved_usd)).toBeGreaterThan(0.05);
    state.fetched = DONE;
    await (await fetchIt(world)).text();
    expect(await readBudget()).toMatchObject({ reserved_usd: '0', spent_usd: '0.0045' });
  });

  // Promise 19.27: under a limit an answer that is never fetched is booked at its bounds.
  test('is booked at its bounds under a limit when it is deleted before its end, and needs to be stored', async () => {
    const world = await startGateway(provider().answer);
    const limited = { 'x-metis-session': 'a', 'x-metis-budget-usd': '1.5' };
    await world.post('/v1/responses', { ...ASKED, max_output_tokens: 5000 }, limited);
    await (await fetchIt(world, { method: 'DELETE' })).text();
    const booked = await world.server.event('llm.call_completed');
    expect(booked.payload).toMatchObject({ usage_estimated: true, output_tokens: 5000, stop_reason: 'cancelled' });
    const [session] = (await world.server.client.listSessions({ door: 'gateway' })).sessions;
    expect(session!.budget!.reserved_usd).toBe('0');
    const refused = await world.post('/v1/responses', { ...ASKED, store: false }, limited);
    const { code, message } = (await jsonOf(refused)).error;
    expect([refused.status, code]).toEqual([400, 'unbounded_request']);
    expect(message).toMatch(/^store: not possible under the session limit .* leave store out/);
    expect(world.provider.received).toHaveLength(2);
  });

  // Promise 19.27: a background answer is booked once, when its end is fetched.
  test.each([false, true])('is booked once, when a client fetches its end (stream: %s)', async (stream) => {
    const { state, answer } = provider();
    const world = await startGateway(answer);
    const asked = await world.post('/v1/responses', { ...ASKED, stream });
    expect(asked.status).toBe(200);
    expect(await asked.text()).toBe(world.provider.sent[0]);
    const [session] = (await world.server.client.listSessions({ door: 'gateway' })).sessions;
    expect(session!.status).toBe('running');

    const early = await fetchIt(world);
    expect([early.status, await early.text()]).toEqual([200, state.fetched]);
    expect(ends(world)).toEqual([]);

    state.fetched = DONE;
    const fetched = await fetchIt(world, {}, '?include=x');
    expect(await fetched.text()).toBe(DONE);
    expect(fetched.headers.get('x-metis-session')).toBe(session!.id);
    expect(world.provider.received.at(-1)).toMatchObject({ method: 'GET', path: `/v1/responses/${ID}?include=x` });
    expect(world.provider.received.at(-1)!.headers.authorization).toMatch(/^Bearer /);
    const [booked] = ends(world);
    // Fixture A: 1,000 × $2.5 and 200 × $10 a million.
    expect(booked).toMatchObject({
      type: 'llm.call_completed',
      session_id: session!.id,
      payload: {
        input_tokens: 1000,
        output_tokens: 200,
        usage_estimated: false,
        cost_usd: '0.0045',
        stop_reason: 'end_turn',
      },
    });
    expect(await (await fetchIt(world)).text()).toBe(DONE);
    expect(ends(world)).toHaveLength(1);
    expect((await world.server.client.getSession(session!.id)).status).not.toBe('running');
  });

  // Promise 19.27: a background answer that is cancelled or deleted costs nothing.
  test.each([
    ['cancelled', { method: 'POST' }, '/cancel', 'the provider answered 200 (cancelled)'],
    ['deleted', { method: 'DELETE' }, '', 'its answer was deleted before its end'],
  ])('is closed without cost when it is %s before its end', async (_how, init, action, why) => {
    const world = await startGateway(provider().answer);
    await world.post('/v1/responses', ASKED);
    const reply = await fetchIt(world, init, action);
    expect([reply.status, await reply.text()]).toEqual([200, world.provider.sent[1]]);
    expect(world.provider.received[1]).toMatchObject({ method: init.method, path: `/v1/responses/${ID}${action}` });
    expect(ends(world)).toMatchObject([
      { type: 'llm.call_failed', payload: { error_class: 'cancelled', error_message_redacted: why } },
    ]);
  });

  // Promise 19.27: a background answer that is not fetched is closed with its session or server.
  test('is closed by the stop button of its session, and by the end of the server', async () => {
    const world = await startGateway(provider().answer);
    await world.post('/v1/responses', ASKED, { 'x-metis-session': 'a' });
    const [session] = (await world.server.client.listSessions({ door: 'gateway' })).sessions;
    await world.server.client.endSession(session!.id);
    const why = { error_class: 'cancelled', error_message_redacted: 'its answer was not fetched' };
    expect(ends(world)).toMatchObject([{ type: 'llm.call_failed', payload: why }]);

    await world.post('/v1/responses', ASKED, { 'x-metis-session': 'b' });
    await world.server.close();
    expect(ends(world)).toMatchObject([{ type: 'llm.call_failed' }, { type: 'llm.call_failed', payload: why }]);
  });

  test('is given up after 24 hours', async () => {
    const clock = manualClock();
    const world = await startGateway(provider().answer, { clock });
    await world.post('/v1/responses', ASKED);
    const { calls } = world.server.engine.gateway;
    clock.advance(DAY_MS - 1);
    await (await fetchIt(world)).text();
    expect([ends(world), calls.size]).toEqual([[], 1]);
    clock.advance(1);
    const { payload } = await world.server.event('llm.call_failed');
    expect(payload).toMatchObject({ error_class: 'cancelled', error_message_redacted: 'its answer was not fetched' });
    await until(() => calls.size === 0);
  });

  test('is given up where 1,024 newer ones are remembered, and the newest stays', async () => {
    let id = 'oldest';
    const world = await startGateway(() => ({ raw: response('queued', { id }) }));
    const { answers } = world.server.engine.gateway;
    const ask = async (name: string) => {
      id = name;
      await (await world.post('/v1/responses', ASKED, { 'x-metis-session': name })).text();
    };
    await ask('oldest');
    const other = { ...answers.get('oldest')!, finish: async () => {} };
    for (let n = 1; n < 1023; n += 1) answers.set(`other_${n}`, other);
    await ask('newer');
    expect([answers.size, ends(world)]).toEqual([1024, []]);
    await ask('newest');
    await until(() => ends(world).length === 1);
    const { sessions } = await world.server.client.listSessions({ door: 'gateway' });
    const oldest = sessions.find(({ client_ref }) => client_ref === 'oldest')!;
    expect(ends(world)[0]).toMatchObject({
      session_id: oldest.id,
      payload: { error_class: 'cancelled', error_message_redacted: 'its answer was not fetched' },
    });
    expect([answers.size, answers.has('oldest'), answers.has('newest')]).toEqual([1024, false, true]);
  });

  test('whose id comes again is the newest, whatever came between', async () => {
    const world = await startGateway(provider().answer);
    const { answers } = world.server.engine.gateway;
    await (await world.post('/v1/responses', ASKED)).text();
    answers.set('other', { ...answers.get(ID)!, finish: async () => {} });
    await (await world.post('/v1/responses', ASKED)).text();
    expect([...answers.keys()]).toEqual(['other', ID]);
  });

  // Promise 19.27: a background answer is fetched by its own caller alone.
  test('is fetched by its own caller alone; one from before a restart is relayed', async () => {
    const keys = {
      ci: { token_sha256: hash('a-token-of-ci'), daily_usd: null },
      me: { token_sha256: hash('a-token-of-mine'), daily_usd: null },
    };
    const world = await startGateway(provider().answer, { config: { gateway: { keys } } });
    await world.post('/v1/responses', ASKED, { 'x-api-key': 'a-token-of-ci' });
    const other = await fetchIt(world, { headers: { 'x-api-key': 'a-token-of-mine' } });
    expect([other.status, (await jsonOf(other)).error.message]).toEqual([404, `no response "${ID}"`]);
    expect((await fetchIt(world)).status).toBe(401);
    expect((await fetchIt(world, { headers: { 'x-api-key': 'a-token-of-ci' } })).status).toBe(200);
    expect(world.provider.received).toHaveLength(2);

    const elsewhere = (id: string) =>
      fetch(`${world.server.url}/v1/responses/${id}`, { headers: { 'x-api-key': 'a-token-of-mine' } });
    expect((await elsewhere('resp_of_yesterday')).status).toBe(200);
    expect(world.provider.received[2]!.path).toBe('/v1/responses/resp_of_yesterday');
    expect((await elsewhere('..%2Fmodels')).status).toBe(404);
    expect(world.provider.received).toHaveLength(3);
  });
});
