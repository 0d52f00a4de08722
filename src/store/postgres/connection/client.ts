// One connection with what every statement on it has in common: translation, preparation, values.

import { createHash } from 'node:crypto';
import pg from 'pg';
import type { Answer, Values } from '#store/write/transaction.ts';

// Values on their way to PostgreSQL and back, as SQLite has them: truth is 0 or 1, money exact.

/** How integers come back: as numbers, or exact as bigint. */
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
  if (typeof value === 'string') return value.includes('\0') ? value.replaceAll('\0', '\uFFFD') : value;
  if (typeof value === 'bigint') return String(value);
  return Array.isArray(value) ? value.map(toStorable) : value;
}

/** The values of an object by the names of a statement. */
function placeValues(names: readonly string[], values: object): unknown[] {
  return names.map((name) => {
    const value = (values as Record<string, unknown>)[name];
    if (value === undefined) throw new RangeError(`no value for ${name}`);
    return value;
  });
}

// Translates the shared statements from SQLite to PostgreSQL.

/** A statement with its values bound by position; `names` lists the object's fields in that order. */
interface Translated {
  readonly text: string;
  readonly names: readonly string[];
}

/** In order: what the one spells otherwise than the other, each with why. */
const RULES: readonly (readonly [RegExp, string])[] = [
  // Hints for SQLite's planner.
  [/ INDEXED BY \w+/g, ''],
  [/CROSS JOIN (\w+(?: \w+)?) ON/g, 'JOIN $1 ON'],
  [/(?<=[\s(,])\+(?=[a-z])/g, ''],
  // A list of ids comes as one JSON text. As an array it is looked up in an index; as a sub-select, the table is read.
  [/IN \(SELECT value FROM json_each\(\?\)\)/g, '= ANY (ARRAY(SELECT json_array_elements_text(CAST(? AS json))))'],
  // Fields of JSON texts.
  [/json_extract\(([\w.]+), '\$\.(\w+)'\)/g, "(CAST($1 AS json) ->> '$2')"],
  [/([\w.]+_json) ->> '\$\.(\w+)'/g, "(CAST($1 AS json) ->> '$2')"],
  // Of two values, not of a column.
  [/\bmax\((?=\d)/g, 'greatest('],
  [/\bmin\((?=\d)/g, 'least('],
  // Both terms of the recursion must be sorted alike.
  [/SELECT \?, 0 UNION ALL/g, 'SELECT CAST(? AS text) COLLATE "C", 0 UNION ALL'],
];

const known = new Map<string, Translated>();
/** Texts come from code, never from a request; the reports combine their parts to more texts than are worth keeping. */
const MAX_KNOWN = 1024;

/** `?` or `@name` for values. */
function translateSql(sql: string): Translated {
  const found = known.get(sql);
  if (found !== undefined) return found;
  if (known.size >= MAX_KNOWN) known.clear();
  let text = RULES.reduce((left, [from, to]) => left.replace(from, to), sql);
  const names: string[] = [];
  let placed = 0;
  text = text.replaceAll(/\?|@(\w+)/g, (_, name: string | undefined) => {
    if (name === undefined) return `$${++placed}`;
    const at = names.indexOf(name);
    if (at >= 0) return `$${at + 1}`;
    names.push(name);
    return `$${names.length}`;
  });
  const result = { text, names };
  known.set(sql, result);
  return result;
}

/** Sends at once; statements of one connection are answered in the order they were sent. */
export type Send = <Row = Record<string, unknown>>(
  sql: string,
  values: Values,
  integers?: Integers,
) => Promise<Answer<Row>>;

const names = new Map<string, string>();

/** Texts are few and stay prepared on the server, by the name of their content. */
function statementName(text: string): string {
  const known = names.get(text);
  if (known !== undefined) return known;
  const name = createHash('sha1').update(text).digest('hex').slice(0, 24);
  names.set(text, name);
  return name;
}

export function createSend(client: Pick<pg.ClientBase, 'query'>): Send {
  return async <Row>(sql: string, values: Values, integers: Integers = 'numbers') => {
    const { text, names: fields } = translateSql(sql);
    const bound = Array.isArray(values) ? values : placeValues(fields, values);
    const result = await client.query({
      name: statementName(text),
      text,
      values: bound.map(toStorable),
      types: TYPES[integers],
    });
    return { rows: result.rows as Row[], changes: result.rowCount ?? 0 };
  };
}
