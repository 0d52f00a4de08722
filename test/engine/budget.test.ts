// A cap on a whole tree: reserved before a call leaves, so that no schedule of workers can overshoot it (14).
import { describe, expect, it } from 'vitest';
import { resumeTurn } from '#core/engine/control-turn.ts';
import { recover, resumeAll } from '#core/engine/lifecycle.ts';
import { endSession, patchSession } from '#core/engine/manage-session.ts';
import { computeCeiling } from '#core/engine/money/call-price.ts';
import type { SessionId } from '#protocol/ids.ts';
import { StorageFault } from '#protocol/journal-batch.ts';
import { fromPusd, toPusd } from '#protocol/money.ts';
import { type ConfigOver, startEngine, type TestEngine } from '../support/engine.ts';
import { manualClock } from '../support/manual-clock.ts';
import { writes } from '../support/moments.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { until } from '../support/until.ts';

/** The amounts of these tests are set against the size of a request, most of which is tools. */
const small = {
  turn: { max_llm_calls: 50, max_output_tokens: 100, timeout_seconds: null },
  tools: { disabled: ['memory_*', 'skill_load'] },
} satisfies ConfigOver;
const treeCost = async (t: TestEngine, id: string) => {
  const view = (await t.engine.store.sessions.view(id))!;
  return toPusd(view.cost_so_far_usd) + toPusd(view.workers_cost_usd);
};

/** A planner with `n` parallel workers on haiku (1 / 5 USD per million), each of two calls. */
const fanOut = (n: number, input_tokens = 1000) =>
  scenario(
    planner(
      {
        tool_calls: Array.from({ length: n }, (_, i) => delegate(`job-${i}.`)),
        usage: { input_tokens: 100, output_tokens: 20 },
      },
      { text: 'summary', usage: { input_tokens: 200, output_tokens: 20 } },
    ),
    ...Array.from({ length: n }, (_, i) =>
      worker(
        `job-${i}.`,
        { tool_calls: [call('list_files', {})], usage: { input_tokens, output_tokens: 100 }, delay_ms: 5 },
        { text: `done ${i}`, usage: { input_tokens, output_tokens: 100 }, delay_ms: 5 },
      ),
    ),
  );

