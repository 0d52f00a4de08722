// `/analytics/cost` as it was stamped: sums read from the rollups, the ledger only for partial hours (07 §4, §9.4).
import {
  allTokens,
  buildCostTotals,
  buildWorkerShare,
  costRow,
  emptySums,
  type Sums,
} from '#core/policy/analytics/cost-row.ts';
import {
  buildSortTerms,
  compareSortValues,
  coversAll,
  findGrain,
  fromSortKey,
  isFoldingWorkers,
  type KeyName,
  keyNames,
  type SortTerm,
  type SortValues,
  splitWindow,
  toSortKey,
} from '#core/policy/analytics/rollup.ts';
import type { CallPricer, CostAnswer } from '#core/ports/report-reader.ts';
import type { CostKind, CostQuery, SimulatedPart, WorkerShare } from '#protocol/analytics.ts';
import { MEASURES } from '../schema/rollups.ts';
import { rateGroups } from './billed-calls.ts';
import {
  type Column,
  everywhere,
  groupsSql,
  keyColumn,
  pageSql,
  parentsSql,
  type Sources,
  sortMeasures,
  type Where,
  whereFilter,
  whereIn,
} from './cost-sql.ts';
import { separateSimulated } from './simulated-part.ts';
import { type CostParts, type RateGroup, type Read, recordedTimes, sumParts } from './slices.ts';

/** The plan of one query. */
interface CostPlan {
  readonly query: CostQuery;
  readonly keys: readonly KeyName[];
  readonly terms: readonly SortTerm[];
  readonly folded: boolean;
  readonly where: Where;
  readonly simulated: SimulatedPart;
}

async function planCost(read: Read, asked: CostQuery): Promise<CostPlan> {
  const { query, simulated } = await separateSimulated(read, asked);
  return {
    query,
    simulated,
    keys: keyNames(query.group_by),
    terms: buildSortTerms(query.group_by, query.order, query.dir),
    folded: isFoldingWorkers(query),
    where: whereFilter(query.filter),
  };
}

/** A group: the values of its key columns as stored, and its sums. */
interface Group {
  readonly values: readonly (bigint | string)[];
  readonly sums: Sums;
}

/** The part of a worker in one row of a folded session. */
interface WorkerGroup {
  readonly values: Group['values'];
  readonly session_id: string;
  readonly model: string;
  readonly sums: Sums;
}

/** From rollups. @param read of one read transaction, so that rows and totals agree. Throws when a sum leaves the range of a money column. */
export async function stampedCost(read: Read, asked: CostQuery): Promise<CostAnswer> {
  const plan = await planCost(read, asked);
  const { query } = plan;
  const recorded = await recordedTimes(read);
  const billed = splitWindow(query.window, recorded, 'hour');
  const segments = { segments: splitWindow(query.window, recorded, findGrain(query)), billed };
  if (billed.length === 0 || !recorded) return costAnswer(plan, emptySums(), NO_GROUPS);
  const grain = findGrain({ group_by: [], filter: query.filter });
  const whole = { segments: splitWindow(query.window, recorded, grain), billed };
  const totals = (await readGroups(read, groupsSql(whole, [], plan.where), 0))[0]!.sums;
  if (plan.keys.length === 0) return costAnswer(plan, totals, NO_GROUPS);
  const rows = await readPage(read, plan, segments, coversAll(query.window, recorded));
  const workers = plan.folded ? await readWorkers(read, plan, segments, rows) : [];
  return costAnswer(plan, totals, { groups: rows, workers, repriced: false });
}

interface CostGroups {
  /** Sorted; may hold one more than the page. */
  readonly groups: readonly Group[];
  /** Breakdown of the rows when workers are folded, in any order. */
  readonly workers: readonly WorkerGroup[];
  readonly repriced: boolean;
}

const NO_GROUPS: CostGroups = { groups: [], workers: [], repriced: false };

