// A call that is announced with the step before it: only where nothing can keep it from leaving (00 §3, 14 §3).
import { expect, test } from 'vitest';
import { drain } from '#core/engine/lifecycle.ts';
import { patchSession } from '#core/engine/manage-session.ts';
import type { Journal } from '#core/ports/journal-writer.ts';
import { startEngine } from '../support/engine.ts';
import { holdMemory } from '../support/hold-memory.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';

const usage = { input_tokens: 1000, output_tokens: 100 };
const TINY = { max_cost_usd: '0.000001', on_reached: 'stop' } as const;
const twoCalls = () =>
  startEngine({
    scenario: scenario(planner({ tool_calls: [call('list_files', {})], usage }, { text: 'done', usage })),
  });

test('calls of a turn without a limit are announced in the transaction of the step before them', async () => {
  const t = await twoCalls();
  const session = await t.session();
  const batches: string[][] = [];
  const real = t.engine.journal.commit;
  const commit: Journal['commit'] = (batch) => {
    batches.push([...(batch.writes ?? []).map((w) => w.kind), ...batch.emit.map((e) => ('type' in e ? e.type : ''))]);
    return real(batch);
  };
  Object.assign(t.engine.journal, { commit });
  await t.run(session, 'go');
  const announcing = batches.filter((batch) => batch.includes('llm.call_started'));
  expect(announcing).toEqual([
    expect.arrayContaining(['turn.insert', 'turn.started', 'route.decided']),
    expect.arrayContaining(['message.insert', 'tool_call.answer']),
  ]);
});

test('a limit that is set while the next call is prepared covers it', async () => {
  const t = await twoCalls();
  const session = await t.session();
  const memory = holdMemory(t, () => t.events.some((e) => e.type === 'tool.completed'));
  const id = await t.submit(session, 'go');
  await memory.reached;
  await patchSession(t.engine, session.id, TINY);
  memory.release();
  expect((await t.ended(id)).stop_reason).toBe('budget_exceeded');
  expect(t.adapter.requests).toHaveLength(1);
  expect(t.typesOf(session.id).filter((type) => type === 'llm.call_started')).toHaveLength(1);
});

// Promise 14.1: A limit that is set while a call is being announced covers that call.
test.each([
  ['turn.insert', 0],
  ['tool_call.answer', 1],
] as const)('a limit that is set while the batch with %s waits lets no further call leave', async (kind, requests) => {
  const t = await twoCalls();
  const session = await t.session();
  const real = t.engine.journal.commit;
  let done = false;
  const commit: Journal['commit'] = async (batch) => {
    if (!done && batch.writes?.some((write) => write.kind === kind)) {
      done = true;
      await patchSession(t.engine, session.id, TINY);
    }
    return real(batch);
  };
  Object.assign(t.engine.journal, { commit });
  const turn = await t.ended(await t.submit(session, 'go'));
  expect(turn.stop_reason).toBe('budget_exceeded');
  expect(t.adapter.requests).toHaveLength(requests);
  // Announced it was, so it has its outcome, and cost nothing.
  const outcomes = ['llm.call_started', 'llm.call_completed', 'llm.call_failed'];
  const calls = t.typesOf(session.id).filter((type) => outcomes.includes(type));
  expect(calls.slice(-2)).toEqual(['llm.call_started', 'llm.call_failed']);
  expect(calls).toHaveLength(2 * requests + 2);
});

test('nothing is announced any more while the server drains', async () => {
  const t = await startEngine({
    scenario: scenario(
      planner({ tool_calls: [delegate('job')], usage }, { text: 'end', usage }),
      worker('job', { text: 'x', usage }),
    ),
  });
  const session = await t.session();
  const memory = holdMemory(t, () => t.events.some((e) => e.type === 'tool.called'));
  await t.submit(session, 'go');
  await memory.reached;
  const drained = drain(t.engine);
  memory.release();
  await drained;
  expect(t.events.filter((e) => e.type === 'llm.call_started')).toHaveLength(1);
  expect(t.adapter.requests).toHaveLength(1);
});