describe('on_reached: stop', () => {
  // Promise 14.1: Parallel workers together never spend more than the tree's cap.
  it('lets no tree spend more than its cap, however many workers run at once', async () => {
    const t = await startEngine({ scenario: fanOut(8), config: small });
    const session = await t.session({ initial_active_model: 'sonnet', max_cost_usd: '0.04', on_reached: 'stop' });
    const turn = await t.run(session, 'go');
    expect(turn.status).toBe('completed');
    const delegations = (await t.engine.store.delegations.list(session.id, { recursive: true, after: null, limit: 20 }))
      .rows;
    const over = delegations.filter((d) => d.failure_mode === 'budget_exceeded');
    expect(over.length).toBeGreaterThan(0);
    expect(over[0]!.error_message).toMatch(/^budget_exceeded: session limit, \d(\.\d+)? USD left$/);
    expect(await treeCost(t, session.id)).toBeLessThanOrEqual(toPusd('0.04'));
    expect(t.engine.budget.reserved.size).toBe(0);
  });

  it("reserves no more input than the model's window holds: what is longer is refused by its provider", async () => {
    const t = await startEngine({ scenario: fanOut(0), config: small });
    const model = t.engine.registry.get(t.engine.registry.resolveAlias('haiku')!)!;
    const request = { system_prompt: 'x'.repeat(2_000_000), system_prompt_volatile: null, messages: [], tools: [] };
    const { id } = await t.session();
    const rest = { output_schema: null, max_output_tokens: 100, cache_ttl: '5m' } as const;
    const most = await computeCeiling(t.engine, id as SessionId, model, { ...request, ...rest });
    expect(model.capabilities.max_context_tokens).toBe(100_000);
    // At 1 and 5 USD per million: 100,000 tokens in and 100 out, not 800,000 in.
    expect(fromPusd(most.price)).toBe('0.1005');
  });

  it('a refused worker does not keep the planner out: its next turn begins while there is money', async () => {
    const t = await startEngine({
      config: small,
      scenario: scenario(
        planner({ tool_calls: [delegate('think hard', { tier: 'deep' })] }, { text: 'on my own then' }),
      ),
    });
    // Enough for the planner on sonnet, not for one call of a worker on opus.
    const session = await t.session({ initial_active_model: 'sonnet', max_cost_usd: '0.05', on_reached: 'stop' });
    expect(await t.run(session, 'go')).toMatchObject({ stop_reason: 'end_turn', output: 'on my own then' });
    const failed = t.events.filter((e) => e.type === 'delegate.failed').map((e) => e.payload);
    expect(failed).toEqual([expect.objectContaining({ failure_mode: 'budget_exceeded' })]);
    expect(await t.submit(session, 'next').then(() => 'taken')).toBe('taken');
  });

  // Promise 14.4: A reached limit refuses the next turn with its amounts until it is raised.
  it("ends the planner's turn cleanly and refuses the next one with the amounts until the limit is raised", async () => {
    const t = await startEngine({
      config: small,
      scenario: scenario([
        {
          match: { turn: 1 },
          times: 'inf',
          respond: { tool_calls: [call('list_files', {})], usage: { input_tokens: 1500, output_tokens: 100 } },
        },
        { match: { turn: 2 }, respond: { text: 'again' } },
      ]),
    });
    const session = await t.session({ initial_active_model: 'haiku', max_cost_usd: '0.009', on_reached: 'stop' });
    const turn = await t.run(session, 'go');
    expect(turn).toMatchObject({ status: 'completed', stop_reason: 'budget_exceeded' });
    expect((await t.engine.store.messages.history(session.id)).at(-1)!.role).toBe('tool');
    expect(t.typesOf(session.id).slice(-2)).toEqual(['budget.exceeded', 'turn.completed']);
    await expect(t.submit(session, 'more')).rejects.toMatchObject({
      code: 'budget_exceeded',
      details: { scope: 'session', limit_usd: '0.009', spent_usd: turn.total_cost_usd, reserved_usd: '0' },
    });
    await patchSession(t.engine, session.id, { max_cost_usd: '1' });
    expect((await t.run(session, 'more')).output).toBe('again');
  });

  // Promise 14.3: A worker stops at its own cap and the planner goes on.
  it('stops a worker at its own cap and lets the planner go on', async () => {
    const t = await startEngine({
      config: small,
      scenario: scenario(
        planner({ tool_calls: [delegate('loop', { max_cost_usd: '0.01' })] }, { text: 'fine without it' }),
        [
          {
            match: { role: 'worker' },
            times: 'inf',
            respond: { tool_calls: [call('list_files', {})], usage: { input_tokens: 1500, output_tokens: 100 } },
          },
        ],
      ),
    });
    const session = await t.session();
    const turn = await t.run(session, 'go');
    expect(turn.output).toBe('fine without it');
    const [delegation] = (
      await t.engine.store.delegations.list(session.id, { recursive: false, after: null, limit: 2 })
    ).rows;
    expect(delegation).toMatchObject({ failure_mode: 'budget_exceeded', status: 'failed' });
    expect(delegation!.error_message).toContain('delegation limit');
    expect(toPusd(delegation!.usage_summary.cost_usd)).toBeLessThanOrEqual(toPusd('0.01'));
    expect(toPusd(delegation!.usage_summary.cost_usd)).toBeGreaterThan(0n);
    const w = (await t.engine.store.sessions.view(delegation!.worker_session_id!))!;
    expect(w).toMatchObject({ status: 'ended', disposition: 'failed' });
  });

  // Promise 14.3: A cap below one call makes a worker without a call.
  it('a cap below one call gives a worker session without a call', async () => {
    const t = await startEngine({
      config: small,
      scenario: scenario(planner({ tool_calls: [delegate('x', { max_cost_usd: '0.000010' })] }, { text: 'ok' })),
    });
    const session = await t.session();
    await t.run(session, 'go');
    expect(t.rows().sessions).toBe(2);
    expect(t.adapter.requests.filter((r) => r.caller.is_worker)).toHaveLength(0);
    expect(t.events.find((e) => e.type === 'delegate.failed')!.payload).toMatchObject({
      failure_mode: 'budget_exceeded',
    });
  });
});