function costAnswer(plan: CostPlan, totals: Sums, { groups, workers, repriced }: CostGroups): CostAnswer {
  const wireTotals = buildCostTotals(totals, repriced);
  const { simulated } = plan;
  if (plan.keys.length === 0) return { data: wireTotals, totals: wireTotals, simulated, next: null };
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
    simulated,
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
  return plan.keys.map((name) => keyColumn(name, plan.folded, plan.query.filter.reader));
}

/** Keys with one value per session. Groups by them are many, so they are ranked by few columns first. */
const MANY: readonly KeyName[] = ['session_id', 'parent_session_id', 'root_session_id'];

/**
 * Groups of the page in their order, and one more if there is one.
 * @param all everything recorded is asked for
 */
async function readPage(read: Read, plan: CostPlan, segments: Sources, all: boolean): Promise<Group[]> {
  const { query, keys, terms, where } = plan;
  const columns = keyColumns(plan);
  const after = query.after && fromSortKey(terms, query.after);
  const page = (groups: Where) => pageSql(groups, { keys, terms, after, limit: query.limit + 1 });
  const many = keys.findIndex((key) => MANY.includes(key));
  if (many < 0) return readGroups(read, page(groupsSql(segments, columns, where)), keys.length);

  const everyParent =
    all && query.filter.reader === undefined && where.sql === '' && keys.join() === 'parent_session_id';
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
  segments: Sources,
  rows: readonly Group[],
): Promise<WorkerGroup[]> {
  const session = plan.keys.indexOf('session_id');
  const parents = rows.map((row) => row.values[session]);
  const where = whereIn({ ...plan.where, sql: `${plan.where.sql} AND is_worker = 1` }, 'parent_key', parents);
  const { reader } = plan.query.filter;
  const columns = [...keyColumns(plan), keyColumn('session_id', false, reader), keyColumn('model', false)];
  return (await readGroups(read, groupsSql(segments, columns, where), columns.length)).map(({ values, sums }) => ({
    values: values.slice(0, -2),
    session_id: String(values.at(-2)),
    model: String(values.at(-1)),
    sums,
  }));
}

function sharesByGroup(workers: readonly WorkerGroup[]): Map<string, WorkerShare[]> {
  const mostExpensiveFirst = workers.toSorted((a, b) => {
    if (a.sums.cost_pusd !== b.sums.cost_pusd) {
      if (a.sums.cost_pusd > b.sums.cost_pusd) return -1;
      return 1;
    }
    if (a.session_id !== b.session_id) {
      if (a.session_id < b.session_id) return -1;
      return 1;
    }
    if (a.model < b.model) return -1;
    return 1;
  });
  const shares = new Map<string, WorkerShare[]>();
  for (const worker of mostExpensiveFirst) {
    const id = groupId(worker.values);
    const share = buildWorkerShare(worker.session_id, worker.model, worker.sums);
    const known = shares.get(id);
    if (known) known.push(share);
    else shares.set(id, [share]);
  }
  return shares;
}

// `/analytics/cost?pricing=`: every call of the window priced again under another version (07 §6, 08 §7).

const ADDED = MEASURES.filter((name) => name !== 'cost_pusd' && name !== 'unpriced_calls');

/** Without prices every call keeps its stamped cost. */
const NO_PRICES: CallPricer = { version: '', source: '', models: {}, ratesFor: () => null };

/** Whether the answer is read from single calls in slices: for other prices, and for what no rollup keeps. */
export function isSliced(query: CostQuery, pricer: CallPricer | null): boolean {
  return pricer !== null || findGrain(query) === 'call';
}

/**
 * A call whose model the version lacks keeps its stamped cost and is counted as missing.
 * @param pricer null = what was stamped
 */
