// Money on the wire: exact decimal strings everywhere, and a limit that answers with its amounts (01 §1.3, 14 §3).
import { describe, expect, it } from 'vitest';
import { fromPusd, type Pusd, toPusd, USD_PATTERN, type Usd } from '#protocol/money.ts';
import { startServer, type TestServer } from '../support/http.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';

const usage = { input_tokens: 1234, output_tokens: 57, cached_input_tokens: 11, cache_creation_input_tokens: 7 };

/** Every member whose name speaks of dollars, with where it stands. */
function amounts(value: unknown, path = '$'): [string, unknown][] {
  if (Array.isArray(value)) return value.flatMap((v, i) => amounts(v, `${path}[${i}]`));
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([key, v]) =>
    /_usd$|_per_mtok$/.test(key) ? [[`${path}.${key}`, v] as [string, unknown]] : amounts(v, `${path}.${key}`),
  );
}

async function newSession(t: TestServer, body: object = {}) {
  const answer = await t.call('POST', '/sessions', {
    workspace_path: t.workspace,
    initial_active_model: 'opus',
    ...body,
  });
  return answer.body;
}

describe('every amount', () => {
  // Promise 01.13: Every amount in every answer and event is an exact decimal string.
  it('in every answer and every event is an exact decimal string', async () => {
    const t = await startServer({
      scenario: scenario(
        planner(
          {
            tool_calls: [delegate('count', { max_cost_usd: '0.5' }), call('write_file', { path: 'a', content: 'b' })],
            usage,
          },
          { text: 'ok', usage },
        ),
        worker('count', { text: 'three', usage }),
      ),
    });
    const session = await newSession(t, { max_cost_usd: '7.5' });
    const { turn_id } = (await t.call('POST', `/sessions/${session.id}/turns`, { content: 'go' })).body;
    const asked = await t.event('tool.confirmation_requested');
    await t.call('POST', `/confirmations/${asked.payload.confirmation_request_id}`, { decision: 'approve' });
    await t.ended(turn_id);
    const paths = [
      '/sessions?include_workers=true',
      `/sessions/${session.id}`,
      `/sessions/${session.id}/turns`,
      `/sessions/${session.id}/turns/${turn_id}`,
      `/sessions/${session.id}/messages`,
      `/sessions/${session.id}/events?include_worker_sessions=true`,
      `/sessions/${session.id}/workers`,
      '/confirmations?status=all',
      '/models',
      '/pricing',
      '/analytics/cost?group_by=parent_session',
      '/analytics/cost?group_by=session&include_workers=true',
      '/analytics/cost?group_by=none&pricing=current',
      '/analytics/savings?baseline=planner',
    ];
    let found = 0;
    for (const path of paths) {
      const answer = await t.call('GET', path);
      expect(answer.status, path).toBe(200);
      for (const [where, amount] of amounts(answer.body)) {
        if (amount === null) continue;
        found += 1;
        expect(typeof amount, `${path} ${where}`).toBe('string');
        if (!where.endsWith('savings_usd')) expect(amount, `${path} ${where}`).toMatch(USD_PATTERN);
      }
    }
    expect(found).toBeGreaterThan(60);
    for (const event of t.events)
      for (const [where, amount] of amounts(event.payload))
        if (amount !== null) expect(amount, `${event.type} ${where}`).toMatch(USD_PATTERN);
  });

  // Promise 05.22: A limit given as a number is refused by name.
  // Promise 14.5: A limit in a wrong form is refused by name.
  it('given as a number, or in a form that is no limit, is refused by name', async () => {
    const t = await startServer();
    for (const bad of [0.5, '-1', '1e3', '0.1234567', '0', 'abc', '']) {
      const answer = await t.call('POST', '/sessions', { workspace_path: t.workspace, max_cost_usd: bad });
      expect(answer.status, String(bad)).toBe(400);
      expect(answer.body.error.code).toBe('validation_error');
      expect(answer.body.error.details.issues[0].path).toBe('max_cost_usd');
    }
    expect(t.rows().sessions).toBe(0);
  });
});

/** The sum, rounded up to the six decimals of a limit. */
function limitPusd(...amounts: string[]): bigint {
  const sum = amounts.reduce((total, amount) => total + toPusd(amount), 0n);
  return ((sum + 999_999n) / 1_000_000n) * 1_000_000n;
}

