// Reads over one connection or a pool, and a pool that repeats reads during a restart of the database (16 §3.4).

import { StorageFault } from '#core/ports/journal-writer.ts';
import { type Clock, sleep } from '#protocol/clock.ts';
import { AppError } from '#protocol/errors.ts';
import type { EventId } from '#protocol/ids.ts';
import type { ReadDatabase, Reads } from '#store/read/read-database.ts';
import type { Send } from './client.ts';
import { isOutOfTime, isTooSlow, isTransient, journalFault } from './faults.ts';
import type { Pool } from './pool.ts';

export function createReads(send: Send): Reads {
  const all = async <Row>(sql: string, ...values: unknown[]) => (await send<Row>(sql, values)).rows;
  const allExact = async <Row>(sql: string, ...values: unknown[]) => (await send<Row>(sql, values, 'exact')).rows;
  return {
    all,
    allExact,
    get: async <Row>(sql: string, ...values: unknown[]) => (await all<Row>(sql, ...values))[0],
    getExact: async <Row>(sql: string, ...values: unknown[]) => (await allExact<Row>(sql, ...values))[0],
  };
}

export function createReadDatabase(pool: Pool): ReadDatabase {
  return {
    reads: createReads(pool.send),
    atOneMoment: (work) => pool.atOneMoment((send) => work(createReads(send))),
    together: (work) => work(),
    eventMarks,
    probe: (sql) => pool.send(sql, []),
    journalFault,
  };
}

/** Both are kept per tree: ids of several nodes are in order only within a tree. */
function eventMarks({ get }: Reads): ReturnType<ReadDatabase['eventMarks']> {
  async function readMark(column: 'last_id' | 'pruned_through_id', root: string): Promise<EventId | null> {
    const row = await get<{ id: EventId | null }>(`SELECT ${column} AS id FROM trees WHERE root_session_id = ?`, root);
    return row?.id ?? null;
  }
  return {
    newestId: async (root) => {
      if (root !== undefined) return readMark('last_id', root);
      return (await get<{ id: EventId | null }>('SELECT max(id) AS id FROM event_rows'))?.id ?? null;
    },
    prunedThrough: (root) => readMark('pruned_through_id', root),
  };
}

const AGAIN_MS = 100;

/**
 * A pool for reads.
 * @param ofUse asked before each attempt but the first; then what is still not answered throws `StorageFault`, as what
 * took longer than a statement may does at once. A report that took too long throws `storage_unavailable`
 */
export function patientReads(pool: Pool, clock: Clock, ofUse: () => boolean): Pool {
  async function patiently<T>(ask: () => Promise<T>): Promise<T> {
    for (;;) {
      try {
        return await ask();
      } catch (error) {
        if (!isTransient(error)) throw error;
        // Asked again it would take as long.
        if (isOutOfTime(error)) throw new StorageFault('the database took too long for a read', error);
        if (!ofUse()) throw new StorageFault('the database cannot be reached', error);
      }
      await sleep(clock, AGAIN_MS);
    }
  }
  return {
    ...pool,
    send: (sql, values, integers) => patiently(() => pool.send(sql, values, integers)),
    atOneMoment: (work) => patiently(() => pool.atOneMoment(work)),
    report: (work) =>
      patiently(async () => {
        try {
          return await pool.report(work);
        } catch (error) {
          // Asked again it would take as long, and keep others from theirs.
          throw isTooSlow(error) ? tooSlow() : error;
        }
      }),
  };
}

function tooSlow(): AppError {
  return new AppError(
    'storage_unavailable',
    'the database took longer for this report than one may take; ask for a shorter window',
  );
}