describe('on_reached: pause', () => {
  // Promise 14.0: At its limit a tree pauses as a whole; a higher limit lets it finish without a repeated call.
  it('puts the whole tree down, and a raised limit lets it finish without a repeated call', async () => {
    const t = await startEngine({ scenario: fanOut(2, 1300), config: small });
    const session = await t.session({ initial_active_model: 'sonnet', max_cost_usd: '1' });
    const turnId = await t.submit(session, 'go');
    const begun = new Set<string>();
    await t.event('llm.call_started', (e) => e.actor === 'worker' && begun.add(e.session_id).size === 2);
    // Both workers are in their first call: what runs is never killed, what comes next is refused.
    await patchSession(t.engine, session.id, { max_cost_usd: '0.001' });
    await t.event('budget.exceeded', (e) => e.session_id === session.id);
    await t.engine.locks.turn(turnId)?.done;
    const open = await t.engine.store.turns.allOpen();
    expect(open.map((turn) => [turn.status, turn.interrupted_reason])).toEqual(
      Array(open.length).fill(['interrupted', 'budget']),
    );
    expect(open).toHaveLength(3);
    expect((await t.engine.store.sessions.view(session.id))!.status).toBe('interrupted');
    expect(t.events.filter((e) => e.type === 'budget.exceeded' && e.session_id === session.id)).toHaveLength(1);
    await expect(resumeTurn(t.engine, session.id, turnId)).rejects.toMatchObject({ code: 'budget_exceeded' });

    await patchSession(t.engine, session.id, { max_cost_usd: '1' });
    const turn = await t.ended(turnId);
    expect(turn).toMatchObject({ status: 'completed', output: 'summary' });
    const asked = t.adapter.requests.map((r) => `${r.caller.session_id} ${r.caller.call_index}`);
    expect(new Set(asked).size).toBe(asked.length);
    const plain = await startEngine({ scenario: fanOut(2, 1300), config: small });
    const other = await plain.session({ initial_active_model: 'sonnet' });
    await plain.run(other, 'go');
    expect(await treeCost(t, session.id)).toBe(await treeCost(plain, other.id));
  });

  it('is not resumed by a restart, only by money', async () => {
    const said = fanOut(1);
    const first = await startEngine({ scenario: said, config: small });
    const session = await first.session({ initial_active_model: 'sonnet', max_cost_usd: '0.008' });
    const turnId = await first.submit(session, 'go');
    await first.event('budget.exceeded');
    await first.engine.locks.turn(turnId)?.done;
    first.abandon();

    const second = await startEngine({ scenario: said, config: small, folder: first.folder });
    await recover(second.engine);
    await resumeAll(second.engine);
    expect(second.adapter.requests).toHaveLength(0);
    await patchSession(second.engine, session.id, { max_cost_usd: null });
    expect((await second.ended(turnId)).status).toBe('completed');
  });

  it('gives up the tree where the database does not store that it goes on', async () => {
    const t = await startEngine({ scenario: fanOut(1), config: small });
    const session = await t.session({ initial_active_model: 'sonnet', max_cost_usd: '0.008' });
    const turnId = await t.submit(session, 'go');
    await t.event('budget.exceeded');
    await t.engine.locks.turn(turnId)?.done;
    const roots: string[] = [];
    Object.assign(t.engine.trees, { release: (root: string) => void roots.push(root) });
    const { journal } = t.engine;
    const { commit } = journal;
    journal.commit = async (batch) => {
      if (writes(batch, 'turn.resume')) throw new StorageFault('the database cannot be reached', null);
      return commit(batch);
    };
    await patchSession(t.engine, session.id, { max_cost_usd: null });
    expect(roots).toEqual([session.id]);
  });

  it('a paused tree can be ended', async () => {
    const t = await startEngine({ scenario: fanOut(2), config: small });
    const session = await t.session({ initial_active_model: 'sonnet', max_cost_usd: '0.008' });
    const turnId = await t.submit(session, 'go');
    await t.event('budget.exceeded');
    await t.engine.locks.turn(turnId)?.done;
    await endSession(t.engine, session.id);
    expect((await t.engine.store.turns.view(session.id, turnId))!.status).toBe('cancelled');
    expect(await t.engine.store.turns.allOpen()).toEqual([]);
    expect(t.engine.budget.paused.size).toBe(0);
  });
});

