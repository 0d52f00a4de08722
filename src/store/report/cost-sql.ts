// The closed table from dimensions, filters and orders to literal SQL. No request text enters a statement (07 §1).

import type { KeyName, Segment, SortTerm, SortValues } from '#core/policy/analytics/rollup.ts';
import { OPTIONAL_KEYS } from '#core/policy/analytics/rollup.ts';
import type { CallFilter } from '#protocol/analytics.ts';
import { CALL_MEASURES, MEASURES } from '../schema/rollups.ts';
import { sumIntegers } from '../schema/words.ts';

/** An expression over each of the sources. */
export type Column = Readonly<Record<Segment['source'], string>>;

/** A column that all sources have under one name. */
export function everywhere(expression: string): Column {
  return { calls: expression, hours: expression, parent_days: expression, days: expression };
}

const KEY_COLUMNS: Readonly<Record<KeyName, Column>> = {
  model: everywhere('model'),
  provider: everywhere('provider'),
  session_id: everywhere('session_id'),
  parent_session_id: everywhere('parent_key'),
  root_session_id: everywhere('root_session_id'),
  is_worker: everywhere('is_worker'),
  day: { ...everywhere('day'), calls: 'ts_ms / 86400000', hours: 'hour / 24' },
  hour: { ...everywhere('hour'), calls: 'ts_ms / 3600000' },
  delegation_tier: everywhere('delegation_tier'),
  worker_name: everywhere('worker_name'),
  workspace_hash: everywhere('workspace_hash'),
  door: everywhere('door'),
  caller: everywhere('caller'),
};

/** @param folded worker calls are keyed by their parent's session */
export function keyColumn(name: KeyName, folded: boolean): Column {
  return name === 'session_id' && folded ? KEY_COLUMNS.parent_session_id : KEY_COLUMNS[name];
}

const SOURCES: Readonly<Record<Segment['source'], { readonly table: string; readonly unit: string }>> = {
  calls: { table: 'llm_calls', unit: 'ts_ms' },
  hours: { table: 'session_hours', unit: 'hour' },
  parent_days: { table: 'rollup_parent_day', unit: 'day' },
  days: { table: 'rollup_day', unit: 'day' },
};

type Measure = (typeof MEASURES)[number];

export interface Where {
  /** Begins with ` AND`, or is ''. */
  readonly sql: string;
  readonly values: readonly (string | number | bigint)[];
}

const FILTER_COLUMNS = {
  session: 'session_id',
  parent_session: 'parent_key',
  model: 'model',
  provider: 'provider',
  workspace_hash: 'workspace_hash',
  delegation_tier: 'delegation_tier',
  worker_name: 'worker_name',
  door: 'door',
  caller: 'caller',
} as const;

/** The filters as conditions on any source that `grainOf` chooses for them. */
export function whereFilter(filter: CallFilter): Where {
  const conditions: string[] = [];
  const values: string[] = [];
  for (const [name, column] of Object.entries(FILTER_COLUMNS)) {
    const value = filter[name as keyof typeof FILTER_COLUMNS];
    if (value === null) continue;
    conditions.push(` AND ${column} = ?`);
    values.push(value);
  }
  if (filter.include_workers === false) conditions.push(' AND is_worker = 0');
  return { sql: conditions.join(''), values };
}

/**
 * One row per group with columns `k0`, `k1`, … and the sums of `measures`, over all segments. Without columns: exactly
 * one row. With all measures a row is complete: the workers' part is in it, and nothing of repricing.
 */
export function groupsSql(
  segments: readonly Segment[],
  columns: readonly Column[],
  where: Where,
  measures: readonly Measure[] = MEASURES,
): Where {
  const keys = columns.map((_, i) => `k${i}`);
  const parts = segments.map(({ source }) => {
    const { table, unit } = SOURCES[source];
    const select = [
      ...columns.map((column, i) => `${column[source]} AS k${i}`),
      ...measures.map((name) => (source === 'calls' ? `${CALL_MEASURES[name]} AS ${name}` : name)),
      'is_worker',
    ];
    return `SELECT ${select.join(', ')} FROM ${table} WHERE ${unit} >= ? AND ${unit} < ?${where.sql}`;
  });
  const sums = measures.map((name) => `coalesce(${sumIntegers(name)}, 0) AS ${name}`);
  if (measures === MEASURES) sums.push(...OTHER_SUMS);
  const groupBy = keys.length > 0 ? ` GROUP BY ${keys.join(', ')}` : '';
  return {
    sql: `SELECT ${[...keys, ...sums].join(', ')} FROM (${parts.join(' UNION ALL ')}) AS parts${groupBy}`,
    values: segments.flatMap(({ from, to }) => [from, to, ...where.values]),
  };
}

