// Events: replay, listing and the look-ups of recovery; always by id (02 §5).
import type { AnyEvent } from '../../../domain/event.ts';
import type { EventId } from '../../../kernel/ids.ts';
import type { EventQuery, EventReader } from '../../../ports/store.ts';
import type { SqliteStoreHandle } from '../connection/open.ts';
import { createStatementCache } from '../connection/statements.ts';
import { type EventRow, storedEvent } from '../schema/rows.ts';
import { PRUNED_THROUGH, TURN_IS_OPEN, WITH_TREE } from '../schema/words.ts';
import { pageOf } from './page.ts';

const BEHIND_ALL = '~';
const TYPE_IN = 'type IN (SELECT value FROM json_each(?))';

export function createEventReader({ db }: SqliteStoreHandle): EventReader {
  const listed = createStatementCache<EventRow>(db);
  const newest = db.prepare<[], EventId | null>('SELECT max(id) FROM events').pluck();
  const pruned = db.prepare<[string], EventId>('SELECT value FROM meta WHERE key = ?').pluck();
  const ofTurn = (order: string) =>
    db.prepare<[string, string], EventRow>(
      `SELECT * FROM events WHERE turn_id = ? AND ${TYPE_IN} ORDER BY id ${order}`,
    );
  const lastOfTurn = ofTurn('DESC LIMIT 1');
  const allOfTurn = ofTurn('ASC');
  // An ended turn has no open call: CROSS JOIN and the plus make SQLite search open turns instead of all calls ever.
  const openCalls = (turns: string) =>
    db.prepare<string[], EventRow>(`
    SELECT e.* FROM turns t CROSS JOIN events e ON e.turn_id = t.id AND +e.type = 'llm.call_started'
    WHERE ${turns} AND NOT EXISTS (
      SELECT 1 FROM events o
      WHERE o.turn_id = e.turn_id AND +o.type IN ('llm.call_completed', 'llm.call_failed')
        AND o.payload_json ->> '$.request_id' = e.payload_json ->> '$.request_id')
    ORDER BY e.id`);
  const openCallsOfTurn = openCalls('t.id = ?');
  const allOpenCalls = openCalls(`t.${TURN_IS_OPEN}`);

  function read(query: EventQuery, limit: number): EventRow[] {
    const { sql, values } = compose(query);
    return listed(sql).all(...values, limit);
  }
  const eventOrNull = (row: EventRow | undefined): AnyEvent | null => (row === undefined ? null : storedEvent(row));

  return {
    list: async (query) => pageOf(read(query, query.limit + 1), query.limit, (row) => row.id, storedEvent),
    listRaw: async (query) =>
      read(query, query.limit).map((row) => ({ event: storedEvent(row), payload_json: row.payload_json })),
    newestId: async () => newest.get() ?? null,
    prunedThrough: async () => pruned.get(PRUNED_THROUGH) ?? null,
    openCalls: async (turnId) =>
      (turnId === undefined ? allOpenCalls.all() : openCallsOfTurn.all(turnId)).map(storedEvent),
    lastOfTurn: async (turnId, types) => eventOrNull(lastOfTurn.get(turnId, JSON.stringify(types))),
    ofTurn: async (turnId, types) => allOfTurn.all(turnId, JSON.stringify(types)).map(storedEvent),
  };
}

/** The whole statement but its limit. Ids are found through an index first, so that a page reads only its own rows. */
function compose(query: EventQuery): { readonly sql: string; readonly values: readonly unknown[] } {
  const values: unknown[] = [];
  const bind = (term: string, ...bound: unknown[]) => {
    values.push(...bound);
    return term;
  };
  const { session_id, include_workers, worker_types = [], types } = query;
  const withTree = session_id !== null && (include_workers || worker_types.length > 0);
  const head = withTree ? bind(WITH_TREE, session_id) : '';
  const terms = [bind('id > ? AND id <= ?', query.after ?? '', query.until ?? BEHIND_ALL)];
  if (withTree) terms.push('session_id IN (SELECT id FROM tree)');
  else if (session_id !== null) terms.push(bind('session_id = ?', session_id));
  if (types !== null) terms.push(bind(TYPE_IN, JSON.stringify(types)));
  if (withTree && !include_workers) {
    terms.push(bind(`(session_id = ? OR ${TYPE_IN})`, session_id, JSON.stringify(worker_types)));
  }
  const ids = `SELECT id FROM events WHERE ${terms.join(' AND ')} ORDER BY id LIMIT ?`;
  return { sql: `${head} SELECT * FROM events WHERE id IN (${ids}) ORDER BY id`, values };
}
