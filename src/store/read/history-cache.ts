// Decoded messages of active sessions, so that a turn does not parse its whole history before every call.

import { extended } from '#core/policy/context/history.ts';
import type { StoredMessage } from '#protocol/message.ts';

interface Entry {
  readonly messages: readonly StoredMessage[];
  /** Length of the JSON text they came from. */
  readonly bytes: number;
}

/** Least recently used out first. An array once handed out never changes. */
export interface HistoryCache {
  get(sessionId: string): readonly StoredMessage[] | null;
  /** Keeps a whole history; one that alone exceeds the bound is not kept. */
  put(sessionId: string, messages: readonly StoredMessage[], bytes: number): void;
  /** Extends a history that is kept; does nothing for one that is not. */
  append(message: StoredMessage, bytes: number): void;
  drop(sessionId: string): void;
}

export function createHistoryCache(maxBytes: number): HistoryCache {
  const entries = new Map<string, Entry>();
  let total = 0;

  function drop(sessionId: string): void {
    total -= entries.get(sessionId)?.bytes ?? 0;
    entries.delete(sessionId);
  }
  function put(sessionId: string, messages: readonly StoredMessage[], bytes: number): void {
    drop(sessionId);
    entries.set(sessionId, { messages, bytes });
    total += bytes;
    for (const oldest of entries.keys()) {
      if (total <= maxBytes) return;
      drop(oldest);
    }
  }
  return {
    get(sessionId) {
      const entry = entries.get(sessionId);
      if (entry === undefined) return null;
      entries.delete(sessionId);
      entries.set(sessionId, entry);
      return entry.messages;
    },
    put,
    append(message, bytes) {
      const entry = entries.get(message.session_id);
      if (entry !== undefined) put(message.session_id, extended(entry.messages, message), entry.bytes + bytes);
    },
    drop,
  };
}
