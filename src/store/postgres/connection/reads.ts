// Reads over one connection or over any of a pool.
import type { EventId } from '#protocol/ids.ts';
import type { ReadDatabase, Reads } from '#store/read/reads.ts';
import { journalFault } from '../write/conflict.ts';
import type { Send } from './client.ts';
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
