// What a turn says it cost against what the ledger has: workers are never part of their planner's turn.
import { expect, it } from 'vitest';
import { parseCostQuery } from '#core/policy/analytics/query.ts';
import type { PayloadOf } from '#protocol/event.ts';
import { createAnalytics } from '#store/sqlite/report/analytics.ts';
import { verifySqliteRollups } from '#store/sqlite/write/sqlite-maintenance.ts';
import { startEngine } from '../support/engine.ts';
import { delegate, planner, scenario, worker } from '../support/scenario.ts';

// Promise 07.8: A turn that delegates costs its own calls only.
it('a turn that delegates costs what its own calls cost, and its tree that plus the worker', async () => {
  const t = await startEngine({
    scenario: scenario(
      planner(
        { tool_calls: [delegate('count the files')], usage: { input_tokens: 1000, output_tokens: 50 } },
        { text: 'three', usage: { input_tokens: 1200, output_tokens: 10 } },
      ),
      worker('count the files', { text: 'there are three', usage: { input_tokens: 400, output_tokens: 20 } }),
    ),
  });
  const session = await t.session();
  await t.run(session, 'how many files?');
  const ended = t.events.find((e) => e.type === 'turn.completed' && e.session_id === session.id)!;
  const payload = ended.payload as PayloadOf<'turn.completed'>;

  const query = parseCostQuery({ group_by: 'parent_session', from: 'all' }, t.engine.clock.now() + 1);
  if (!query.ok) throw new Error('the query is well formed');
  const { data } = await createAnalytics(t.db.reader).cost(query.value.query, null);
  expect(data).toMatchObject([
    { parent_session_id: session.id, planner_cost_usd: payload.total_cost_usd, call_count: 3, worker_call_count: 1 },
  ]);
  expect(payload).toMatchObject({ total_cost_usd: '0.0375', llm_call_count: 2, total_input_tokens: 2200 });
  expect(data).toMatchObject([{ cost_usd: '0.038', worker_cost_usd: '0.0005' }]);
  expect(verifySqliteRollups(t.db.reader)).toEqual([]);
});
