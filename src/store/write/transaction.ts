// The interface by which every database is written: statements with checks of their results, one applier per kind of write (16 §3).
import type { Write } from '#core/ports/journal-writer.ts';
import type { Logger } from '#core/ports/logger.ts';
import type { Clock } from '#protocol/clock.ts';
import type { StoredMessage } from '#protocol/message.ts';
import type { SessionRecord } from '#protocol/session.ts';

/** The result of a statement. */
export interface Answer<Row = Record<string, unknown>> {
  readonly rows: readonly Row[];
  readonly changes: number;
}

/** `?` for values of an array, `@name` for those of an object. */
export type Values = readonly unknown[] | object;

/**
 * Throws to undo the transaction; statements that it runs belong to its own. It returns `undefined`, not `void`, so that
 * an async function is no check: its error would come after the commit.
 */
export type Check = (answer: Answer) => undefined;

/** What inserts rows given by the names of their columns. */
export interface Insertion {
  readonly columns: readonly string[];
  /** For one row. */
  readonly sql: string;
  /** For several rows, with a `?` for each value. */
  readonly sqlFor: (rows: number) => string;
}

/** The statements of one transaction. */
export interface Tx {
  /**
   * Runs a statement. SQLite answers before `run` returns; PostgreSQL is sent all statements at once, and their answers are
   * checked in the order of sending before the transaction commits.
   */
  run(sql: string, values: Values, check?: Check): void;
  /** Inserts a row. Rows of other trees may be inserted by the same statement. */
  insert(into: Insertion, row: object): void;
  /**
   * Runs a statement that must change a row. The database itself can refuse it, so that no answer is needed before the
   * commit.
   * @param refuse throws the reason; called where no row was changed
   */
  change(sql: string, values: Values, refuse: () => undefined): void;
  /** Runs a statement whose answer refuses nothing: it may come with the commit. */
  read(sql: string, values: Values, take: (answer: Answer) => undefined): void;
}

/** A transaction that has each answer before it commits. */
export function createAnsweredTx(run: Tx['run']): Tx {
  return {
    run,
    insert: ({ sql }, row) => run(sql, row),
    change: (sql, values, refuse) =>
      run(sql, values, ({ changes }) => {
        if (changes === 0) return refuse();
      }),
    read: run,
  };
}

/** Inserts a row given by the names of its columns. */
export function insertRow(
  table: string,
  columns: readonly string[],
  conflict = '',
): (tx: Tx, row: object, check?: Check) => void {
  const into = `INSERT INTO ${table} (${columns.join(', ')}) VALUES`;
  const places = `(${columns.map(() => '?').join(', ')})`;
  const insertion: Insertion = {
    columns,
    sql: `${into} (${columns.map((column) => `@${column}`).join(', ')}) ${conflict}`,
    sqlFor: (rows) => `${into} ${Array.from({ length: rows }, () => places).join(', ')} ${conflict}`,
  };
  return (tx, row, check) => {
    if (check === undefined) tx.insert(insertion, row);
    else tx.run(insertion.sql, row, check);
  };
}

/** Rows of one statement; a longer list is inserted in several. */
const MAX_ROWS = 8;

/** Inserts rows given by the names of their columns, several in one statement. */
export function insertRows(table: string, columns: readonly string[]): (tx: Tx, rows: readonly object[]) => void {
  const places = `(${columns.map(() => '?').join(', ')})`;
  const statements = Array.from({ length: MAX_ROWS }, (_, i) => {
    const rows = Array.from({ length: i + 1 }, () => places);
    return `INSERT INTO ${table} (${columns.join(', ')}) VALUES ${rows.join(', ')}`;
  });
  return (tx, rows) => {
    for (let from = 0; from < rows.length; from += MAX_ROWS) {
      const part = rows.slice(from, from + MAX_ROWS);
      const values: unknown[] = [];
      for (const row of part) for (const column of columns) values.push(readValue(row, column));
      tx.run(statements[part.length - 1]!, values);
    }
  };
}

/** The value of a column or name. Throws where it is missing: the driver would store it as NULL. */
export function readValue(row: object, name: string): unknown {
  const value = (row as Record<string, unknown>)[name];
  if (value === undefined) throw new RangeError(`no value for ${name}`);
  return value;
}

/** Effects of a write that the journal applies after the commit. */
export interface Effects {
  readonly messages: { readonly message: StoredMessage; readonly bytes: number }[];
  /** New sessions. */
  readonly created: { readonly id: string; readonly root: string }[];
  /** Sessions of which a turn began or ended. */
  readonly turns: { readonly session_id: string; readonly isOpen: boolean }[];
  /** Sessions that have got a checkpoint. */
  readonly checkpointed: string[];
  readonly ended: string[];
  /** Sessions whose rows changed: to the given values; null = the next reader reads the row again. */
  readonly sessions: { readonly id: string; readonly values: Partial<SessionRecord> | null }[];
  /** Roots of trees of which every session's row changed. */
  readonly trees: string[];
}

export function createEffects(): Effects {
  return { created: [], messages: [], turns: [], checkpointed: [], ended: [], sessions: [], trees: [] };
}

/** The arguments of an applier. */
export interface Step {
  readonly tx: Tx;
  readonly effects: Effects;
  readonly clock: Clock;
  readonly log: Logger;
  /** The statement that deletes request keys which expired before `?`. */
  readonly dropExpiredKeys: string;
}

type WriteOf<K extends Write['kind']> = Extract<Write, { readonly kind: K }>;

/** Applies one write. Refuses it by throwing, at once or in the check of a statement. */
export type Appliers<K extends Write['kind'] = Write['kind']> = {
  readonly [P in K]: (write: WriteOf<P>, step: Step) => void;
};
