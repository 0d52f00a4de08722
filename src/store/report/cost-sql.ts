// Maps dimensions, filters and orders to literal SQL. No text of a request enters a statement (07 §1).

import {
  type KeyName,
  OPTIONAL_KEYS,
  type Segment,
  type SortTerm,
  type SortValues,
} from '#core/policy/analytics/rollup.ts';
import type { CallFilter } from '#protocol/analytics.ts';
import { SIMULATED } from '../read/spend.ts';
import { BILL_MEASURES, CALL_MEASURES, IS_BILLED_APART, MEASURES } from '../schema/rollups.ts';
import { sumIntegers } from '../schema/words.ts';

/** An expression for each source. */
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
  owner: everywhere('owner'),
  // `billedSql` has the kinds of what is billed beside the tokens.
  cost_kind: everywhere("'tokens'"),
  // Read of single calls alone.
  effort: everywhere('effort'),
};

/** The column of `ledger_sessions` behind each key and filter that names a session, a tree, a workspace or a worker. */
const NAMING: Readonly<Partial<Record<KeyName, string>>> = {
  session_id: 'session_id',
  parent_session_id: 'parent_key',
  root_session_id: 'root_session_id',
  workspace_hash: 'workspace_hash',
  worker_name: 'worker_name',
};
/** The group of all that names private sessions of others alone (23 §1). */
export const PRIVATE = 'private';

/** Whether a session that the reader sees has this value. */
export function isSeen(column: string, { id }: NonNullable<CallFilter['reader']>): string {
  // An id is no text of a request: a ULID, or a name of the configuration behind a word.
  if (id !== null && !/^[A-Za-z0-9_:-]+$/.test(id)) throw new Error(`not the id of a token: ${id}`);
  const own = id === null ? '' : ` OR owner = '${id}'`;
  return `${column} IN (SELECT ${column} FROM ledger_sessions WHERE share <> 'private'${own})`;
}

/**
 * @param folded worker calls are keyed by their parent's session
 * @param reader who sees no private sessions of others: groups that would name them are one
 */
export function keyColumn(name: KeyName, folded: boolean, reader: CallFilter['reader'] = undefined): Column {
  const shown = name === 'session_id' && folded ? 'parent_session_id' : name;
  const column = NAMING[shown];
  if (reader === undefined || column === undefined) return KEY_COLUMNS[shown];
  return everywhere(`CASE WHEN ${column} = '' OR ${isSeen(column, reader)} THEN ${column} ELSE '${PRIVATE}' END`);
}

const SOURCES: Readonly<Record<Segment['source'], { readonly table: string; readonly unit: string }>> = {
  calls: { table: 'llm_calls', unit: 'ts_ms' },
  hours: { table: 'session_hours', unit: 'hour' },
  parent_days: { table: 'rollup_parent_day', unit: 'day' },
  days: { table: 'rollup_day', unit: 'day' },
};

type Measure = (typeof MEASURES)[number];

/** Where sums are read: calls and rollups, and beside them what is billed beside tokens. */
export interface Sources {
  readonly segments: readonly Segment[];
  /** Hours and calls. */
  readonly billed: readonly Segment[];
}

export interface Where {
  /** Begins with ` AND`, or is ''. */
  readonly sql: string;
  readonly values: readonly (string | number | bigint)[];
}

/** A filter that every call passes. */
export const NO_FILTER: CallFilter = {
  session: null,
  parent_session: null,
  model: null,
  provider: null,
  workspace_hash: null,
  delegation_tier: null,
  worker_name: null,
  door: null,
  caller: null,
  owner: null,
  include_workers: null,
};

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
  owner: 'owner',
} as const;
/** Filters that name what a private session of another owner alone may have. */
const NAMING_FILTERS = ['session', 'parent_session', 'workspace_hash', 'worker_name'] as const;

/** The filters as conditions on any source that `findGrain` chooses for them. */
export function whereFilter(filter: CallFilter): Where {
  const conditions: string[] = [];
  const values: string[] = [];
  for (const [name, column] of Object.entries(FILTER_COLUMNS)) {
    const value = filter[name as keyof typeof FILTER_COLUMNS];
    if (value === null) continue;
    conditions.push(` AND ${column} = ?`);
    values.push(value);
  }
  for (const name of NAMING_FILTERS)
    if (filter.reader !== undefined && filter[name] !== null)
      conditions.push(` AND ${isSeen(FILTER_COLUMNS[name], filter.reader)}`);
  if (filter.without_simulated) conditions.push(` AND NOT ${SIMULATED}`);
  if (filter.include_workers === false) conditions.push(' AND is_worker = 0');
  return { sql: conditions.join(''), values };
}

/**
 * One row per group with columns `k0`, `k1`, … and the sums of `measures`, over all segments. Without columns: exactly
 * one row. With all measures a row is complete: the workers' part is in it, and nothing of repricing.
 */
