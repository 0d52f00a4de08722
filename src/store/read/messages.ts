// Messages: the whole history of a turn with its checkpoints, and pages of wire objects (05 §3.4).

import type { MessageReader } from '#core/ports/store-reader.ts';
import { type CheckpointRow, checkpoint, type MessageRow, storedMessage, wireMessage } from '../schema/rows.ts';
import { BEHIND_ALL } from '../schema/words.ts';
import type { ReadCaches } from './caches.ts';
import type { Reads } from './reads.ts';

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

export function createMessageReader({ all, get }: Reads, cache: ReadCaches['histories']): MessageReader {
  return {
    history: async (sessionId) => {
      const known = cache.get(sessionId);
      if (known !== null) return known;
      const rows = await all<MessageRow>(ALL, sessionId);
      const messages = rows.map(storedMessage);
      cache.put(sessionId, messages, historyBytes(rows));
      return messages;
    },
    checkpoints: async (sessionId) => (await all<CheckpointRow>(CHECKPOINTS, sessionId)).map(checkpoint),
    get: async (messageId) => {
      const row = await get<WireRow>(BY_ID, messageId);
      return row === undefined ? null : wireMessage(row);
    },
    page: async (sessionId, { before, after, limit }) => {
      const upper = before ?? BEHIND_ALL;
      const rows =
        after === null
          ? (await all<WireRow>(NEWEST, sessionId, '', upper, limit)).toReversed()
          : await all<WireRow>(OLDEST, sessionId, after, upper, limit);
      const first = rows[0]?.id ?? after ?? upper;
      const last = rows.at(-1)?.id ?? before ?? after ?? BEHIND_ALL;
      const [below, above] = await Promise.all([get(ANY_BELOW, sessionId, first), get(ANY_ABOVE, sessionId, last)]);
      return {
        messages: rows.map(wireMessage),
        has_more_before: below !== undefined,
        has_more_after: above !== undefined,
      };
    },
  };
}
