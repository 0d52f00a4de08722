// A worker's session and delegation are stored with its first turn, or, where there is none, with its end (04 §5.1, §5.4).
import { expect, test } from 'vitest';
import { cancelTurn } from '#core/engine/control-turn.ts';
import { drain } from '#core/engine/lifecycle.ts';
import { startEngine } from '../support/engine.ts';
import { holdMemory } from '../support/hold-memory.ts';
import { delegate, planner, scenario, worker } from '../support/scenario.ts';
import { until } from '../support/until.ts';

async function preparing() {
  const t = await startEngine({
    scenario: scenario(planner({ tool_calls: [delegate('job')] }, { text: 'end' }), worker('job', { text: 'x' })),
    config: { shutdown: { drain_seconds: 0 } },
  });
  const session = await t.session();
  const memory = holdMemory(t, () => t.events.some((e) => e.type === 'tool.called'));
  const id = await t.submit(session, 'go');
  await memory.reached;
  return { t, session, id, memory };
}

test('cancelled before its first turn, a worker is opened and closed, once each', async () => {
  const { t, session, id, memory } = await preparing();
  await cancelTurn(t.engine, session.id, id, null);
  memory.release();
  await t.ended(id);
  const own = t.events.filter((e) => e.session_id !== session.id).map((e) => e.type);
  expect(own).toEqual(['session.created', 'session.ended']);
  const reported = t.typesOf(session.id).filter((type) => type.startsWith('delegate.'));
  expect(reported).toEqual(['delegate.started', 'delegate.failed']);
  const started = t.events.find((e) => e.type === 'delegate.started')!;
  expect(t.events.find((e) => e.type === 'delegate.failed')!.parent_event_id).toBe(started.id);
  expect(await t.engine.store.delegations.allOpen()).toEqual([]);
});

test('interrupted before its first turn, a worker is opened and waits', async () => {
  const { t, session, memory } = await preparing();
  expect(t.engine.locks.activeTurns()).toHaveLength(1);
  const drained = drain(t.engine);
  // Its time is over at once: the planner's scope is cancelled, and its worker's with it.
  await until(() => t.engine.locks.activeTurns().every((turn) => turn.scope.signal.aborted));
  memory.release();
  await drained;
  expect(t.events.filter((e) => e.session_id !== session.id).map((e) => e.type)).toEqual(['session.created']);
  expect(t.typesOf(session.id).filter((type) => type.startsWith('delegate.'))).toEqual(['delegate.started']);
  const [open, ...more] = await t.engine.store.delegations.allOpen();
  expect(open).toMatchObject({ status: 'interrupted' });
  expect(more).toEqual([]);
  expect(await t.engine.store.sessions.record(open!.worker_session_id!)).toMatchObject({ ended_at: null });
});
