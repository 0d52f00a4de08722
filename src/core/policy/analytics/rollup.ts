// Grouping of calls: dimensions and their key columns, the window split into rollup units, the order of rows (07 §4, §9.4).
import type { CostQuery, Dimension, Direction, Order, SortKey, TimeWindow } from '#protocol/analytics.ts';

export const HOUR_MS = 3_600_000;
export const DAY_MS = 24 * HOUR_MS;

/**
 * Prompt sizes at which the price tables known so far change their rates (08 §4.2). The daily rollup groups calls by them,
 * so that these tables can price its sums. A price table with other steps reads the ledger.
 */
export const PROMPT_CLASSES: readonly number[] = [128_000, 200_000, 256_000, 272_000, 512_000];

/** The class of calls whose sums no rate can price: calls with rounds, fees or a surcharge. */
export const BILLED_APART = -1;

/** The class of a prompt: the number of `PROMPT_CLASSES` that it exceeds. */
export function promptClass(tokens: number): number {
  return PROMPT_CLASSES.filter((size) => tokens > size).length;
}

/** Columns that identify a group. `session_id` of a folded session is its parent key. */
export type KeyName =
  | 'model'
  | 'provider'
  | 'session_id'
  | 'parent_session_id'
  | 'root_session_id'
  | 'is_worker'
  | 'day'
  | 'hour'
  | 'delegation_tier'
  | 'worker_name'
  | 'workspace_hash'
  | 'door'
  | 'caller'
  | 'owner'
  | 'cost_kind'
  | 'effort';

const KEYS: Readonly<Record<Dimension, readonly KeyName[]>> = {
  model: ['model', 'provider'],
  provider: ['provider'],
  session: ['session_id'],
  parent_session: ['parent_session_id'],
  root_session: ['root_session_id'],
  is_worker: ['is_worker'],
  day: ['day'],
  hour: ['hour'],
  delegation_tier: ['delegation_tier'],
  worker_name: ['worker_name'],
  workspace: ['workspace_hash'],
  door: ['door'],
  caller: ['caller'],
  owner: ['owner'],
  cost_kind: ['cost_kind'],
  effort: ['effort'],
};
/** Keys whose stored value is an integer; the others are text. */
export const INTEGER_KEYS: ReadonlySet<KeyName> = new Set(['is_worker', 'day', 'hour']);
/** Keys that are '' in the tables and null on the wire when a call has none. */
export const OPTIONAL_KEYS: ReadonlySet<KeyName> = new Set([
  'delegation_tier',
  'worker_name',
  'caller',
  'owner',
  'effort',
]);

/** Key columns of the dimensions in their order, each once. */
export function keyNames(groupBy: readonly Dimension[]): readonly KeyName[] {
  return [...new Set(groupBy.flatMap((dimension) => KEYS[dimension]))];
}

export function isTimeBucket(dimension: Dimension | undefined): boolean {
  return dimension === 'day' || dimension === 'hour';
}

/** Worker calls are counted in their parent's row (07 §4.3). */
export function isFoldingWorkers(query: Pick<CostQuery, 'group_by' | 'filter'>): boolean {
  return query.filter.include_workers === true && query.group_by.includes('session');
}

/** What a row of the table keeps: a call, a session's hour, a parent's day, a day of everybody. */
export type Grain = 'call' | 'hour' | 'parent_day' | 'day';

/** Filters and dimensions that the daily rollups lack. */
const HOUR_FILTERS = ['session', 'door', 'caller', 'owner'] as const;
const HOUR_DIMENSIONS: ReadonlySet<Dimension> = new Set(['session', 'hour', 'door', 'caller', 'owner']);

/** The coarsest table that can answer. No rollup keeps efforts. */
export function findGrain({ group_by, filter }: Pick<CostQuery, 'group_by' | 'filter'>): Grain {
  if (group_by.includes('effort')) return 'call';
  if (HOUR_FILTERS.some((name) => filter[name] !== null) || group_by.some((d) => HOUR_DIMENSIONS.has(d))) return 'hour';
  const byTree = filter.parent_session !== null || group_by.some((d) => d === 'parent_session' || d === 'root_session');
  if (byTree) return 'parent_day';
  return 'day';
}

/** A half-open range: milliseconds of `calls`, hours or days since the epoch of the rollups. */
export interface Segment {
  readonly source: 'calls' | 'hours' | 'parent_days' | 'days';
  readonly from: number;
  readonly to: number;
}

/**
 * Cuts a window into whole days, whole hours and at most two partial hours. The segments are disjoint and cover it.
 * A bound outside the recorded range counts as aligned.
 * @param recorded first and last time in the ledger, Unix ms; null when it is empty
 */