describe('a session whose limit is reached', () => {
  // Promise 05.22: An exhausted budget answers 402 with four amounts.
  it('answers 402 with the four amounts, and takes turns again when the limit is raised', async () => {
    const t = await startServer({
      scenario: scenario([
        { match: {}, times: 'inf', respond: { text: 'ok', usage: { input_tokens: 4000, output_tokens: 100 } } },
      ]),
      config: {
        turn: { max_llm_calls: 50, max_output_tokens: 100, timeout_seconds: null },
        // A request small enough for the limit, most of which is tools.
        tools: { disabled: ['memory_*', 'skill_load'] },
      },
    });
    const session = await newSession(t, { initial_active_model: 'haiku', max_cost_usd: '0.0055', on_reached: 'stop' });
    const submit = () => t.call('POST', `/sessions/${session.id}/turns`, { content: 'go' }, { prefer: 'wait=60' });
    expect((await submit()).body.stop_reason).toBe('end_turn');
    const over = (await submit()).body;
    expect(over.stop_reason).toBe('budget_exceeded');
    const { budget_refusal } = over;
    expect(budget_refusal).toMatchObject({ scope: 'session', limit_usd: '0.0055', spent_usd: '0.0045' });
    const before = t.rows();
    const refused = await submit();
    expect(refused.status).toBe(402);
    expect(refused.body.error).toMatchObject({
      code: 'budget_exceeded',
      details: { scope: 'session', limit_usd: '0.0055', spent_usd: '0.0045', reserved_usd: '0' },
    });
    expect(t.rows()).toEqual(before);
    const budget = (await t.call('GET', `/sessions/${session.id}`)).body.budget;
    expect(budget).toEqual({
      max_cost_usd: '0.0055',
      spent_usd: '0.0045',
      reserved_usd: '0',
      remaining_usd: '0.001',
      worker_spent_usd: '0',
    });
    // The cap that the first refusal names lets the same call pass, and one step less does not.
    const enough = budget_refusal.sufficient_limit_usd;
    expect(refused.body.error.details.sufficient_limit_usd).toBe(enough);
    const raise = (cap: string) => t.call('PATCH', `/sessions/${session.id}`, { max_cost_usd: cap });
    expect((await raise('1')).status).toBe(200);
    expect((await submit()).body).toMatchObject({ stop_reason: 'end_turn', budget_refusal: null });
    expect(toPusd(enough)).toBe(
      limitPusd(budget_refusal.spent_usd, budget_refusal.reserved_usd, budget_refusal.needed_usd),
    );
  });

  it('lets a caller that waits see the turn that was paused, and names the limit that lets it go on', async () => {
    const t = await startServer({
      scenario: scenario([{ match: {}, times: 'inf', respond: { text: 'ok' } }]),
      config: { turn: { max_llm_calls: 50, max_output_tokens: 4096, timeout_seconds: null } },
    });
    const session = await newSession(t, { initial_active_model: 'haiku', max_cost_usd: '0.005' });
    const submit = () => t.call('POST', `/sessions/${session.id}/turns`, { content: 'go' }, { prefer: 'wait=60' });
    const paused = await submit();
    expect([paused.status, paused.body.status, paused.body.interrupted_reason]).toEqual([200, 'interrupted', 'budget']);
    const { error } = (await submit()).body;
    const needed = error.details.needed_usd;
    expect(Number(needed)).toBeGreaterThan(0.02);
    expect(error.message).toContain(`may cost up to ${needed} USD (0 USD spent); raise it to`);
    const enough = /raise it to (\S+) USD or more/.exec(error.message)![1];
    expect((await t.call('PATCH', `/sessions/${session.id}`, { max_cost_usd: enough })).status).toBe(200);
    await t.event('turn.completed');
  });

  it('shows what is reserved while a call is under way', async () => {
    const t = await startServer({ scenario: scenario(planner({ hang: true })) });
    const session = await newSession(t, { max_cost_usd: '5' });
    await t.call('POST', `/sessions/${session.id}/turns`, { content: 'go' });
    await t.event('llm.call_started');
    const { budget } = (await t.call('GET', `/sessions/${session.id}`)).body;
    expect(budget.spent_usd).toBe('0');
    expect(budget.reserved_usd).not.toBe('0');
    expect(budget.remaining_usd).not.toBe('5');
    const listed = (await t.call('GET', '/sessions')).body.sessions[0];
    expect(listed.budget.reserved_usd).toBe(budget.reserved_usd);
  });
});

