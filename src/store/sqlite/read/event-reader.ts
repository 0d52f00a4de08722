// Events: replay, listing and the look-ups of recovery; always by id (02 §5).

import type { EventQuery, EventReader } from '#core/ports/store.ts';
import type { AnyEvent } from '#protocol/event.ts';
import type { EventId } from '#protocol/ids.ts';
import * as sql from '#store/read/events.ts';
import { pageOf } from '#store/read/page.ts';
import { type EventRow, rawEvent, storedEvent } from '#store/schema/rows.ts';
import { PRUNED_THROUGH } from '#store/schema/words.ts';
import type { SqliteStoreHandle } from '../connection/open.ts';
import { createStatementCache } from '../connection/statements.ts';

export function createEventReader({ db }: SqliteStoreHandle): EventReader {
  const listed = createStatementCache<EventRow>(db);
  const newest = db.prepare<[], EventId | null>('SELECT max(id) FROM event_rows').pluck();
  const pruned = db.prepare<[string], EventId>('SELECT value FROM meta WHERE key = ?').pluck();
  const lastOfTurn = db.prepare<[string, string], EventRow>(sql.LAST_OF_TURN);
  const allOfTurn = db.prepare<[string, string], EventRow>(sql.ALL_OF_TURN);
  const openCallsOfTurn = db.prepare<string[], EventRow>(sql.OPEN_CALLS_OF_TURN);
  const openGatewayCallsOfTree = db.prepare<string[], EventRow>(sql.OPEN_GATEWAY_CALLS_OF_TREE);
  const allOpenGatewayCalls = db.prepare<string[], EventRow>(sql.ALL_OPEN_GATEWAY_CALLS);
  const callCount = db.prepare<[string], number>(sql.CALL_COUNT).pluck();
  const allOpenCalls = db.prepare<string[], EventRow>(sql.ALL_OPEN_CALLS);

  function read(query: EventQuery, limit: number): EventRow[] {
    const page = sql.compose(query);
    return listed(page.sql).all(...page.values, limit);
  }
  const eventOrNull = (row: EventRow | undefined): AnyEvent | null => (row === undefined ? null : storedEvent(row));

  return {
    list: async (query) => pageOf(read(query, query.limit + 1), query.limit, (row) => row.id, storedEvent),
    listRaw: async (query) => read(query, query.limit).map(rawEvent),
    newestId: async () => newest.get() ?? null,
    prunedThrough: async () => pruned.get(PRUNED_THROUGH) ?? null,
    openCalls: async (turnId) =>
      (turnId === undefined ? allOpenCalls.all() : openCallsOfTurn.all(turnId)).map(storedEvent),
    openGatewayCalls: async (since, root) =>
      (root === undefined ? allOpenGatewayCalls.all(since) : openGatewayCallsOfTree.all(since, root)).map(storedEvent),
    callCount: async (sessionId) => callCount.get(sessionId) ?? 0,
    lastOfTurn: async (turnId, types) => eventOrNull(lastOfTurn.get(turnId, JSON.stringify(types))),
    ofTurn: async (turnId, types) => allOfTurn.all(turnId, JSON.stringify(types)).map(storedEvent),
  };
}
