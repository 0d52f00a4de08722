// How every database is written: statements with conditions on their answers, one applier for each kind of write (16 §3).
import type { Write } from '#core/ports/journal-writer.ts';
import type { Logger } from '#core/ports/logger.ts';
import type { Clock } from '#protocol/clock.ts';
import type { StoredMessage } from '#protocol/message.ts';
import type { SessionRecord } from '#protocol/session.ts';

/** What a statement changed or returned. */
export interface Answer<Row = Record<string, unknown>> {
  readonly rows: readonly Row[];
  readonly changes: number;
}

/** `?` for values of an array, `@name` for those of an object. */
export type Values = readonly unknown[] | object;

/** The statements of one transaction. */
export interface Tx {
  /**
   * Runs a statement. SQLite answers before `run` returns; PostgreSQL is sent all statements at once, and their answers are
   * checked in the order of sending before the transaction commits.
   * @param check throws to undo the transaction; statements that it runs belong to its own
   */
  run(sql: string, values: Values, check?: (answer: Answer) => void): void;
}

/** Takes a row by the names of its columns. */
export function insertRow(
  table: string,
  columns: readonly string[],
  conflict = '',
): (tx: Tx, row: object, check?: (answer: Answer) => void) => void {
  const values = columns.map((column) => `@${column}`).join(', ');
  const sql = `INSERT INTO ${table} (${columns.join(', ')}) VALUES (${values}) ${conflict}`;
  return (tx, row, check) => tx.run(sql, row, check);
}

/** What the journal does after the commit because of a write. */
export interface Effects {
  readonly messages: { readonly message: StoredMessage; readonly bytes: number }[];
  readonly ended: string[];
  /** Sessions whose rows changed: to the given values, or to what the next reader finds. */
  readonly sessions: { readonly id: string; readonly values: Partial<SessionRecord> | null }[];
}

/** What an applier works with. */
export interface Step {
  readonly tx: Tx;
  readonly effects: Effects;
  readonly clock: Clock;
  readonly log: Logger;
  /** Deletes request keys that expired before `?`, as this database does it best. */
  readonly dropExpiredKeys: string;
}

type WriteOf<K extends Write['kind']> = Extract<Write, { readonly kind: K }>;

/** Refuses by a throw, at once or in the check of a statement. */
export type Appliers<K extends Write['kind'] = Write['kind']> = {
  readonly [P in K]: (write: WriteOf<P>, step: Step) => void;
};
