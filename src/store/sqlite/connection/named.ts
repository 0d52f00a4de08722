// Statements that take their values by name.
import type Database from 'better-sqlite3';

/** A statement that takes its `@names` from an object; other fields are left alone. */
export interface Named<Row> {
  run(values: object): Database.RunResult;
  get(values: object): Row | undefined;
}

/** Prepares `sql` with its values bound by position: SQLite would look its names up again for every row. */
export function named<Row = unknown>(db: Database.Database, sql: string): Named<Row> {
  const names: string[] = [];
  const text = sql.replaceAll(/@(\w+)/g, (_, name: string) => {
    names.push(name);
    return '?';
  });
  const statement = db.prepare<[unknown[]], Row>(text);
  const placed = (values: object) =>
    names.map((name) => {
      const value = (values as Record<string, unknown>)[name];
      // The driver would store it as NULL.
      if (value === undefined) throw new RangeError(`no value for ${name}`);
      return value;
    });
  return { run: (values) => statement.run(placed(values)), get: (values) => statement.get(placed(values)) };
}

/**
 * A prepared `INSERT` that takes a row by the names of its columns.
 * @param conflict an `ON CONFLICT` clause
 */
export function insertInto<Column extends string>(
  db: Database.Database,
  table: string,
  columns: readonly Column[],
  conflict = '',
): (row: Readonly<Record<Column, unknown>>) => Database.RunResult {
  const values = columns.map((column) => `@${column}`).join(', ');
  return named(db, `INSERT INTO ${table} (${columns.join(', ')}) VALUES (${values}) ${conflict}`).run;
}
