// What pruning looks for: old events, but for those of trees with an open turn (02 §6).
import { TURN_IS_OPEN } from '../schema/words.ts';

export const SLICE_ROWS = 5000;

export interface OldEvent {
  readonly id: string;
  readonly timestamp_ms: number;
}

const BUSY_KEYS = `SELECT k.session_key FROM sessions s JOIN event_sessions k ON k.session_id = s.id WHERE s.root_session_id IN (
  SELECT r.root_session_id FROM turns t JOIN sessions r ON r.id = t.session_id WHERE t.${TURN_IS_OPEN})`;
export const OLD = `
  SELECT id, timestamp_ms FROM event_rows
  WHERE timestamp_ms < ? AND (timestamp_ms, id) > (?, ?) AND session_key NOT IN (${BUSY_KEYS})
  ORDER BY timestamp_ms, id LIMIT ${SLICE_ROWS}`;
export const SKIPPED = `
  SELECT count(*) AS n FROM (${BUSY_KEYS}) AS b
  WHERE EXISTS (SELECT 1 FROM event_rows e WHERE e.session_key = b.session_key AND e.timestamp_ms < ?)`;
export const OLDEST_KEPT = `
  SELECT min(t) AS t FROM (
    SELECT min(timestamp_ms) AS t FROM event_rows WHERE timestamp_ms >= ?
    UNION ALL SELECT min(timestamp_ms) FROM event_rows WHERE session_key IN (${BUSY_KEYS})) AS kept`;
