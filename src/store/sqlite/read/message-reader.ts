// Messages: the whole history for a turn with its checkpoints, pages of wire objects for people (05 §3.4).
import type { MessageReader } from '../../../ports/store.ts';
import type { SqliteStoreHandle } from '../connection/open.ts';
import { type CheckpointRow, checkpoint, type MessageRow, storedMessage, wireMessage } from '../schema/rows.ts';

type WireRow = Omit<MessageRow, 'provider_raw_json'>;
const WIRE_COLUMNS = 'id, session_id, turn_id, role, status, created_at, metadata_json, content_json';
const BEHIND_ALL = '~';

export function createMessageReader({ db, history }: SqliteStoreHandle): MessageReader {
  const all = db.prepare<[string], MessageRow>('SELECT * FROM messages WHERE session_id = ? ORDER BY id');
  const checkpoints = db.prepare<[string], CheckpointRow>(
    'SELECT * FROM compaction_checkpoints WHERE session_id = ? ORDER BY id',
  );
  const byId = db.prepare<[string], WireRow>(`SELECT ${WIRE_COLUMNS} FROM messages WHERE id = ?`);
  const between = (order: 'ASC' | 'DESC') =>
    db.prepare<[string, string, string, number], WireRow>(
      `SELECT ${WIRE_COLUMNS} FROM messages WHERE session_id = ? AND id > ? AND id < ? ORDER BY id ${order} LIMIT ?`,
    );
  const oldest = between('ASC');
  const newest = between('DESC');
  const anyBelow = db.prepare('SELECT 1 FROM messages WHERE session_id = ? AND id < ? LIMIT 1');
  const anyAbove = db.prepare('SELECT 1 FROM messages WHERE session_id = ? AND id > ? LIMIT 1');

  return {
    history: async (sessionId) => {
      const kept = history.get(sessionId);
      if (kept !== null) return kept;
      const rows = all.all(sessionId);
      const messages = rows.map(storedMessage);
      const bytes = rows.reduce((sum, row) => sum + row.content_json.length + (row.provider_raw_json?.length ?? 0), 0);
      history.put(sessionId, messages, bytes);
      return messages;
    },
    checkpoints: async (sessionId) => checkpoints.all(sessionId).map(checkpoint),
    get: async (messageId) => {
      const row = byId.get(messageId);
      return row === undefined ? null : wireMessage(row);
    },
    page: async (sessionId, { before, after, limit }) => {
      const upper = before ?? BEHIND_ALL;
      const rows =
        after === null ? newest.all(sessionId, '', upper, limit).reverse() : oldest.all(sessionId, after, upper, limit);
      const first = rows[0]?.id ?? after ?? upper;
      const last = rows.at(-1)?.id ?? before ?? after ?? BEHIND_ALL;
      return {
        messages: rows.map(wireMessage),
        has_more_before: anyBelow.get(sessionId, first) !== undefined,
        has_more_after: anyAbove.get(sessionId, last) !== undefined,
      };
    },
  };
}