/** Every parent with the sums of all time, in columns as `groupsSql` names them; in the order of cost by an index. */
export function parentsSql(measures: readonly Measure[]): Where {
  return { sql: `SELECT ${['parent_key AS k0', ...measures].join(', ')} FROM rollup_parent`, values: [] };
}

const OTHER_SUMS = [
  `coalesce(${sumIntegers('CASE WHEN is_worker = 1 THEN cost_pusd ELSE 0 END')}, 0) AS worker_cost_pusd`,
  `coalesce(${sumIntegers('CASE WHEN is_worker = 1 THEN calls ELSE 0 END')}, 0) AS worker_calls`,
  '0 AS stamped_pusd',
  '0 AS missing_calls',
];

/** What a term of the order is made of; a key needs no sum. */
const TERM_MEASURES: Readonly<Record<'cost' | 'calls' | 'tokens', readonly Measure[]>> = {
  cost: ['cost_pusd'],
  calls: ['calls'],
  tokens: ['input_tokens', 'cached_input_tokens', 'cache_creation_input_tokens', 'output_tokens'],
};

/** The sums that rows must have to be put in this order. */
export function sortMeasures(terms: readonly SortTerm[]): readonly Measure[] {
  return terms.flatMap(({ by }) => (by === 'cost' || by === 'calls' || by === 'tokens' ? TERM_MEASURES[by] : []));
}

/** Rows of these keys only. */
export function whereIn(where: Where, column: string, values: readonly unknown[]): Where {
  return {
    sql: `${where.sql} AND ${column} IN (SELECT value FROM json_each(?))`,
    values: [...where.values, JSON.stringify([...new Set(values)])],
  };
}

interface OrderColumn {
  readonly sql: string;
  readonly desc: boolean;
  readonly value: string | number | bigint | null;
}

export interface PageOrder {
  readonly keys: readonly KeyName[];
  readonly terms: readonly SortTerm[];
  /** Values of the row that the page begins after, if any. */
  readonly after: SortValues | null;
  readonly limit: number;
}

/** `groups` in the order of `terms`, at most `limit` of them. */
export function pageSql(groups: Where, { keys, terms, after, limit }: PageOrder): Where {
  const columns = terms.flatMap((term, i): OrderColumn[] => {
    const value = after?.[i] ?? null;
    const { by } = term;
    if (by === 'cost' || by === 'calls' || by === 'tokens')
      return [{ sql: `(${TERM_MEASURES[by].join(' + ')})`, desc: term.desc, value }];
    const sql = `k${keys.indexOf(by)}`;
    const column = { sql, desc: term.desc, value };
    if (!OPTIONAL_KEYS.has(by)) return [column];
    return [{ sql: `(CASE WHEN ${sql} = '' THEN 1 ELSE 0 END)`, desc: false, value: value === '' ? 1 : 0 }, column];
  });
  const beyond = after === null ? null : beyondSql(columns);
  const orderBy = columns.map(({ sql, desc }) => (desc ? `${sql} DESC` : sql));
  return {
    sql: `SELECT * FROM (${groups.sql}) AS grouped${beyond ? ` WHERE ${beyond.sql}` : ''}${
      orderBy.length > 0 ? ` ORDER BY ${orderBy.join(', ')}` : ''
    } LIMIT ?`,
    values: [...groups.values, ...(beyond?.values ?? []), limit],
  };
}

/** Lexicographic "sorts after": a > ? OR (a = ? AND (b > ? …)). */
function beyondSql([column, ...rest]: readonly OrderColumn[]): Where {
  if (!column) return { sql: 'FALSE', values: [] };
  const value = column.value ?? '';
  const inner = beyondSql(rest);
  return {
    sql: `(${column.sql} ${column.desc ? '<' : '>'} ? OR (${column.sql} = ? AND ${inner.sql}))`,
    values: [value, value, ...inner.values],
  };
}