describe('an estimate', () => {
  // Promise 14.10: An estimate stores nothing and its ceiling holds.
  it('prices the next call without making or storing anything', async () => {
    const t = await startServer({
      scenario: scenario(planner({ text: 'ok', usage: { input_tokens: 900, output_tokens: 100 } })),
    });
    const session = await newSession(t, { max_cost_usd: '0.5' });
    const before = t.rows();
    const estimate = await t.call('POST', `/sessions/${session.id}/estimate`, { content: '@haiku what now?' });
    expect(estimate.status).toBe(200);
    expect(estimate.body).toMatchObject({
      chosen_model: 'anthropic:claude-haiku-4-5',
      fits_budget: true,
      limits: [{ scope: 'session', limit_usd: '0.5', spent_usd: '0', reserved_usd: '0', remaining_usd: '0.5' }],
    });
    expect(estimate.body.chain).toHaveLength(7);
    expect(t.rows()).toEqual(before);
    expect(t.adapter.requests).toHaveLength(0);

    const { turn_id } = (await t.call('POST', `/sessions/${session.id}/turns`, { content: '@haiku what now?' })).body;
    const turn = await t.ended(turn_id);
    // One guess under one name, wherever it is told.
    const started = (await t.event('turn.started')).payload as { estimated_input_tokens: number };
    expect(estimate.body.estimated_input_tokens).toBe(started.estimated_input_tokens);
    expect(toPusd(estimate.body.cost_ceiling_usd)).toBeGreaterThanOrEqual(toPusd(turn.total_cost_usd));
    expect(toPusd(estimate.body.cost_floor_usd)).toBeLessThan(toPusd(estimate.body.cost_ceiling_usd));

    const dear = await t.call('POST', `/sessions/${session.id}/estimate`, { content: 'what now?' });
    expect(dear.body.chosen_model).toBe('anthropic:claude-opus-4-7');
    const tight = await newSession(t, { max_cost_usd: '0.001' });
    expect((await t.call('POST', `/sessions/${tight.id}/estimate`, { content: 'x' })).body.fits_budget).toBe(false);
    expect((await t.call('POST', `/sessions/${session.id}/estimate`, { content: '@nope x' })).body.error.code).toBe(
      'unknown_alias',
    );
  });

  // Promise 14.10: An estimate is what the first call reserves, and a limit of that lets it leave.
  it('is what the call reserves, also where its prompt is known', async () => {
    const t = await startServer({
      scenario: scenario([
        { match: {}, times: 'inf', respond: { text: 'ok', usage: { input_tokens: 2000, output_tokens: 10 } } },
      ]),
    });
    const session = await newSession(t, { initial_active_model: 'haiku', max_cost_usd: '1' });
    const path = `/sessions/${session.id}`;
    const ceilings: string[] = [];
    const submitUnder = async (content: string, under: bigint) => {
      const { cost_ceiling_usd } = (await t.call('POST', `${path}/estimate`, { content })).body;
      const { cost_so_far_usd } = (await t.call('GET', path)).body;
      ceilings.push(cost_ceiling_usd);
      const limit = toPusd(cost_so_far_usd) + toPusd(cost_ceiling_usd) - under;
      await t.call('PATCH', path, { max_cost_usd: fromPusd(limit as Pusd), on_reached: 'stop' });
      return (await t.call('POST', `${path}/turns`, { content }, { prefer: 'wait=60' })).body.stop_reason;
    };
    expect(await submitUnder('what now?', 0n)).toBe('end_turn');
    expect(await submitUnder('and then?', 0n)).toBe('end_turn');
    expect(await submitUnder('at last?', 1_000_000n)).toBe('budget_exceeded');
    expect(toPusd(ceilings[1] as Usd)).toBeLessThan(toPusd(ceilings[0] as Usd));
  });
});
