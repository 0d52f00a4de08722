// A session's lock that somebody else holds at the very moment: waited for, never run over.
import { expect, it } from 'vitest';
import { cancelTurn, resumeTurn } from '#core/engine/control-turn.ts';
import { drain } from '#core/engine/lifecycle.ts';
import { patchSession } from '#core/engine/manage-session.ts';
import { startEngine } from '../support/engine.ts';
import { holdMemory } from '../support/hold-memory.ts';
import { emits, gate, restart, turns, writes } from '../support/moments.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { until } from '../support/until.ts';

const usage = { input_tokens: 1000, output_tokens: 100 };
const config = { turn: { max_llm_calls: 50, max_output_tokens: 100, timeout_seconds: null } };

it('a worker that is cancelled while its planner is taken up again is cancelled, and the planner goes on', async () => {
  const t = await startEngine({
    config,
    scenario: scenario(
      planner({ tool_calls: [delegate('job')], usage: { input_tokens: 100, output_tokens: 20 } }, { text: 'end' }),
      worker(
        'job',
        { tool_calls: [call('list_files', {})], usage: { input_tokens: 56_500, output_tokens: 100 } },
        { text: 'never' },
      ),
    ),
  });
  const session = await t.session({ initial_active_model: 'sonnet', max_cost_usd: '0.06' });
  const turnId = await t.submit(session, 'go');
  await t.event('budget.exceeded');
  await t.engine.locks.turn(turnId)?.done;
  const below = (await t.engine.store.turns.allOpen()).find((turn) => turn.session_id !== session.id)!;

  const { journal } = t.engine;
  const { commit } = journal;
  const [ending, taken] = [gate(), gate()];
  journal.commit = async (batch) => {
    if (batch.writes?.some((w) => w.kind === 'turn.end' && w.turn_id === below.id) && emits(batch, 'turn.cancelled')) {
      ending.open();
      await taken.opened;
    }
    const events = await commit(batch);
    if (writes(batch, 'delegation.resume')) void turns(10).then(taken.open);
    return events;
  };
  const cancelled = cancelTurn(t.engine, below.session_id, below.id, null);
  await ending.opened;
  await patchSession(t.engine, session.id, { max_cost_usd: '1' });
  await cancelled;
  expect(await t.ended(turnId)).toMatchObject({ status: 'completed', output: 'end' });
  const [delegation] = (await t.engine.store.delegations.list(session.id, { recursive: false, after: null, limit: 1 }))
    .rows;
  expect(delegation).toMatchObject({ status: 'failed', failure_mode: 'cancelled_by_user' });
  expect(t.typesOf(below.session_id).filter((type) => type === 'turn.resumed')).toEqual([]);
});

it('a drain waits for a turn that is being admitted, which goes on after the next start', async () => {
  const options = { scenario: scenario(planner({ text: 'done', usage })) };
  const t = await startEngine(options);
  const session = await t.session();
  const memory = holdMemory(t, () => true);
  const submitted = t.submit(session, 'go');
  await memory.reached;
  let drained = false;
  const drain1 = drain(t.engine).then(() => {
    drained = true;
  });
  await turns(5);
  expect(drained).toBe(false);
  memory.release();
  const turnId = await submitted;
  await drain1;
  expect(t.engine.locks.activeTurns()).toEqual([]);
  expect(await t.engine.store.turns.open(session.id)).toMatchObject({ id: turnId, status: 'interrupted' });
  expect(t.adapter.requests).toHaveLength(0);
  const next = await restart(t, options);
  expect(await next.ended(turnId)).toMatchObject({ status: 'completed', output: 'done' });
});

it('while a server drains no turn begins and none is taken up again', async () => {
  const options = {
    scenario: scenario(planner({ text: 'slow', delay_ms: 60_000 })),
    config: { recovery: { on_start: 'hold' as const } },
  };
  const first = await startEngine(options);
  const session = await first.session();
  const turnId = await first.submit(session, 'go');
  await first.event('llm.call_started');
  const t = await restart(first, options);
  const other = await t.session();
  await drain(t.engine);
  const refused = { code: 'service_shutting_down' };
  await expect(t.submit(other, 'go')).rejects.toMatchObject(refused);
  await expect(resumeTurn(t.engine, session.id, turnId)).rejects.toMatchObject(refused);
  await until(() => t.engine.locks.activeTurns().length === 0);
  expect((await t.engine.store.turns.allOpen()).map((turn) => turn.status)).toEqual(['interrupted']);
});
