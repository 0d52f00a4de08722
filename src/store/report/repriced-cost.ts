// `/analytics/cost?pricing=`: every call of the window priced again under another version (07 §6, 08 §7).

import { emptySums, type Sums } from '#core/policy/analytics/cost-row.ts';
import { compareSortValues, findGrain, fromSortKey } from '#core/policy/analytics/rollup.ts';
import type { CallPricer, CostAnswer } from '#core/ports/report-reader.ts';
import type { CostQuery } from '#protocol/analytics.ts';
import { MEASURES } from '../schema/rollups.ts';
import {
  type CostPlan,
  costAnswer,
  type Group,
  groupId,
  keyColumns,
  planCost,
  sortValues,
  type WorkerGroup,
} from './cost-report.ts';
import { everywhere } from './cost-sql.ts';
import { type RateGroup, rateGroups } from './rate-groups.ts';
import type { Read } from './slices.ts';

const ADDED = MEASURES.filter((name) => name !== 'cost_pusd' && name !== 'unpriced_calls');

/** A call whose model the version lacks keeps its stamped cost and is counted as missing. */
export async function repricedCost(read: Read, query: CostQuery, pricer: CallPricer): Promise<CostAnswer> {
  const plan = planCost(query);
  const totals = emptySums();
  const groups = new Map<string, Group>();
  const workers = new Map<string, WorkerGroup>();
  const columns = ['model', 'is_worker', ...(plan.folded ? ['session_id'] : [])].map(everywhere);
  const keys = keyColumns(plan);

  const asked = {
    window: query.window,
    columns: [...keys, ...columns],
    where: plan.where,
    pricer,
    byDay: findGrain(query) === 'day',
  };
  for await (const calls of rateGroups(read, asked)) {
    const values = calls.values.slice(0, keys.length);
    const [model, isWorker, session_id] = calls.values.slice(keys.length).map(String) as [string, string, string?];
    const cost = calls.cost(model);
    const add = (sums: Sums) => addCalls(sums, calls, cost, isWorker === '1');
    add(totals);
    if (keys.length === 0) continue;
    const id = groupId(values);
    add(entry(groups, id, () => ({ values, sums: emptySums() })).sums);
    if (session_id === undefined || isWorker === '0') continue;
    const worker = () => ({ values, session_id, model, sums: emptySums() });
    add(entry(workers, groupId([id, session_id, model]), worker).sums);
  }
  return costAnswer(plan, totals, {
    groups: cutPage(plan, [...groups.values()]),
    workers: [...workers.values()],
    repriced: true,
  });
}

/** Groups after the cursor in their order, and one more than the page holds if there is one. */
function cutPage(plan: CostPlan, groups: readonly Group[]): Group[] {
  const compare = compareSortValues(plan.terms);
  const after = plan.query.after && fromSortKey(plan.terms, plan.query.after);
  return groups
    .map((group) => ({ group, values: sortValues(plan, group) }))
    .filter(({ values }) => after === null || compare(values, after) > 0)
    .sort((a, b) => compare(a.values, b.values))
    .slice(0, plan.query.limit + 1)
    .map(({ group }) => group);
}

function entry<T>(map: Map<string, T>, key: string, make: () => T): T {
  let value = map.get(key);
  if (value === undefined) {
    value = make();
    map.set(key, value);
  }
  return value;
}

function addCalls(into: Sums, { sums }: RateGroup, repriced: bigint | null, isWorker: boolean): void {
  const cost = repriced ?? sums.cost_pusd;
  for (const name of ADDED) into[name] += sums[name];
  into.cost_pusd += cost;
  into.stamped_pusd += sums.cost_pusd;
  if (repriced === null) {
    into.missing_calls += sums.calls;
    into.unpriced_calls += sums.unpriced_calls;
  }
  if (isWorker) {
    into.worker_cost_pusd += cost;
    into.worker_calls += sums.calls;
  }
}