export async function slicedCost(read: Read, given: CostQuery, pricer: CallPricer | null): Promise<CostAnswer> {
  const plan = await planCost(read, given);
  const { query } = plan;
  const totals = emptySums();
  const groups = new Map<string, Group>();
  const workers = new Map<string, WorkerGroup>();
  const columns = ['model', 'is_worker'].map(everywhere);
  if (plan.folded) columns.push(keyColumn('session_id', false, query.filter.reader));
  const keys = keyColumns(plan);
  const kindAt = plan.keys.indexOf('cost_kind');

  const asked = {
    window: query.window,
    columns: [...keys, ...columns],
    where: plan.where,
    pricer: pricer ?? NO_PRICES,
    byDay: findGrain(query) === 'day',
  };
  for await (const calls of rateGroups(read, asked)) {
    const own = calls.values.slice(0, keys.length);
    const [model, isWorker, session_id] = calls.values.slice(keys.length).map(String) as [string, string, string?];
    const cost = calls.cost(model);
    addCalls(totals, calls, { cost, isWorker: isWorker === '1' });
    if (keys.length === 0) continue;
    for (const part of splitKinds(calls, cost, kindAt >= 0)) {
      const values = own.map((value, at) => (at === kindAt && part.kind) || value);
      const id = groupId(values);
      const add = ({ sums }: { readonly sums: Sums }) =>
        addCalls(sums, part.calls, { cost: part.cost, isWorker: isWorker === '1' });
      add(entry(groups, id, () => ({ values, sums: emptySums() })));
      if (session_id === undefined || isWorker === '0') continue;
      const worker = () => ({ values, session_id, model, sums: emptySums() });
      add(entry(workers, groupId([id, session_id, model]), worker));
    }
  }
  return costAnswer(plan, totals, {
    groups: cutPage(plan, [...groups.values()]),
    workers: [...workers.values()],
    repriced: pricer !== null,
  });
}

interface KindOfCost {
  readonly kind: CostKind;
  readonly calls: Pick<RateGroup, 'sums'>;
  readonly cost: CostParts | null;
}

/** The calls once; with `byKind` their cost by its kinds, everything else with the tokens. */
function splitKinds(calls: RateGroup, cost: CostParts | null, byKind: boolean): readonly KindOfCost[] {
  if (!byKind) return [{ kind: 'tokens', calls, cost }];
  const { sums } = calls;
  const { fees_pusd = 0n, surcharge_pusd = 0n } = sums;
  const tokens = { ...sums, cost_pusd: sums.cost_pusd - fees_pusd - surcharge_pusd };
  const nothing = Object.fromEntries(
    Object.keys(emptySums()).map((name) => [name, 0n]),
  ) as unknown as RateGroup['sums'];
  const only = (part: Partial<CostParts>) => cost && { tokens: 0n, fees: 0n, surcharge: 0n, ...part };
  const kinds: readonly KindOfCost[] = [
    { kind: 'tokens', calls: { sums: tokens }, cost: only({ tokens: cost?.tokens ?? 0n }) },
    { kind: 'fees', calls: { sums: { ...nothing, cost_pusd: fees_pusd } }, cost: only({ fees: cost?.fees ?? 0n }) },
    {
      kind: 'surcharge',
      calls: { sums: { ...nothing, cost_pusd: surcharge_pusd } },
      cost: only({ surcharge: cost?.surcharge ?? 0n }),
    },
  ];
  return kinds.filter((one) => one.kind === 'tokens' || one.calls.sums.cost_pusd !== 0n || sumCost(one.cost) !== 0n);
}

function sumCost(cost: CostParts | null): bigint {
  if (cost === null) return 0n;
  return sumParts(cost);
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

function addCalls(
  into: Sums,
  { sums }: Pick<RateGroup, 'sums'>,
  { cost: repriced, isWorker }: { readonly cost: CostParts | null; readonly isWorker: boolean },
): void {
  for (const name of ADDED) into[name] += sums[name];
  into.stamped_pusd += sums.cost_pusd;
  into.rounds_unknown_calls += sums.rounds_unknown_calls ?? 0n;
  let cost = sums.cost_pusd;
  if (repriced !== null) cost = sumParts(repriced);
  else {
    into.missing_calls += sums.calls;
    into.unpriced_calls += sums.unpriced_calls;
    into.fees_unpriced_calls += sums.fees_unpriced_calls ?? 0n;
    into.surcharge_unknown_calls += sums.surcharge_unknown_calls ?? 0n;
  }
  into.cost_pusd += cost;
  if (isWorker) {
    into.worker_cost_pusd += cost;
    into.worker_calls += sums.calls;
  }
}
