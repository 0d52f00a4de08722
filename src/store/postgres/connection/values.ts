// Values on their way to PostgreSQL and back, as SQLite has them: truth is 0 or 1, money exact.
import pg from 'pg';

/** How integers come back: as numbers, or exact as bigint. */
export type Integers = 'numbers' | 'exact';

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

export const TYPES: Readonly<Record<Integers, ReturnType<typeof parsers>>> = {
  numbers: parsers(Number),
  exact: parsers(BigInt),
};

/** PostgreSQL refuses a raw NUL in a text (16 §2). */
export function toStorable(value: unknown): unknown {
  if (typeof value === 'string') return value.includes('\0') ? value.replaceAll('\0', '\uFFFD') : value;
  if (typeof value === 'bigint') return String(value);
  return Array.isArray(value) ? value.map(toStorable) : value;
}

/** The values of an object by the names of a statement. */
export function placeValues(names: readonly string[], values: object): unknown[] {
  return names.map((name) => {
    const value = (values as Record<string, unknown>)[name];
    if (value === undefined) throw new RangeError(`no value for ${name}`);
    return value;
  });
}
