// Words that several statements share.
import type Database from 'better-sqlite3';
import { OPEN_TURN_STATUSES } from '../../domain/turn.ts';

/**
 * A prepared `INSERT` that takes a row by the names of its columns; other fields are left alone.
 * The values are bound by position: names would be looked up again for every row.
 * @param conflict an `ON CONFLICT` clause
 */
export function insertInto<Column extends string>(
  db: Database.Database,
  table: string,
  columns: readonly Column[],
  conflict = '',
): (row: Readonly<Record<Column, unknown>>) => Database.RunResult {
  const places = columns.map(() => '?').join(', ');
  const statement = db.prepare<[unknown[]]>(
    `INSERT INTO ${table} (${columns.join(', ')}) VALUES (${places}) ${conflict}`,
  );
  return (row) => statement.run(columns.map((column) => row[column]));
}

/** The event types that reports read by time, for which alone there is an index. */
export const REPORTED_TYPES = ['route.decided', 'llm.call_completed', 'llm.call_failed'] as const;

/** Spelled as in the unique index of open turns, so that SQLite may use it. */
export const TURN_IS_OPEN = `status IN (${OPEN_TURN_STATUSES.map((s) => `'${s}'`).join(',')})`;

/** A recursive table `tree(id, depth)`: the session bound to the first parameter and its descendants. */
export const WITH_TREE = `WITH RECURSIVE tree(id, depth) AS (
  SELECT ?, 0 UNION ALL
  SELECT s.id, tree.depth + 1 FROM sessions s JOIN tree ON s.parent_session_id = tree.id)`;

/** SQLite has no booleans. */
export function bit(value: boolean): 0 | 1;
export function bit(value: boolean | null): 0 | 1 | null;
export function bit(value: boolean | null): 0 | 1 | null {
  return value === null ? null : value ? 1 : 0;
}

/** JSON text of a value, NULL of null. */
export function json(value: unknown): string | null {
  return value === null || value === undefined ? null : JSON.stringify(value);
}