export function splitWindow(
  window: TimeWindow,
  recorded: { readonly first: number; readonly last: number } | null,
  grain: Grain,
): readonly Segment[] {
  if (!recorded || window.from > recorded.last || window.to <= recorded.first) return [];
  let { from, to } = window;
  if (from <= recorded.first) from = Math.floor(recorded.first / DAY_MS) * DAY_MS;
  if (to > recorded.last) to = (Math.floor(recorded.last / DAY_MS) + 1) * DAY_MS;
  const segments: Segment[] = [];
  const add = (source: Segment['source'], start: number, end: number) => {
    if (start < end) segments.push({ source, from: start, to: end });
  };
  const firstHour = Math.ceil(from / HOUR_MS);
  const lastHour = Math.floor(to / HOUR_MS);
  if (firstHour >= lastHour) {
    add('calls', from, to);
    return segments;
  }
  const firstDay = Math.ceil(firstHour / 24);
  const lastDay = Math.floor(lastHour / 24);
  add('calls', from, firstHour * HOUR_MS);
  if (grain === 'hour' || firstDay >= lastDay) {
    add('hours', firstHour, lastHour);
  } else {
    add('hours', firstHour, firstDay * 24);
    add(grain === 'day' ? 'days' : 'parent_days', firstDay, lastDay);
    add('hours', lastDay * 24, lastHour);
  }
  add('calls', lastHour * HOUR_MS, to);
  return segments;
}

/**
 * Splits a window into whole days since the epoch and the rest in milliseconds; the rest is everything when nothing is
 * recorded. A bound outside the recorded range counts as aligned.
 */
export function splitWholeDays(
  window: TimeWindow,
  recorded: { readonly first: number; readonly last: number } | null,
): { readonly days: TimeWindow | null; readonly rest: readonly TimeWindow[] } {
  const days = splitWindow(window, recorded, 'day').find(({ source }) => source === 'days');
  if (!days) return { days: null, rest: [window] };
  const rest = [
    { from: window.from, to: days.from * DAY_MS },
    { from: days.to * DAY_MS, to: window.to },
  ];
  return { days, rest: rest.filter(({ from, to }) => from < to) };
}

/** Whether the window covers the whole recorded range. */
export function coversAll(window: TimeWindow, recorded: { readonly first: number; readonly last: number }): boolean {
  return window.from <= recorded.first && window.to > recorded.last;
}

export interface SortTerm {
  readonly by: KeyName | Exclude<Order, 'key'>;
  readonly desc: boolean;
}

/** The complete order of rows: no two groups compare equal. Null keys come last in either direction (07 §4.4). */
export function buildSortTerms(groupBy: readonly Dimension[], order: Order, dir: Direction): readonly SortTerm[] {
  const names = keyNames(groupBy);
  const desc = dir === 'desc';
  if (order !== 'key') return [{ by: order, desc }, ...names.map((by) => ({ by, desc: false }))];
  const [bucket, ...rest] = names;
  if (bucket && groupBy.length === 2 && isTimeBucket(groupBy[0])) {
    return [{ by: bucket, desc }, { by: 'cost', desc: true }, ...rest.map((by) => ({ by, desc: false }))];
  }
  return names.map((by) => ({ by, desc }));
}

/** Whether the value of this term is an integer. */
export function isIntegerTerm(term: SortTerm): boolean {
  return term.by === 'cost' || term.by === 'calls' || term.by === 'tokens' || INTEGER_KEYS.has(term.by);
}

/** A group's value for each sort term: integers as bigint, text as it is stored. */
export type SortValues = readonly (bigint | string)[];

/** Compares two groups by the values of their sort terms. */
export function compareSortValues(terms: readonly SortTerm[]): (a: SortValues, b: SortValues) => number {
  return (a, b) => {
    for (const [i, term] of terms.entries()) {
      const left = a[i]!;
      const right = b[i]!;
      if (left === right) continue;
      if (left === '') return 1;
      if (right === '') return -1;
      const order = compareValues(left, right);
      if (term.desc) return -order;
      return order;
    }
    return 0;
  };
}

/** Texts as in SQLite's BINARY collation: UTF-8 bytes, which is code point order. */
function compareValues(a: bigint | string, b: bigint | string): number {
  if (typeof a !== 'bigint' || typeof b !== 'bigint')
    return Buffer.compare(Buffer.from(String(a)), Buffer.from(String(b)));
  if (a < b) return -1;
  return 1;
}

export function toSortKey(values: SortValues): SortKey {
  return values.map(String);
}

/** The sort values a cursor carries; null when they do not fit the terms. */
export function fromSortKey(terms: readonly SortTerm[], key: readonly unknown[]): SortValues | null {
  if (key.length !== terms.length) return null;
  const values: (bigint | string)[] = [];
  for (const [i, term] of terms.entries()) {
    const value = key[i];
    if (typeof value !== 'string') return null;
    if (!isIntegerTerm(term)) values.push(value);
    else if (/^-?\d{1,19}$/.test(value) && BigInt.asIntN(64, BigInt(value)) === BigInt(value))
      values.push(BigInt(value));
    else return null;
  }
  return values;
}
