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
 * @param ofUse whether another attempt makes sense; without it, an unanswered read throws `StorageFault`. A statement
 * beyond its time limit throws it at once. A report beyond its time limit throws `storage_unavailable`
 */
export function patientReads(pool: Pool, clock: Clock, ofUse: () => boolean): Pool {
  async function retryWhileUnreachable<T>(ask: () => Promise<T>): Promise<T> {
    for (;;) {
      try {
        return await ask();
      } catch (error) {
        if (!isTransient(error)) throw error;
        // A second attempt would take as long.
        if (isOutOfTime(error)) throw new StorageFault('the database took too long for a read', error);
        if (!ofUse()) throw new StorageFault('the database cannot be reached', error);
      }
      await sleep(clock, AGAIN_MS);
    }
  }
  return {
    ...pool,
    send: (sql, values, integers) => retryWhileUnreachable(() => pool.send(sql, values, integers)),
    atOneMoment: (work) => retryWhileUnreachable(() => pool.atOneMoment(work)),
    report: (work) =>
      retryWhileUnreachable(async () => {
        try {
          return await pool.report(work);
        } catch (error) {
          // A second attempt would take as long, and block other reports.
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
