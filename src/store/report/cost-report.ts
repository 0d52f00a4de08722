// `/analytics/cost` as it was stamped: sums read from the rollups, the ledger only at ragged edges (07 §4, §9.4).
import { allTokens, costRow, costTotals, emptySums, type Sums, workerShare } from '#core/policy/analytics/cost-row.ts';
import {
  compareSortValues,
  coversAll,
  findGrain,
  foldsWorkers,
  fromSortKey,
  type KeyName,
  keyNames,
  type Segment,
  type SortTerm,
  type SortValues,
  sortTerms,
  splitWindow,
  toSortKey,
} from '#core/policy/analytics/rollup.ts';
import type { CallPricer, CostAnswer } from '#core/ports/report-reader.ts';
import type { CostQuery, WorkerShare } from '#protocol/analytics.ts';
import { MEASURES } from '../schema/rollups.ts';
import {
  type Column,
  everywhere,
  groupsSql,
  keyColumn,
  pageSql,
  parentsSql,
  sortMeasures,
  type Where,
  whereFilter,
  whereIn,
} from './cost-sql.ts';
import { type RateGroup, type Read, rateGroups, recordedTimes } from './slices.ts';

/** What one query asks for, worked out once. */
interface CostPlan {
  readonly query: CostQuery;
  readonly keys: readonly KeyName[];
  readonly terms: readonly SortTerm[];
  readonly folded: boolean;
  readonly where: Where;
}

function planCost(query: CostQuery): CostPlan {
  return {
    query,
    keys: keyNames(query.group_by),
    terms: sortTerms(query.group_by, query.order, query.dir),
    folded: foldsWorkers(query),
    where: whereFilter(query.filter),
  };
}

/** A group: the values of its key columns as stored, and its sums. */
interface Group {
  readonly values: readonly (bigint | string)[];
  readonly sums: Sums;
}

/** What a worker spent within one row of a folded session. */
interface WorkerGroup {
  readonly values: Group['values'];
  readonly session_id: string;
  readonly model: string;
  readonly sums: Sums;
}

/** @param read of one read transaction, so that rows and totals agree. Throws when a sum leaves the range of a money column. */
export async function stampedCost(read: Read, query: CostQuery): Promise<CostAnswer> {
  const plan = planCost(query);
  const recorded = await recordedTimes(read);
  const segments = splitWindow(query.window, recorded, findGrain(query));
  if (segments.length === 0 || !recorded) return costAnswer(plan, emptySums(), NO_GROUPS);
  const whole = splitWindow(query.window, recorded, findGrain({ group_by: [], filter: query.filter }));
  const totals = (await readGroups(read, groupsSql(whole, [], plan.where), 0))[0]!.sums;
  if (plan.keys.length === 0) return costAnswer(plan, totals, NO_GROUPS);
  const rows = await readPage(read, plan, segments, coversAll(query.window, recorded));
  const workers = plan.folded ? await readWorkers(read, plan, segments, rows) : [];
  return costAnswer(plan, totals, { groups: rows, workers, repriced: false });
}

interface CostGroups {
  /** Sorted; there may be one more than the page holds. */
  readonly groups: readonly Group[];
  /** Breakdown of the rows when workers are folded, in any order. */
  readonly workers: readonly WorkerGroup[];
  readonly repriced: boolean;
}

const NO_GROUPS: CostGroups = { groups: [], workers: [], repriced: false };

function costAnswer(plan: CostPlan, totals: Sums, { groups, workers, repriced }: CostGroups): CostAnswer {
  const wireTotals = costTotals(totals, repriced);
  if (plan.keys.length === 0) return { data: wireTotals, totals: wireTotals, next: null };
  const page = groups.slice(0, plan.query.limit);
  const last = groups.length > page.length ? page.at(-1) : undefined;
  const shape = { group_by: plan.query.group_by, keys: plan.keys, repriced };
  const shares = plan.folded ? sharesByGroup(workers) : null;
  return {
    data: page.map((group) => {
      const row = costRow(shape, group.values, group.sums);
      if (shares) row.workers = shares.get(groupId(group.values)) ?? [];
      return row;
    }),
    totals: wireTotals,
    next: last ? toSortKey(sortValues(plan, last)) : null,
  };
}

