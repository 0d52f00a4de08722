// Messages: the whole history for a turn with its checkpoints, pages of wire objects for people (05 §3.4).

import type { MessageReader } from '#core/ports/store.ts';
import type { StoredMessage } from '#protocol/message.ts';
import * as sql from '#store/read/messages.ts';
import { type CheckpointRow, checkpoint, type MessageRow, storedMessage, wireMessage } from '#store/schema/rows.ts';
import { BEHIND_ALL } from '#store/schema/words.ts';
import type { Reads } from '../connection/reads.ts';

/** Histories of held trees, which nobody else extends (16 §4.6). */
export interface KnownHistories {
  get(sessionId: string): readonly StoredMessage[] | null;
  put(sessionId: string, messages: readonly StoredMessage[], bytes: number): void;
}

export function createMessageReader({ all, get }: Reads, kept: KnownHistories): MessageReader {
  return {
    history: async (sessionId) => {
      const known = kept.get(sessionId);
      if (known !== null) return known;
      const rows = await all<MessageRow>(sql.ALL, sessionId);
      const messages = rows.map(storedMessage);
      kept.put(sessionId, messages, sql.historyBytes(rows));
      return messages;
    },
    checkpoints: async (sessionId) => (await all<CheckpointRow>(sql.CHECKPOINTS, sessionId)).map(checkpoint),
    get: async (messageId) => {
      const row = await get<sql.WireRow>(sql.BY_ID, messageId);
      return row === undefined ? null : wireMessage(row);
    },
    page: async (sessionId, { before, after, limit }) => {
      const upper = before ?? BEHIND_ALL;
      const rows =
        after === null
          ? (await all<sql.WireRow>(sql.NEWEST, sessionId, '', upper, limit)).toReversed()
          : await all<sql.WireRow>(sql.OLDEST, sessionId, after, upper, limit);
      const first = rows[0]?.id ?? after ?? upper;
      const last = rows.at(-1)?.id ?? before ?? after ?? BEHIND_ALL;
      const [below, above] = await Promise.all([
        get(sql.ANY_BELOW, sessionId, first),
        get(sql.ANY_ABOVE, sessionId, last),
      ]);
      return {
        messages: rows.map(wireMessage),
        has_more_before: below !== undefined,
        has_more_after: above !== undefined,
      };
    },
  };
}