export function groupsSql(
  { segments, billed }: Sources,
  columns: readonly Column[],
  where: Where,
  measures: readonly Measure[] = MEASURES,
): Where {
  const isWhole = measures === MEASURES;
  const keys = columns.map((_, i) => `k${i}`);
  const parts = segments.map(({ source }) => {
    const { table, unit } = SOURCES[source];
    const select = [
      ...columns.map((column, i) => `${column[source]} AS k${i}`),
      ...measures.map((name) => (source === 'calls' ? `${CALL_MEASURES[name]} AS ${name}` : name)),
      ...UNKNOWNS.map((name) => `0 AS ${name}`),
      'is_worker',
    ];
    return `SELECT ${select.join(', ')} FROM ${table} WHERE ${unit} >= ? AND ${unit} < ?${where.sql}`;
  });
  const kinds = chooseKinds(columns, isWhole);
  const apart = billed.flatMap((segment) => kinds.map((kind) => ({ segment, kind })));
  parts.push(...apart.map(({ segment, kind }) => billedSql(segment, kind, { columns, where, measures })));
  const sums = measures.map((name) => `coalesce(${sumIntegers(name)}, 0) AS ${name}`);
  if (isWhole) sums.push(...UNKNOWNS.map((name) => `coalesce(${sumIntegers(name)}, 0) AS ${name}`), ...OTHER_SUMS);
  const groupBy = keys.length > 0 ? ` GROUP BY ${keys.join(', ')}` : '';
  return {
    sql: `SELECT ${[...keys, ...sums].join(', ')} FROM (${parts.join(' UNION ALL ')}) AS parts${groupBy}`,
    values: [...segments, ...apart.map(({ segment }) => segment)].flatMap(({ from, to }) => [
      from,
      to,
      ...where.values,
    ]),
  };
}

const UNKNOWNS = BILL_MEASURES.filter((name) => name.endsWith('_calls'));

/** What calls that are billed apart add to the groups of one kind of cost; `unknowns` are counted in that kind. */
interface Kind {
  readonly name: string;
  readonly cost: string;
  readonly unknowns: readonly string[];
  readonly rows: string;
}
/** The cost of every call is in its segment; grouped by kind, two kinds are taken out of it. */
const KINDS: readonly Kind[] = [
  {
    name: 'tokens',
    cost: '-(fees_pusd + surcharge_pusd)',
    unknowns: ['rounds_unknown_calls'],
    rows: '',
  },
  {
    name: 'fees',
    cost: 'fees_pusd',
    unknowns: ['fees_unpriced_calls'],
    rows: ' AND (fees_pusd <> 0 OR fees_unpriced_calls <> 0)',
  },
  {
    name: 'surcharge',
    cost: 'surcharge_pusd',
    unknowns: ['surcharge_unknown_calls'],
    rows: ' AND (surcharge_pusd <> 0 OR surcharge_unknown_calls <> 0)',
  },
];
const ALL_KINDS: Kind = { name: '', cost: '0', unknowns: UNKNOWNS, rows: '' };

function chooseKinds(columns: readonly Column[], isWhole: boolean): readonly Kind[] {
  if (columns.includes(KEY_COLUMNS.cost_kind)) return KINDS;
  if (isWhole) return [ALL_KINDS];
  return [];
}

/** Rows of calls that are billed apart; their calls and tokens are counted elsewhere. */
function billedSql(
  { source }: Segment,
  kind: Kind,
  { columns, where, measures }: { columns: readonly Column[]; where: Where; measures: readonly Measure[] },
): string {
  const expressions = new Map<string, string>(kind.unknowns.map((name) => [name, name]));
  expressions.set('cost_pusd', kind.cost);
  const select = [
    ...columns.map((column, i) => `${selectKey(column, source, kind)} AS k${i}`),
    ...measures.map((name) => `${expressions.get(name) ?? 0} AS ${name}`),
    ...UNKNOWNS.map((name) => `${expressions.get(name) ?? 0} AS ${name}`),
    'is_worker',
  ];
  let table = 'bill_hours';
  let unit = 'hour';
  if (source === 'calls') {
    const flags = BILL_MEASURES.filter((name) => CALL_MEASURES[name] !== name).map(
      (name) => `${CALL_MEASURES[name]} AS ${name}`,
    );
    table = `(SELECT *, ${flags.join(', ')} FROM llm_calls WHERE ${IS_BILLED_APART}) AS billed`;
    unit = 'ts_ms';
  }
  return `SELECT ${select.join(', ')} FROM ${table} WHERE ${unit} >= ? AND ${unit} < ?${kind.rows}${where.sql}`;
}

function selectKey(column: Column, source: Segment['source'], { name }: Kind): string {
  if (column === KEY_COLUMNS.cost_kind) return `'${name}'`;
  return column[source];
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

/** The sums that a sort term needs; a key needs none. */
const TERM_MEASURES: Readonly<Record<'cost' | 'calls' | 'tokens', readonly Measure[]>> = {
  cost: ['cost_pusd'],
  calls: ['calls'],
  tokens: ['input_tokens', 'cached_input_tokens', 'cache_creation_input_tokens', 'output_tokens'],
};

/** The sums that rows need for this order. */
export function sortMeasures(terms: readonly SortTerm[]): readonly Measure[] {
  return terms.flatMap(({ by }) => (by === 'cost' || by === 'calls' || by === 'tokens' ? TERM_MEASURES[by] : []));
}

/** Rows of these keys only. */
export function whereIn(where: Where, column: string, values: readonly unknown[]): Where {
  return {
    sql: `${where.sql} AND ${column} {in_list}`,
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
  /** Values of the last row before the page, if any. */
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