describe('a restart', () => {
  const looping = scenario([
    {
      match: { turn: 1 },
      times: 'inf',
      respond: { tool_calls: [call('list_files', {})], usage: { input_tokens: 1500, output_tokens: 100 } },
    },
    { match: {}, times: 'inf', respond: { text: 'again' } },
  ]);
  const restarted = async (first: TestEngine, options: Parameters<typeof startEngine>[0]) => {
    first.abandon();
    const second = await startEngine({ ...options, folder: first.folder });
    await recover(second.engine);
    await resumeAll(second.engine);
    return second;
  };

  it('leaves a stopped tree stopped, until its limit is raised', async () => {
    const options = { scenario: looping, config: small };
    const first = await startEngine(options);
    const session = await first.session({ initial_active_model: 'haiku', max_cost_usd: '0.009', on_reached: 'stop' });
    const turn = await first.run(session, 'go');
    expect(turn).toMatchObject({ stop_reason: 'budget_exceeded' });
    const second = await restarted(first, options);
    await expect(second.submit(session, 'more')).rejects.toMatchObject({
      code: 'budget_exceeded',
      details: { scope: 'session', limit_usd: '0.009', spent_usd: turn.total_cost_usd },
    });
    await patchSession(second.engine, session.id, { max_cost_usd: '0.0085' });
    await expect(second.submit(session, 'more')).rejects.toMatchObject({ code: 'budget_exceeded' });
    await patchSession(second.engine, session.id, { max_cost_usd: '1' });
    expect((await second.run(session, 'more')).output).toBe('again');
  });

  it('leaves a paused tree waiting: a message is refused and cancels nothing', async () => {
    const options = { scenario: fanOut(1), config: small };
    const first = await startEngine(options);
    const session = await first.session({ initial_active_model: 'sonnet', max_cost_usd: '0.008' });
    const turnId = await first.submit(session, 'go');
    await first.event('budget.exceeded');
    await first.engine.locks.turn(turnId)?.done;
    const second = await restarted(first, options);
    for (const if_busy of ['reject', 'interrupt'] as const)
      await expect(second.submit(session, 'more', { if_busy })).rejects.toMatchObject({ code: 'budget_exceeded' });
    await patchSession(second.engine, session.id, { max_cost_usd: '0.007' });
    await expect(second.submit(session, 'more')).rejects.toMatchObject({ code: 'budget_exceeded' });
    expect((await second.engine.store.turns.open(session.id))?.id).toBe(turnId);
    await patchSession(second.engine, session.id, { max_cost_usd: '1' });
    expect((await second.ended(turnId)).status).toBe('completed');
  });

  it('goes on with a tree whose limit had been raised before the process died', async () => {
    const options = { scenario: fanOut(2), config: small };
    const first = await startEngine(options);
    const session = await first.session({ initial_active_model: 'sonnet', max_cost_usd: '0.008' });
    const turnId = await first.submit(session, 'go');
    await first.event('budget.exceeded');
    await first.engine.locks.turn(turnId)?.done;
    const at = first.engine.clock.now();
    const raised = { session_id: session.id, max_cost_pusd: toPusd('1'), at };
    await first.engine.journal.commit({ writes: [{ kind: 'session.set_limit', ...raised }], emit: [] });
    const second = await restarted(first, options);
    expect(await second.ended(turnId)).toMatchObject({ status: 'completed', output: 'summary' });
  });

  it("holds the day's limit against every tree until the day is over", async () => {
    const clock = manualClock();
    const options = { clock, scenario: looping, config: { ...small, budgets: { daily_usd: '0.009' } } };
    const first = await startEngine(options);
    const [one, other] = [await first.session(), await first.session()];
    const haiku = { per_message_override: 'haiku' };
    expect(await first.run(one, 'go', haiku)).toMatchObject({ stop_reason: 'budget_exceeded' });
    const second = await restarted(first, options);
    for (const session of [one, other])
      await expect(second.submit(session, 'more', haiku)).rejects.toMatchObject({
        code: 'budget_exceeded',
        details: { scope: 'day' },
      });
    clock.advance(24 * 3600 * 1000);
    expect((await second.run(one, 'more', haiku)).output).toBe('again');
  });
});

describe('a limit and what happens at it, changed by two at once', () => {
  it('are both as they were set last', async () => {
    const t = await startEngine({ scenario: scenario(planner({ text: 'ok' })) });
    const { id } = await t.session({ on_reached: 'pause' });
    const replies = await Promise.all([
      patchSession(t.engine, id, { max_cost_usd: '0.5' }),
      patchSession(t.engine, id, { on_reached: 'stop' }),
    ]);
    const both = { max_cost_usd: '0.5', on_reached: 'stop' };
    expect(await t.engine.store.sessions.view(id)).toMatchObject(both);
    expect(replies[1]).toMatchObject(both);
  });
});

describe('warnings', () => {
  // Promise 14.8: One warning per limit and value.
  it('come once at the ratio, and again for a higher limit', async () => {
    const t = await startEngine({
      config: small,
      scenario: scenario([
        { match: {}, times: 'inf', respond: { text: 'ok', usage: { input_tokens: 1000, output_tokens: 100 } } },
      ]),
    });
    // haiku: 0.0015 a turn, about 0.003 reserved.
    const session = await t.session({ initial_active_model: 'haiku', max_cost_usd: '0.009', on_reached: 'stop' });
    const warnings = () => t.events.filter((e) => e.type === 'budget.warning').length;
    for (let i = 0; i < 4; i++) await t.run(session, 'go');
    expect(warnings()).toBe(0);
    await t.run(session, 'go');
    expect(warnings()).toBe(1);
    await patchSession(t.engine, session.id, { max_cost_usd: '0.0125' });
    await t.run(session, 'go');
    expect(warnings()).toBe(1);
    await t.run(session, 'go');
    expect(warnings()).toBe(2);
    expect(t.events.findLast((e) => e.type === 'budget.warning')!.payload).toMatchObject({
      scope: 'session',
      limit_usd: '0.0125',
      spent_usd: '0.0105',
    });
  });
});

