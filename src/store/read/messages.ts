// Messages: what every database is asked for (05 §3.4).
import type { MessageRow } from '../schema/rows.ts';

/** Without what never leaves the engine. */
export type WireRow = Omit<MessageRow, 'provider_raw_json'>;
const WIRE_COLUMNS = 'id, session_id, turn_id, role, status, created_at, metadata_json, content_json';
const BETWEEN = `SELECT ${WIRE_COLUMNS} FROM messages WHERE session_id = ? AND id > ? AND id < ? ORDER BY id`;

export const ALL = 'SELECT * FROM messages WHERE session_id = ? ORDER BY id';
export const CHECKPOINTS = 'SELECT * FROM compaction_checkpoints WHERE session_id = ? ORDER BY id';
export const BY_ID = `SELECT ${WIRE_COLUMNS} FROM messages WHERE id = ?`;
export const OLDEST = `${BETWEEN} ASC LIMIT ?`;
export const NEWEST = `${BETWEEN} DESC LIMIT ?`;
export const ANY_BELOW = 'SELECT 1 AS found FROM messages WHERE session_id = ? AND id < ? LIMIT 1';
export const ANY_ABOVE = 'SELECT 1 AS found FROM messages WHERE session_id = ? AND id > ? LIMIT 1';

/** Length of the JSON texts that a history is decoded from. */
export function historyBytes(rows: readonly MessageRow[]): number {
  return rows.reduce((sum, row) => sum + row.content_json.length + (row.provider_raw_json?.length ?? 0), 0);
}
