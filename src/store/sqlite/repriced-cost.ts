// `/analytics/cost?pricing=`: every call of the window priced again under another version (07 §6, 08 §7).
import type { CostQuery } from '../../domain/analytics.ts';
import { emptySums, type Sums } from '../../policy/cost-row.ts';
import { compareSortValues, fromSortKey } from '../../policy/rollup.ts';
import type { CallPricer, CostAnswer } from '../../ports/analytics.ts';
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
import { CALL_MEASURES } from './cost-sql.ts';
import { MEASURES } from './ledger.ts';
import { type LedgerUsage, tokenUsage } from './ledger-usage.ts';
import { ledgerSlices, type Prepare } from './slices.ts';

const ADDED = MEASURES.filter((name) => name !== 'cost_pusd' && name !== 'unpriced_calls');

interface CallRow extends LedgerUsage, Readonly<Record<(typeof MEASURES)[number], bigint>> {
  readonly session_id: string;
  readonly is_worker: bigint;
  /** Key columns. */
  readonly [key: `k${number}`]: bigint | string;
}

/** A call whose model the version lacks keeps its stamped cost and is counted as missing. */
export async function repricedCost(prepare: Prepare, query: CostQuery, pricer: CallPricer): Promise<CostAnswer> {
  const plan = planCost(query);
  const fold = new RepricedGroups(plan, pricer);
  const statement = prepare(callsSql(plan)).safeIntegers();
  for await (const { from, to, through } of ledgerSlices(prepare, query.window)) {
    fold.add(statement.all(from, to, through, ...plan.where.values) as CallRow[]);
  }
  return fold.answer();
}

function callsSql(plan: CostPlan): string {
  const keys = keyColumns(plan).map((column, i) => `${column.calls} AS k${i}`);
  const measures = MEASURES.map((name) => `${CALL_MEASURES[name]} AS ${name}`);
  return `SELECT ${[...keys, 'session_id', 'model', 'is_worker', ...measures].join(', ')} FROM llm_calls
    WHERE ts_ms >= ? AND ts_ms < ? AND rowid <= ?${plan.where.sql}`;
}

class RepricedGroups {
  private readonly totals = emptySums();
  private readonly groups = new Map<string, Group>();
  private readonly workers = new Map<string, WorkerGroup>();

  constructor(
    private readonly plan: CostPlan,
    private readonly pricer: CallPricer,
  ) {}

  add(calls: readonly CallRow[]): void {
    for (const call of calls) {
      const { cost_pusd, priced } = this.pricer.cost(call.model, tokenUsage(call));
      const cost = priced ? cost_pusd : call.cost_pusd;
      for (const sums of this.sumsOf(call)) addCall(sums, call, cost, priced);
    }
  }

  answer(): CostAnswer {
    const { plan } = this;
    const compare = compareSortValues(plan.terms);
    const after = plan.query.after && fromSortKey(plan.terms, plan.query.after);
    const sorted = [...this.groups.values()]
      .map((group) => ({ group, values: sortValues(plan, group) }))
      .filter(({ values }) => after === null || compare(values, after) > 0)
      .sort((a, b) => compare(a.values, b.values));
    const page = sorted.slice(0, plan.query.limit + 1).map(({ group }) => group);
    return costAnswer(plan, this.totals, page, [...this.workers.values()], true);
  }

  /** Every sum the call counts in. */
  private *sumsOf(call: CallRow): Generator<Sums> {
    yield this.totals;
    if (this.plan.keys.length === 0) return;
    const values = this.plan.keys.map((_, i) => call[`k${i}`]!);
    const id = groupId(values);
    yield entry(this.groups, id, () => ({ values, sums: emptySums() })).sums;
    if (!this.plan.folded || call.is_worker === 0n) return;
    const { session_id, model } = call;
    yield entry(this.workers, `${id}\n${session_id}\n${model}`, () => ({
      values,
      session_id,
      model,
      sums: emptySums(),
    })).sums;
  }
}

function entry<T>(map: Map<string, T>, key: string, make: () => T): T {
  let value = map.get(key);
  if (value === undefined) {
    value = make();
    map.set(key, value);
  }
  return value;
}

function addCall(sums: Sums, call: CallRow, cost: bigint, priced: boolean): void {
  for (const name of ADDED) sums[name] += call[name];
  sums.cost_pusd += cost;
  sums.stamped_pusd += call.cost_pusd;
  if (!priced) {
    sums.missing_calls += 1n;
    sums.unpriced_calls += call.unpriced_calls;
  }
  if (call.is_worker === 1n) {
    sums.worker_cost_pusd += cost;
    sums.worker_calls += 1n;
  }
}
