// What pruning looks for: old events, but for those of trees with an open turn (02 §6).
import { TURN_IS_OPEN } from '../schema/words.ts';

export const SLICE_ROWS = 5000;

export interface OldEvent {
  readonly id: string;
  readonly timestamp_ms: number;
}

const BUSY = `SELECT id AS session_id FROM sessions WHERE root_session_id IN (
  SELECT s.root_session_id FROM turns t JOIN sessions s ON s.id = t.session_id WHERE t.${TURN_IS_OPEN})`;
export const OLD = `
  SELECT id, timestamp_ms FROM events
  WHERE timestamp_ms < ? AND (timestamp_ms, id) > (?, ?) AND session_id NOT IN (${BUSY})
  ORDER BY timestamp_ms, id LIMIT ${SLICE_ROWS}`;
export const SKIPPED = `
  SELECT count(*) AS n FROM (${BUSY}) AS b
  WHERE EXISTS (SELECT 1 FROM events e WHERE e.session_id = b.session_id AND e.timestamp_ms < ?)`;
export const OLDEST_KEPT = `
  SELECT min(t) AS t FROM (
    SELECT min(timestamp_ms) AS t FROM events WHERE timestamp_ms >= ?
    UNION ALL SELECT min(timestamp_ms) FROM events WHERE session_id IN (${BUSY})) AS kept`;
