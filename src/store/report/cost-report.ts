// `/analytics/cost` as it was stamped: sums read from the rollups, the ledger only at ragged edges (07 §4, §9.4).

import { allTokens, costRow, costTotals, emptySums, type Sums, workerShare } from '#core/policy/analytics/cost-row.ts';
import {
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
import type { CostAnswer } from '#core/ports/report-reader.ts';
import type { CostQuery, WorkerShare } from '#protocol/analytics.ts';
import {
  type Column,
  groupsSql,
  keyColumn,
  pageSql,
  parentsSql,
  sortMeasures,
  type Where,
  whereFilter,
  whereIn,
} from './cost-sql.ts';
import { type Read, recordedTimes } from './slices.ts';

/** What one query asks for, worked out once. */
export interface CostPlan {
  readonly query: CostQuery;
  readonly keys: readonly KeyName[];
  readonly terms: readonly SortTerm[];
  readonly folded: boolean;
  readonly where: Where;
}

export function planCost(query: CostQuery): CostPlan {
  return {
    query,
    keys: keyNames(query.group_by),
    terms: sortTerms(query.group_by, query.order, query.dir),
    folded: foldsWorkers(query),
    where: whereFilter(query.filter),
  };
}

/** A group: the values of its key columns as stored, and its sums. */
export interface Group {
  readonly values: readonly (bigint | string)[];
  readonly sums: Sums;
}

/** What a worker spent within one row of a folded session. */
export interface WorkerGroup {
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

export interface CostGroups {
  /** Sorted; there may be one more than the page holds. */
  readonly groups: readonly Group[];
  /** Breakdown of the rows when workers are folded, in any order. */
  readonly workers: readonly WorkerGroup[];
  readonly repriced: boolean;
}

const NO_GROUPS: CostGroups = { groups: [], workers: [], repriced: false };

export function costAnswer(plan: CostPlan, totals: Sums, { groups, workers, repriced }: CostGroups): CostAnswer {
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

export function sortValues({ keys, terms }: CostPlan, { values, sums }: Group): SortValues {
  return terms.map(({ by }) => {
    if (by === 'cost') return sums.cost_pusd;
    if (by === 'calls') return sums.calls;
    if (by === 'tokens') return allTokens(sums);
    return values[keys.indexOf(by)]!;
  });
}

/** Identifies a group by its key values, which hold no line break. */
export function groupId(values: Group['values']): string {
  return values.join('\n');
}

export function keyColumns(plan: CostPlan): readonly Column[] {
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
  const dearestFirst = workers.toSorted((a, b) => {
    if (a.sums.cost_pusd !== b.sums.cost_pusd) return a.sums.cost_pusd > b.sums.cost_pusd ? -1 : 1;
    if (a.session_id !== b.session_id) return a.session_id < b.session_id ? -1 : 1;
    return a.model < b.model ? -1 : 1;
  });
  const shares = new Map<string, WorkerShare[]>();
  for (const worker of dearestFirst) {
    const id = groupId(worker.values);
    const share = workerShare(worker.session_id, worker.model, worker.sums);
    const known = shares.get(id);
    if (known) known.push(share);
    else shares.set(id, [share]);
  }
  return shares;
}
