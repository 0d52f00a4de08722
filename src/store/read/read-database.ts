// How every database is read: rows by statement, pages, and what a database has to offer for that.
import type { EventReader, Page } from '#core/ports/store-reader.ts';

/** `?` for values. SQLite answers in a microtask, PostgreSQL when its answer arrives. */
export interface Reads {
  all<Row>(sql: string, ...values: unknown[]): Promise<readonly Row[]>;
  get<Row>(sql: string, ...values: unknown[]): Promise<Row | undefined>;
  /** Integers as bigint, likewise below. */
  allExact<Row>(sql: string, ...values: unknown[]): Promise<readonly Row[]>;
  getExact<Row>(sql: string, ...values: unknown[]): Promise<Row | undefined>;
}

/** What the store needs of a database. */
export interface ReadDatabase {
  readonly reads: Reads;
  /** All of `work` reads one state of the database. */
  atOneMoment<T>(work: (reads: Reads) => Promise<T>): Promise<T>;
  /** Runs many reads in a row at a lower price where the database has one; promises no single state. */
  together<T>(work: () => Promise<T>): Promise<T>;
  /** The newest event, and the newest one that pruning deleted. */
  eventMarks(reads: Reads): Pick<EventReader, 'newestId' | 'prunedThrough'>;
  /** Writes a row past the journal. Throws when the database takes none. */
  probe(sql: string): Promise<unknown>;
  /** Names what the driver raised. */
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