function sortValues({ keys, terms }: CostPlan, { values, sums }: Group): SortValues {
  return terms.map(({ by }) => {
    if (by === 'cost') return sums.cost_pusd;
    if (by === 'calls') return sums.calls;
    if (by === 'tokens') return allTokens(sums);
    return values[keys.indexOf(by)]!;
  });
}

/** Identifies a group by its key values, which hold no line break. */
function groupId(values: Group['values']): string {
  return values.join('\n');
}

function keyColumns(plan: CostPlan): readonly Column[] {
  return plan.keys.map((name) => keyColumn(name, plan.folded));
}

/** Keys of which there is one per session: grouping by them is worth ranking narrow rows first. */
const MANY: readonly KeyName[] = ['session_id', 'parent_session_id', 'root_session_id'];

/**
 * Groups of the page in their order, and one more if there is one.
 * @param all everything recorded is asked for
 */
async function readPage(read: Read, plan: CostPlan, segments: readonly Segment[], all: boolean): Promise<Group[]> {
  const { query, keys, terms, where } = plan;
  const columns = keyColumns(plan);
  const after = query.after && fromSortKey(terms, query.after);
  const page = (groups: Where) => pageSql(groups, { keys, terms, after, limit: query.limit + 1 });
  const many = keys.findIndex((key) => MANY.includes(key));
  if (many < 0) return readGroups(read, page(groupsSql(segments, columns, where)), keys.length);

  const everyParent = all && where.sql === '' && keys.join() === 'parent_session_id';
  const rank = page(
    everyParent ? parentsSql(sortMeasures(terms)) : groupsSql(segments, columns, where, sortMeasures(terms)),
  );
  const ranked = (await read<KeyRow>(rank.sql, ...rank.values)).map((row) => keyValues(row, keys.length));
  const sessions = ranked.map((values) => values[many]);
  const wanted = groupsSql(segments, columns, whereIn(where, columns[many]!.calls, sessions));
  const groups = new Map((await readGroups(read, wanted, keys.length)).map((group) => [groupId(group.values), group]));
  return ranked.map((values) => groups.get(groupId(values))!);
}

type KeyRow = Readonly<Record<`k${number}`, bigint | string>>;

function keyValues(row: KeyRow, count: number): Group['values'] {
  return Array.from({ length: count }, (_, i) => row[`k${i}`]!);
}

async function readGroups(read: Read, { sql, values }: Where, keyCount: number): Promise<Group[]> {
  const rows = await read<Sums & KeyRow>(sql, ...values);
  return rows.map((sums) => ({ values: keyValues(sums, keyCount), sums }));
}

/** Worker calls behind the rows of a page, one group per row, worker session and model. */
async function readWorkers(
  read: Read,
  plan: CostPlan,
  segments: readonly Segment[],
  rows: readonly Group[],
): Promise<WorkerGroup[]> {
  const session = plan.keys.indexOf('session_id');
  const parents = rows.map((row) => row.values[session]);
  const where = whereIn({ ...plan.where, sql: `${plan.where.sql} AND is_worker = 1` }, 'parent_key', parents);
  const columns = [...keyColumns(plan), keyColumn('session_id', false), keyColumn('model', false)];
  return (await readGroups(read, groupsSql(segments, columns, where), columns.length)).map(({ values, sums }) => ({
    values: values.slice(0, -2),
    session_id: String(values.at(-2)),
    model: String(values.at(-1)),
    sums,
  }));
}

function sharesByGroup(workers: readonly WorkerGroup[]): Map<string, WorkerShare[]> {
  const mostExpensiveFirst = workers.toSorted((a, b) => {
    if (a.sums.cost_pusd !== b.sums.cost_pusd) return a.sums.cost_pusd > b.sums.cost_pusd ? -1 : 1;
    if (a.session_id !== b.session_id) return a.session_id < b.session_id ? -1 : 1;
    return a.model < b.model ? -1 : 1;
  });
  const shares = new Map<string, WorkerShare[]>();
  for (const worker of mostExpensiveFirst) {
    const id = groupId(worker.values);
    const share = workerShare(worker.session_id, worker.model, worker.sums);
    const known = shares.get(id);
    if (known) known.push(share);
    else shares.set(id, [share]);
  }
  return shares;
}

// `/analytics/cost?pricing=`: every call of the window priced again under another version (07 §6, 08 §7).

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
