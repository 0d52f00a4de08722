// Messages: the whole history for a turn with its checkpoints, pages of wire objects for people (05 §3.4).
import type { MessageReader } from '#core/ports/store.ts';
import * as sql from '#store/read/messages.ts';
import { type CheckpointRow, checkpoint, type MessageRow, storedMessage, wireMessage } from '#store/schema/rows.ts';
import { BEHIND_ALL } from '#store/schema/words.ts';
import type { SqliteStoreHandle } from '../connection/open.ts';

export function createMessageReader({ db, history }: SqliteStoreHandle): MessageReader {
  const all = db.prepare<[string], MessageRow>(sql.ALL);
  const checkpoints = db.prepare<[string], CheckpointRow>(sql.CHECKPOINTS);
  const byId = db.prepare<[string], sql.WireRow>(sql.BY_ID);
  const oldest = db.prepare<[string, string, string, number], sql.WireRow>(sql.OLDEST);
  const newest = db.prepare<[string, string, string, number], sql.WireRow>(sql.NEWEST);
  const anyBelow = db.prepare(sql.ANY_BELOW);
  const anyAbove = db.prepare(sql.ANY_ABOVE);

  return {
    history: async (sessionId) => {
      const kept = history.get(sessionId);
      if (kept !== null) return kept;
      const rows = all.all(sessionId);
      const messages = rows.map(storedMessage);
      history.put(sessionId, messages, sql.historyBytes(rows));
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
