// A tree that waits for money waits whole: no part of it makes a call, over a crash as well, until the limit is raised (14 §3).

import { describe, expect, it } from 'vitest';
import { cancelTurn } from '#core/engine/control-turn.ts';
import { patchSession } from '#core/engine/manage-session.ts';
import { toPusd } from '#protocol/money.ts';
import { toolText } from '#protocol/tool.ts';
import { type ConfigOver, startEngine, type TestEngine } from '../support/engine.ts';
import { at, emits, gate, restart, turns } from '../support/moments.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { turnOf } from '../support/stored.ts';
import { tool } from '../support/tools.ts';
import { until } from '../support/until.ts';

const config = { turn: { max_llm_calls: 50, max_output_tokens: 100, timeout_seconds: null } } satisfies ConfigOver;
const usage = { input_tokens: 100, output_tokens: 20 };
const asked = (t: TestEngine) => t.adapter.requests.length;
const waiting = async (t: TestEngine) =>
  (await t.engine.store.turns.allOpen()).map((turn) => `${turn.status} ${turn.interrupted_reason}`).sort();
const resumed = (t: TestEngine) => t.events.filter((e) => e.type === 'turn.resumed').length;
/** Room for the planner on sonnet and a worker on haiku, not for one call of a worker on opus. */
const LIMIT = '0.05';

describe('a tree that waits for money', () => {
  it('holds the worker whose own next call would still fit, and stays down until the limit is raised', async () => {
    const wait = gate();
    const slow = tool('slow', { execute: () => wait.opened.then(() => toolText('ok')) });
    const t = await startEngine({
      config,
      tools: [slow],
      scenario: scenario(
        planner(
          { tool_calls: [delegate('cheap'), delegate('deep one', { tier: 'deep' })], usage },
          { text: 'end', usage },
        ),
        worker('cheap', { tool_calls: [call('slow', {})], usage }, { text: 'done', usage }),
        worker('deep one', { text: 'done', usage }),
      ),
    });
    const session = await t.session({ initial_active_model: 'sonnet', max_cost_usd: LIMIT });
    const turnId = await t.submit(session, 'go');
    await t.event('tool.called', (e) => e.payload.tool_name === 'slow');
    await t.event('budget.exceeded');
    const before = asked(t);
    wait.open();
    await until(() => t.engine.locks.activeTurns().length === 0);
    await turns(50);
    expect(await waiting(t)).toEqual(Array(3).fill('interrupted budget'));
    expect([asked(t), resumed(t)]).toEqual([before, 0]);
    expect(t.events.filter((e) => e.type === 'budget.exceeded' && e.session_id === session.id)).toHaveLength(1);
    // What is spent leaves room for the planner, which was not refused itself; its tree waits all the same.
    await expect(t.submit(session, 'more')).rejects.toMatchObject({ code: 'budget_exceeded' });

    await patchSession(t.engine, session.id, { max_cost_usd: '1' });
    expect(await t.ended(turnId)).toMatchObject({ status: 'completed', output: 'end' });
    expect(resumed(t)).toBe(3);
  });

  it('is not taken up by a start after a crash, not even the part that still ran then', async () => {
    const said = scenario(
      planner(
        { tool_calls: [delegate('stuck'), delegate('deep one', { tier: 'deep' })], usage },
        { text: 'end', usage },
      ),
      [
        {
          match: { role: 'worker', user_contains: 'stuck' },
          times: 1,
          respond: { text: 'done', usage, delay_ms: 3600_000 },
        },
      ],
      worker('deep one', { text: 'done', usage }),
    );
    const first = await startEngine({ config, scenario: said });
    const session = await first.session({ initial_active_model: 'sonnet', max_cost_usd: LIMIT });
    const turnId = await first.submit(session, 'go');
    await first.event('budget.exceeded');
    await until(async () => (await waiting(first)).includes('interrupted budget'));
    expect(await waiting(first)).toEqual(['in_flight null', 'in_flight null', 'interrupted budget']);

    const quick = scenario([
      { match: { role: 'planner' }, respond: { text: 'end', usage } },
      { match: { role: 'worker' }, times: 2, respond: { text: 'done', usage } },
    ]);
    const second = await restart(first, { config, scenario: quick });
    await turns(50);
    expect(await waiting(second)).toEqual(Array(3).fill('interrupted budget'));
    expect([asked(second), resumed(second)]).toEqual([0, 0]);
    await expect(second.submit(session, 'more')).rejects.toMatchObject({ code: 'budget_exceeded' });
    await patchSession(second.engine, session.id, { max_cost_usd: null });
    expect(await second.ended(turnId)).toMatchObject({ status: 'completed', output: 'end' });
  });

  it('is over when its turn is cancelled: the planner, which has money left, takes the next message', async () => {
    const t = await startEngine({
      config,
      scenario: scenario(
        planner({ tool_calls: [delegate('deep one', { tier: 'deep' })], usage }),
        [{ match: { turn: 2 }, respond: { text: 'on my own', usage } }],
        worker('deep one', { text: 'done', usage }),
      ),
    });
    const session = await t.session({ initial_active_model: 'sonnet', max_cost_usd: LIMIT });
    const turnId = await t.submit(session, 'go');
    await t.event('budget.exceeded');
    await until(() => t.engine.locks.activeTurns().length === 0);
    await cancelTurn(t.engine, session.id, turnId, null);
    expect(await t.run(session, 'more')).toMatchObject({ status: 'completed', output: 'on my own' });
  });
});