describe('the daily limit', () => {
  // Promise 14.9: The daily limit stops every tree, pauses none, and is over with the day.
  it('stops every tree, pauses none, and is over with the day', async () => {
    const clock = manualClock();
    const t = await startEngine({
      clock,
      config: { ...small, budgets: { daily_usd: '0.0095' } },
      scenario: scenario([
        { match: {}, times: 'inf', respond: { text: 'ok', usage: { input_tokens: 4000, output_tokens: 100 } } },
      ]),
    });
    const a = await t.session({ initial_active_model: 'haiku' });
    const b = await t.session({ initial_active_model: 'haiku' });
    const stops: string[] = [];
    for (const session of [a, b, a, b]) {
      const turn = await t.run(session, 'go').catch((error) => ({ stop_reason: error.code }));
      stops.push(String(turn.stop_reason));
    }
    expect(stops).toEqual(['end_turn', 'end_turn', 'budget_exceeded', 'budget_exceeded']);
    expect(await t.engine.store.turns.allOpen()).toEqual([]);
    clock.advance(24 * 3600 * 1000);
    expect((await t.run(a, 'tomorrow')).stop_reason).toBe('end_turn');
  });

  it('counts a call that is under way over midnight to the day in which it ends', async () => {
    const clock = manualClock(Date.parse('2026-05-08T23:59:55Z'));
    const usage = { input_tokens: 1500, output_tokens: 100 };
    const t = await startEngine({
      clock,
      config: { ...small, budgets: { daily_usd: '0.008' } },
      scenario: scenario([
        { match: { user_contains: 'slow' }, respond: { text: 'ok', usage, delay_ms: 10_000 } },
        { match: { user_contains: 'next' }, times: 'inf', respond: { text: 'ok', usage } },
      ]),
    });
    const [a, b] = [
      await t.session({ initial_active_model: 'haiku' }),
      await t.session({ initial_active_model: 'haiku' }),
    ];
    const slow = await t.submit(a, 'slow');
    await until(() => clock.pending(10_000) > 0);
    clock.advance(6000);
    expect(new Date(clock.now()).getUTCHours()).toBe(0);
    expect(await t.run(b, 'next')).toMatchObject({ stop_reason: 'budget_exceeded' });
    clock.advance(6000);
    expect(await t.ended(slow)).toMatchObject({ stop_reason: 'end_turn', total_cost_usd: '0.002' });
    expect(await t.engine.store.spend.since(Date.parse('2026-05-09T00:00:00Z'))).toBe(toPusd('0.002'));
    expect(t.engine.budget.reserved.size).toBe(0);
  });
});

describe('what a limit needs', () => {
  const registry = `
adapters: { scripted: { type: scripted } }
models:
  lab:free-lunch: { adapter: scripted, tier: fast, can_delegate: true, capabilities: { max_context_tokens: 100000, max_output_tokens: 4096 } }
  anthropic:claude-haiku-4-5: { adapter: scripted, tier: balanced, aliases: [haiku], capabilities: { max_context_tokens: 100000, max_output_tokens: 4096 } }
`;
  // Promise 14.6: Under a limit an unpriced model is rejected; without one it runs and is flagged.
  it('is a price: an unpriced worker model is rejected under it and runs without it', async () => {
    const said = scenario(planner({ tool_calls: [delegate('x')] }, { text: 'ok' }), worker('x', { text: 'done' }));
    const run = async (limit: string | null) => {
      const t = await startEngine({ scenario: said, registry });
      const session = await t.session({ initial_active_model: 'haiku', max_cost_usd: limit });
      await t.run(session, 'go');
      const decided = t.events.find((e) => e.type === 'route.decided' && e.session_id !== session.id)!;
      const chain = (decided.payload as { chain: { verdict: string; validation_failure: string | null }[] }).chain;
      return { slot: chain[4]!, view: (await t.engine.store.sessions.view(session.id))! };
    };
    expect((await run('5')).slot).toMatchObject({ verdict: 'rejected', validation_failure: 'not_priced' });
    const free = await run(null);
    expect(free.slot).toMatchObject({ verdict: 'chose' });
    expect(free.view.has_unpriced_calls).toBe(true);
  });
});
