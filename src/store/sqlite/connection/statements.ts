// Statements of a connection to SQLite, each prepared once, with their values by position.
import type Database from 'better-sqlite3';
import type { Answer, Tx, Values } from '#store/write/transaction.ts';

/** Texts come from code, never from a request; the reports combine their parts to more texts than are worth keeping. */
const MAX_STATEMENTS = 256;

type Statement = Database.Statement<unknown[], unknown>;

/** @param isExact whether integers come back as bigint */
export function createStatementCache(db: Database.Database, isExact: boolean): (sql: string) => Statement {
  return createCache((sql) => db.prepare<unknown[], unknown>(sql).safeIntegers(isExact));
}

function createCache<T>(make: (sql: string) => T): (sql: string) => T {
  const made = new Map<string, T>();
  return (sql) => {
    const known = made.get(sql);
    if (known !== undefined) return known;
    if (made.size >= MAX_STATEMENTS) made.clear();
    const value = make(sql);
    made.set(sql, value);
    return value;
  };
}

const NO_ROWS: Answer['rows'] = [];

/** What the journal runs inside its transactions, which it begins and ends itself. */
export function createTx(db: Database.Database): Tx {
  const prepare = createCache((sql) => {
    const { text, names } = placeByPosition(sql);
    return { statement: db.prepare<unknown[], Record<string, unknown>>(text), names };
  });
  return {
    run(sql, values, check) {
      const { statement, names } = prepare(sql);
      const bound = bindValues(names, values);
      if (statement.reader) {
        const rows = statement.all(...bound);
        check?.({ rows, changes: rows.length });
      } else {
        const { changes } = statement.run(...bound);
        check?.({ rows: NO_ROWS, changes });
      }
    },
  };
}

/** SQLite would look the `@names` up again for every row. */
function placeByPosition(sql: string): { readonly text: string; readonly names: readonly string[] } {
  const names: string[] = [];
  const text = sql.replaceAll(/@(\w+)/g, (_, name: string) => {
    names.push(name);
    return '?';
  });
  return { text, names };
}

function bindValues(names: readonly string[], values: Values): readonly unknown[] {
  if (Array.isArray(values)) return values;
  return names.map((name) => {
    const value = (values as Record<string, unknown>)[name];
    // The driver would store it as NULL.
    if (value === undefined) throw new RangeError(`no value for ${name}`);
    return value;
  });
}
