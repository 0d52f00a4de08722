// Events: replay, listing and the look-ups of recovery; always by id (02 §5).

import type { EventQuery, EventReader } from '#core/ports/store.ts';
import type { EventId } from '#protocol/ids.ts';
import * as sql from '#store/read/events.ts';
import { pageOf } from '#store/read/page.ts';
import { type EventRow, rawEvent, storedEvent } from '#store/schema/rows.ts';
import type { Reads } from '../connection/reads.ts';

export function createEventReader({ all, get }: Reads): EventReader {
  function read(query: EventQuery, limit: number): Promise<readonly EventRow[]> {
    const page = sql.compose(query);
    return all<EventRow>(page.sql, ...page.values, limit);
  }
  async function markOf(column: 'last_id' | 'pruned_through_id', root: string): Promise<EventId | null> {
    const row = await get<{ id: EventId | null }>(`SELECT ${column} AS id FROM trees WHERE root_session_id = ?`, root);
    return row?.id ?? null;
  }
  return {
    list: async (query) => pageOf(await read(query, query.limit + 1), query.limit, (row) => row.id, storedEvent),
    listRaw: async (query) => (await read(query, query.limit)).map(rawEvent),
    newestId: async (root) =>
      root === undefined
        ? ((await get<{ id: EventId | null }>('SELECT max(id) AS id FROM event_rows'))?.id ?? null)
        : markOf('last_id', root),
    prunedThrough: (root) => markOf('pruned_through_id', root),
    openCalls: async (turnId) =>
      (turnId === undefined
        ? await all<EventRow>(sql.ALL_OPEN_CALLS)
        : await all<EventRow>(sql.OPEN_CALLS_OF_TURN, turnId)
      ).map(storedEvent),
    openGatewayCalls: async (since, root) =>
      (root === undefined
        ? await all<EventRow>(sql.ALL_OPEN_GATEWAY_CALLS, since)
        : await all<EventRow>(sql.OPEN_GATEWAY_CALLS_OF_TREE, since, root)
      ).map(storedEvent),
    callCount: async (sessionId) => (await get<{ n: number }>(sql.CALL_COUNT, sessionId))?.n ?? 0,
    lastOfTurn: async (turnId, types) => {
      const row = await get<EventRow>(sql.LAST_OF_TURN, turnId, JSON.stringify(types));
      return row === undefined ? null : storedEvent(row);
    },
    ofTurn: async (turnId, types) =>
      (await all<EventRow>(sql.ALL_OF_TURN, turnId, JSON.stringify(types))).map(storedEvent),
  };
}
