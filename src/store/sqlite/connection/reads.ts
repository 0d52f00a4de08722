// Reads over a connection to SQLite.
import type Database from 'better-sqlite3';
import type { EventId } from '#protocol/ids.ts';
import type { ReadDatabase, Reads } from '#store/read/reads.ts';
import { PRUNED_THROUGH } from '#store/schema/words.ts';
import { journalFault } from '../write/conflict.ts';
import { createStatementCache } from './statements.ts';

/**
 * The driver answers at once, so all that follows a read runs in microtasks. The journal writes in `setImmediate`, and
 * no microtask waits for that: a reader that awaits nothing but reads sees one state, however many statements it takes.
 */
export function createReads(db: Database.Database): Reads {
  const prepare = createStatementCache(db, false);
  const prepareExact = createStatementCache(db, true);
  return {
    all: async <Row>(sql: string, ...values: unknown[]) => prepare(sql).all(...values) as Row[],
    get: async <Row>(sql: string, ...values: unknown[]) => prepare(sql).get(...values) as Row | undefined,
    allExact: async <Row>(sql: string, ...values: unknown[]) => prepareExact(sql).all(...values) as Row[],
    getExact: async <Row>(sql: string, ...values: unknown[]) => prepareExact(sql).get(...values) as Row | undefined,
  };
}

export function createReadDatabase(db: Database.Database): ReadDatabase {
  const reads = createReads(db);
  const begin = db.prepare('BEGIN');
  const commit = db.prepare('COMMIT');

  /**
   * One transaction, since each statement would open and close one of its own: three times the time of a long list.
   * `work` may await nothing but reads, so that the transaction ends before the journal begins the next one.
   */
  async function together<T>(work: () => Promise<T>): Promise<T> {
    if (db.inTransaction) return work();
    begin.run();
    try {
      return await work();
    } finally {
      if (db.inTransaction) commit.run();
    }
  }
  return {
    reads,
    together,
    atOneMoment: (work) => together(() => work(reads)),
    eventMarks,
    probe: async (sql) => db.prepare(sql).run(),
    journalFault,
  };
}

function eventMarks({ get }: Reads): ReturnType<ReadDatabase['eventMarks']> {
  const readId = async (sql: string, ...values: string[]) =>
    (await get<{ id: EventId | null }>(sql, ...values))?.id ?? null;
  return {
    newestId: () => readId('SELECT max(id) AS id FROM event_rows'),
    prunedThrough: () => readId('SELECT value AS id FROM meta WHERE key = ?', PRUNED_THROUGH),
  };
}
