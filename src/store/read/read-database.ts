// The interface by which every database is read: statements, pages, snapshots.
import type { EventReader, Page } from '#core/ports/store-reader.ts';
import type { Awaitable } from '#protocol/async/awaitable.ts';

/** `?` for values. SQLite answers at once, PostgreSQL when its answer arrives. */
export interface Reads {
  all<Row>(sql: string, ...values: unknown[]): Awaitable<readonly Row[]>;
  get<Row>(sql: string, ...values: unknown[]): Awaitable<Row | undefined>;
  /** Integers as bigint, likewise below. */
  allExact<Row>(sql: string, ...values: unknown[]): Awaitable<readonly Row[]>;
  getExact<Row>(sql: string, ...values: unknown[]): Awaitable<Row | undefined>;
}

/** A database as the store uses it. */
export interface ReadDatabase {
  readonly reads: Reads;
  /** All of `work` reads one state of the database. */
  atOneMoment<T>(work: (reads: Reads) => Promise<T>): Promise<T>;
  /** Runs many reads in a row, faster where the database can; not a snapshot. */
  together<T>(work: () => Promise<T>): Promise<T>;
  /** The newest event, and the newest one that pruning deleted. */
  eventMarks(reads: Reads): Pick<EventReader, 'newestId' | 'prunedThrough'>;
  /** Writes a row without the journal. Throws when the database accepts no writes. */
  probe(sql: string): Promise<unknown>;
  /** Maps an error of the driver to an error of the port. */
  journalFault(cause: unknown): unknown;
}

/** A page of `rows`, which were read with `limit + 1`; the next page starts after `key`. */
export function toPage<Row, T>(
  rows: readonly Row[],
  limit: number,
  key: (row: Row) => string,
  decode: (row: Row) => T,
): Page<T> {
  const shown = rows.slice(0, limit);
  const last = shown.at(-1);
  const hasMore = rows.length > limit && last !== undefined;
  return { rows: shown.map(decode), next: hasMore ? key(last) : null };
}
