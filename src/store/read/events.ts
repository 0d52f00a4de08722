// Events: replay, lists and the lookups of recovery, always by id (02 §5).
import type { EventQuery, EventReader } from '#core/ports/store-reader.ts';
import type { Awaitable } from '#protocol/async/awaitable.ts';
import { type EventRow, rawEvent, storedEvent } from '../schema/rows.ts';
import { BEHIND_ALL, EVENTS_OF_TURN, TURN_T_IS_OPEN, WITH_TREE } from '../schema/words.ts';
import { type Reads, toPage } from './read-database.ts';

const TYPE_IN = 'type {in_list}';
const OF_TURN = `SELECT e.* FROM ${EVENTS_OF_TURN} WHERE t.id = ? AND ${TYPE_IN} ORDER BY e.id`;

export const LAST_OF_TURN = `${OF_TURN} DESC LIMIT 1`;
export const ALL_OF_TURN = `${OF_TURN} ASC`;
/** An ended turn has no open call: `no_index` makes SQLite search the open turns instead of all calls. */
const openCalls = (turns: string) => `
  SELECT e.* FROM ${EVENTS_OF_TURN} AND {no_index}e.type = 'llm.call_started'
  WHERE ${turns} AND NOT EXISTS (
    SELECT 1 FROM events o
    WHERE o.session_id = e.session_id AND o.id > e.id AND {no_index}o.type IN ('llm.call_completed', 'llm.call_failed')
      AND {json_field(o.payload_json, request_id)} = {json_field(e.payload_json, request_id)})
  ORDER BY e.id`;
export const OPEN_CALLS_OF_TURN = openCalls('t.id = ?');
export const ALL_OPEN_CALLS = openCalls(TURN_T_IS_OPEN);

/**
 * Gateway calls belong to no turn. A gateway session ends after its last call, so open calls are found
 * among the open sessions.
 */
const openGatewayCalls = (sessions: string) => `
  SELECT e.* FROM sessions s {join_in_order} events e ON e.session_id = s.id AND e.id >= ?
  WHERE s.door = 'gateway' AND s.ended_at IS NULL AND ${sessions}
    AND e.turn_id IS NULL AND {no_index}e.type = 'llm.call_started' AND NOT EXISTS (
      SELECT 1 FROM events o
      WHERE o.session_id = e.session_id AND o.id > e.id AND {no_index}o.type IN ('llm.call_completed', 'llm.call_failed')
        AND {json_field(o.payload_json, request_id)} = {json_field(e.payload_json, request_id)})
  ORDER BY e.id`;
export const OPEN_GATEWAY_CALLS_OF_TREE = openGatewayCalls('s.root_session_id = ?');
/** Both values of `is_worker` are listed so that SQLite uses the index. */
export const ALL_OPEN_GATEWAY_CALLS = openGatewayCalls('s.is_worker IN (0, 1)');
export const CALL_COUNT =
  "SELECT count(*) AS n FROM events WHERE session_id = ? AND {no_index}type = 'llm.call_started'";

const KEYS = 'SELECT session_key FROM event_sessions WHERE session_id';
const OF_SESSION = `session_key = (${KEYS} = ?)`;
const NUMBER_IN = `type IN (SELECT number FROM event_types WHERE ${TYPE_IN})`;

/** The whole statement without the value of its limit. It finds ids in an index first, so that a page reads only its own rows. */
export function composeQuery(query: EventQuery): { readonly sql: string; readonly values: readonly unknown[] } {
  const values: unknown[] = [];
  const bind = (term: string, ...bound: unknown[]) => {
    values.push(...bound);
    return term;
  };
  const { session_id, include_workers, worker_types = [], types } = query;
  const withTree = session_id !== null && (include_workers || worker_types.length > 0);
  const head = withTree ? bind(WITH_TREE, session_id) : '';
  const terms = [bind('id > ? AND id <= ?', query.after ?? '', query.until ?? BEHIND_ALL)];
  if (withTree) terms.push(`session_key IN (${KEYS} IN (SELECT id FROM tree))`);
  else if (session_id !== null) terms.push(bind(OF_SESSION, session_id));
  if (types !== null) terms.push(bind(NUMBER_IN, JSON.stringify(types)));
  if (withTree && !include_workers) {
    terms.push(bind(`(${OF_SESSION} OR ${NUMBER_IN})`, session_id, JSON.stringify(worker_types)));
  }
  const ids = `SELECT id FROM event_rows WHERE ${terms.join(' AND ')} ORDER BY id LIMIT ?`;
  return { sql: `${head} SELECT * FROM events WHERE id IN (${ids}) ORDER BY id`, values };
}

export function createEventReader({ all, get }: Reads): Omit<EventReader, 'newestId' | 'prunedThrough'> {
  function read(query: EventQuery, limit: number): Awaitable<readonly EventRow[]> {
    const page = composeQuery(query);
    return all<EventRow>(page.sql, ...page.values, limit);
  }
  return {
    list: async (query) => toPage(await read(query, query.limit + 1), query.limit, (row) => row.id, storedEvent),
    listRaw: async (query) => (await read(query, query.limit)).map(rawEvent),
    openCalls: async (turnId) =>
      (turnId === undefined
        ? await all<EventRow>(ALL_OPEN_CALLS)
        : await all<EventRow>(OPEN_CALLS_OF_TURN, turnId)
      ).map(storedEvent),
    openGatewayCalls: async (since, root) =>
      (root === undefined
        ? await all<EventRow>(ALL_OPEN_GATEWAY_CALLS, since)
        : await all<EventRow>(OPEN_GATEWAY_CALLS_OF_TREE, since, root)
      ).map(storedEvent),
    callCount: async (sessionId) => (await get<{ n: number }>(CALL_COUNT, sessionId))?.n ?? 0,
    findNewestOfTurn: async (turnId, types) => {
      const row = await get<EventRow>(LAST_OF_TURN, turnId, JSON.stringify(types));
      if (row === undefined) return null;
      return storedEvent(row);
    },
    listOfTurn: async (turnId, types) =>
      (await all<EventRow>(ALL_OF_TURN, turnId, JSON.stringify(types))).map(storedEvent),
  };
}
