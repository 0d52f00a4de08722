// Runs statements on one connection: translates, prepares, converts values.

import { createHash } from 'node:crypto';
import pg from 'pg';
import { type Dialect, expandFragments } from '#store/schema/dialect.ts';
import type { Answer, Values } from '#store/write/transaction.ts';
import { type Prepared, runAtOnce } from './at-once.ts';

// Converts values to and from PostgreSQL so that they equal SQLite's: booleans are 0 or 1, money is exact.

/** Form of returned integers: numbers, or exact bigints. */
type Integers = 'numbers' | 'exact';

const { builtins } = pg.types;

function parsers(integer: (text: string) => number | bigint) {
  const known: Readonly<Record<number, (text: string) => unknown>> = {
    [builtins.INT8]: integer,
    [builtins.INT4]: integer,
    [builtins.BOOL]: (text) => integer(text === 't' ? '1' : '0'),
    [builtins.FLOAT8]: Number,
    [builtins.NUMERIC]: (text) => (/^-?\d+$/.test(text) ? integer(text) : Number(text)),
  };
  return {
    getTypeParser: (oid: number, format?: 'text' | 'binary') =>
      known[oid] ?? pg.types.getTypeParser(oid, format as 'text'),
  };
}

const TYPES: Readonly<Record<Integers, ReturnType<typeof parsers>>> = {
  numbers: parsers(Number),
  exact: parsers(BigInt),
};

/** PostgreSQL refuses a raw NUL in a text (16 §2). */
function toStorable(value: unknown): unknown {
  if (typeof value === 'string') {
    if (value.includes('\0')) return value.replaceAll('\0', '\uFFFD');
    return value;
  }
  if (typeof value === 'bigint') return String(value);
  if (Array.isArray(value)) return value.map(toStorable);
  return value;
}

/** The values of an object in the order of a statement's names. */
function placeValues(names: readonly string[], values: object): unknown[] {
  return names.map((name) => {
    const value = (values as Record<string, unknown>)[name];
    if (value === undefined) throw new RangeError(`no value for ${name}`);
    return value;
  });
}

// Translates the shared statements to PostgreSQL.

/** A statement with its values bound by position; `names` lists the object's fields in that order. */
interface Translated {
  readonly text: string;
  readonly names: readonly string[];
  /** Under which it stays prepared on the server: made from its text. */
  readonly name: string;
}

/** PostgreSQL's planner has statistics and needs no hints. */
const POSTGRES: Dialect = {
  index: () => '',
  no_index: () => '',
  join_in_order: () => 'JOIN',
  // PostgreSQL looks up an array in an index; for a sub-select it would read the whole table.
  in_list: () => '= ANY (ARRAY(SELECT json_array_elements_text(CAST(? AS json))))',
  // Text in PostgreSQL holds no NUL.
  text_at: (column, ...path) => {
    const keys = path.map((key) => key.replace(/^(?!\d+$).*$/, "'$&'"));
    const at = [`CAST(${column} AS json)`, ...keys.slice(0, -1)].join(' -> ');
    return `(CASE WHEN strpos(${column}, '\\u0000') = 0 THEN ${at} ->> ${keys.at(-1)} END)`;
  },
  json_field: (column, field) => `(CAST(${column} AS json) ->> '${field}')`,
  greatest: () => 'greatest',
  least: () => 'least',
  keep_rows: () => 'FOR KEY SHARE',
  lock_rows: () => 'FOR UPDATE',
  first_id: () => 'CAST(? AS text) COLLATE "C"',
};

const known = new Map<string, Translated>();
const knownChanges = new Map<string, Translated>();
/** Maximum cached statements. Their texts come from code alone, but reports compose too many to keep all. */
const MAX_KNOWN = 1024;

/** Expands the fragments and replaces `?` and `@name` by `$1`, `$2`, …. */
function translateSql(sql: string): Translated {
  const found = known.get(sql);
  if (found !== undefined) return found;
  if (known.size >= MAX_KNOWN) known.clear();
  const names: string[] = [];
  let placed = 0;
  const text = expandFragments(POSTGRES, sql).replaceAll(/\?|@(\w+)/g, (_, name: string | undefined) => {
    if (name === undefined) return `$${++placed}`;
    const at = names.indexOf(name);
    if (at >= 0) return `$${at + 1}`;
    names.push(name);
    return `$${names.length}`;
  });
  const result = { text, names, name: nameStatement(text) };
  known.set(sql, result);
  return result;
}

/** Fails where the statement changes no row: the division by zero is what `isNothingChanged` knows. */
function translateChange(sql: string): Translated {
  const found = knownChanges.get(sql);
  if (found !== undefined) return found;
  const { text: change, names } = translateSql(sql);
  const text = `WITH changed AS (${change} RETURNING 1) SELECT 1 / count(*) FROM changed`;
  const result = { text, names, name: nameStatement(text) };
  knownChanges.set(sql, result);
  return result;
}

function nameStatement(text: string): string {
  return createHash('sha1').update(text).digest('hex').slice(0, 24);
}

/** Sends at once; statements of one connection are answered in the order they were sent. */
export type Send = <Row = Record<string, unknown>>(
  sql: string,
  values: Values,
  integers?: Integers,
) => Promise<Answer<Row>>;

/** A statement to run with others at once. It sees what those before it changed, but a SELECT alone sees what was there before all. */
export interface Statement {
  readonly sql: string;
  readonly values: Values;
  /** Whether it must change a row. */
  readonly isChange: boolean;
  readonly take: Prepared['take'];
}

/** All or none of them, committed; the transaction fails with `isNothingChanged` where one that must change a row does not. */
export function sendAtOnce(client: pg.PoolClient, statements: readonly Statement[]): Promise<void> {
  const prepared = statements.map(({ sql, values, isChange, take }) => {
    const { text, names, name } = isChange ? translateChange(sql) : translateSql(sql);
    return { text, name: `once ${name}`, values: bindValues(names, values), take };
  });
  return runAtOnce(client, prepared, TYPES.numbers);
}

function bindValues(names: readonly string[], values: Values): unknown[] {
  const bound = Array.isArray(values) ? values : placeValues(names, values);
  return bound.map(toStorable);
}

export function createSend(client: Pick<pg.ClientBase, 'query'>): Send {
  return async <Row>(sql: string, values: Values, integers: Integers = 'numbers') => {
    const { text, names, name } = translateSql(sql);
    const result = await client.query({ name, text, values: bindValues(names, values), types: TYPES[integers] });
    return { rows: result.rows as Row[], changes: result.rowCount ?? 0 };
  };
}