describe('a limit that is raised while something else moves', () => {
  const pair = scenario(planner({ tool_calls: [call('list_files', {})], usage }, { text: 'end', usage }));
  const TINY = '0.000001';

  it('counts against the limit that refused, not against the one its sender saw', async () => {
    const t = await startEngine({ config, scenario: pair });
    const session = await t.session({ initial_active_model: 'sonnet', max_cost_usd: '1' });
    const { journal } = t.engine;
    const { commit } = journal;
    const [arrived, free] = [gate(), gate()];
    journal.commit = async (batch) => {
      if (batch.writes?.some((w) => w.kind === 'session.set_limit' && w.max_cost_pusd === toPusd('0.5'))) {
        arrived.open();
        await free.opened;
      }
      return commit(batch);
    };
    // Lower than what it replaces when it is sent, higher by the time it is stored.
    const late = patchSession(t.engine, session.id, { max_cost_usd: '0.5' });
    await arrived.opened;
    await patchSession(t.engine, session.id, { max_cost_usd: TINY });
    const turnId = await t.submit(session, 'go');
    await t.event('budget.exceeded');
    await until(() => t.engine.locks.activeTurns().length === 0);
    free.open();
    await late;
    expect(await t.ended(turnId)).toMatchObject({ status: 'completed', output: 'end' });
  });

  it('ends the wait also where it is stored between the check of a call and the pause', async () => {
    const t = await startEngine({ config, scenario: pair });
    const session = await t.session({ initial_active_model: 'sonnet', max_cost_usd: '1' });
    await patchSession(t.engine, session.id, { max_cost_usd: TINY });
    const { journal } = t.engine;
    const { commit } = journal;
    const raised = gate();
    journal.commit = async (batch) => {
      if (emits(batch, 'budget.exceeded')) {
        journal.commit = commit;
        await patchSession(t.engine, session.id, { max_cost_usd: '0.5' });
        raised.open();
      }
      return commit(batch);
    };
    const turnId = await t.submit(session, 'go');
    await raised.opened;
    expect(await t.ended(turnId)).toMatchObject({ status: 'completed', output: 'end' });
    expect(t.events.filter((e) => e.type === 'budget.exceeded')).toHaveLength(1);
  });
});

describe('a cancel of a tree that waits for money', () => {
  const small = { turn: { max_llm_calls: 50, max_output_tokens: 100, timeout_seconds: null } };
  const spend = (input_tokens: number) => ({ input_tokens, output_tokens: 100 });

  it('is taken while the tree is being interrupted', async () => {
    for (let hops = 0; hops < 8; hops++) {
      const t = await startEngine({
        config: small,
        scenario: scenario([
          { match: {}, times: 'inf', respond: { tool_calls: [call('list_files', {})], usage: spend(1500) } },
        ]),
      });
      const session = await t.session({ initial_active_model: 'haiku', max_cost_usd: '0.009' });
      at(
        t,
        (e) => e.type === 'budget.exceeded',
        () => {
          const { turn_id } = t.events.find((e) => e.type === 'turn.started')!;
          const later = (n: number): void => {
            if (n > 0) setImmediate(() => later(n - 1));
            else void cancelTurn(t.engine, session.id, turn_id!, null).catch(() => {});
          };
          later(hops);
        },
      );
      const turnId = await t.submit(session, 'go');
      await t.event('budget.exceeded');
      await t.ended(turnId);
      expect((await turnOf(t, session.id, turnId)).status, `hops ${hops}`).toBe('cancelled');
      await t.close();
    }
  });

  it('ends the waiting workers with their planner', async () => {
    const t = await startEngine({
      config: { ...small, shutdown: { drain_seconds: 0 } },
      scenario: scenario(
        planner({ tool_calls: [delegate('poor'), delegate('stuck')], usage: spend(100) }),
        [
          {
            match: { role: 'worker', user_contains: 'poor' },
            times: 'inf',
            respond: { tool_calls: [call('list_files', {})], usage: spend(1500) },
          },
        ],
        worker('stuck', { hang: true }),
      ),
    });
    const session = await t.session({ initial_active_model: 'sonnet', max_cost_usd: '0.045' });
    const turnId = await t.submit(session, 'go');
    await t.event('budget.exceeded');
    await until(async () => (await t.engine.store.turns.allOpen()).some((turn) => turn.status === 'interrupted'));
    await cancelTurn(t.engine, session.id, turnId, null);
    await t.ended(turnId);
    expect(await t.engine.store.turns.allOpen()).toEqual([]);
    expect(await t.engine.store.delegations.allOpen()).toEqual([]);
    expect(t.events.at(-1)).toMatchObject({ type: 'turn.cancelled', session_id: session.id });
    const failed = t.events.filter((e) => e.type === 'delegate.failed').map((e) => e.payload);
    expect(failed).toEqual(Array(2).fill(expect.objectContaining({ cancel_scope: 'planner' })));
    expect(t.events.filter((e) => e.type === 'tool.failed' && e.session_id === session.id)).toHaveLength(2);
  });
});
