// Decoded rows of sessions in use, so that a turn neither parses its history nor reads its session before every step.
import { extendHistory } from '#core/policy/context/session-history.ts';
import type { StoredMessage } from '#protocol/message.ts';
import type { Pusd } from '#protocol/money.ts';
import type { SessionRecord } from '#protocol/session.ts';

/** The caches that readers read and fill. */
export interface ReadCaches {
  readonly histories: Pick<HistoryCache, 'get' | 'put'>;
  readonly sessions: Pick<SessionCache, 'get' | 'put'>;
  /** Sessions that have no open turn. */
  readonly idle: SessionSet;
  /** Sessions that have no checkpoint. */
  readonly whole: SessionSet;
  /**
   * Begins to read rows of a session. The returned function returns whether the answer may be cached: false where a commit
   * that may be missing in it was stored meanwhile.
   */
  beginRead(sessionId: string): () => boolean;
}

const NO_SESSIONS: SessionSet = { has: () => false, set: () => {} };
const isCurrent = () => true;
/** For a store that answers at once: nothing is committed meanwhile. */
export const beginReadAtOnce: ReadCaches['beginRead'] = () => isCurrent;

export const NO_CACHES: ReadCaches = {
  histories: { get: () => null, put: () => {} },
  sessions: { get: () => null, put: () => {} },
  idle: NO_SESSIONS,
  whole: NO_SESSIONS,
  beginRead: beginReadAtOnce,
};

/** What a message takes beside its texts: its object with the counts of its call, its places, its encoded form. Measured. */
export const MESSAGE_BYTES = 1750;

/** Evicts the least recently used history first. A returned array never changes. */
export interface HistoryCache {
  get(sessionId: string): readonly StoredMessage[] | null;
  /**
   * Caches a whole history, unless it alone exceeds the bound.
   * @param bytes length of the JSON texts it came from, likewise below
   */
  put(sessionId: string, messages: readonly StoredMessage[], bytes: number): void;
  /** Extends a cached history that does not have the message yet; does nothing for others. */
  append(message: StoredMessage, bytes: number): void;
  drop(sessionId: string): void;
}

interface History {
  readonly messages: readonly StoredMessage[];
  /** Stored since the history was last read, which joins them: each message alone would copy the history. */
  readonly newer: readonly StoredMessage[];
  /** What all of them take. */
  readonly bytes: number;
}

export function createHistoryCache(maxBytes: number): HistoryCache {
  const entries = new Map<string, History>();
  let total = 0;

  function drop(sessionId: string): void {
    total -= entries.get(sessionId)?.bytes ?? 0;
    entries.delete(sessionId);
  }
  function set(sessionId: string, history: History): void {
    drop(sessionId);
    entries.set(sessionId, history);
    total += history.bytes;
    for (const oldest of entries.keys()) {
      if (total <= maxBytes) return;
      drop(oldest);
    }
  }
  return {
    get(sessionId) {
      const entry = entries.get(sessionId);
      if (entry === undefined) return null;
      const messages = entry.newer.length === 0 ? entry.messages : extendHistory(entry.messages, ...entry.newer);
      entries.delete(sessionId);
      entries.set(sessionId, { messages, newer: [], bytes: entry.bytes });
      return messages;
    },
    put: (sessionId, messages, bytes) =>
      set(sessionId, { messages, newer: [], bytes: bytes + messages.length * MESSAGE_BYTES }),
    append(message, bytes) {
      const entry = entries.get(message.session_id);
      if (entry === undefined) return;
      // A read on another connection may have found it before the answer of its commit arrived.
      const last = entry.newer.at(-1) ?? entry.messages.at(-1);
      if (last !== undefined && last.id >= message.id) return;
      const newer = [...entry.newer, message];
      set(message.session_id, { messages: entry.messages, newer, bytes: entry.bytes + bytes + MESSAGE_BYTES });
    },
    drop,
  };
}

/** Ids of sessions of which one thing is known. */
export interface SessionSet {
  has(sessionId: string): boolean;
  set(sessionId: string, isKnown: boolean): void;
}

/** Maximum ids, as many sessions as a busy server has open; others are looked up again. */
const MAX_IDS = 4096;

export function createSessionSet(): SessionSet {
  const ids = new Set<string>();
  return {
    has: (sessionId) => ids.has(sessionId),
    set(sessionId, isKnown) {
      if (!isKnown) {
        ids.delete(sessionId);
        return;
      }
      if (ids.size >= MAX_IDS) ids.clear();
      ids.add(sessionId);
    },
  };
}

/** A session as the engine works with it. */
export interface CachedSession {
  readonly record: SessionRecord;
  /** The limit of the last budget warning. */
  readonly warned_pusd: Pusd | null;
}

/** Evicts the least recently used record first. A returned record never changes. */
export interface SessionCache {
  get(id: string): CachedSession | null;
  put(id: string, session: CachedSession): void;
  /** Changes a cached session; does nothing for others. */
  change(id: string, values: Partial<SessionRecord>): void;
  drop(id: string): void;
  /** Drops a tree and returns the ids that were cached. */
  dropTree(root: string): readonly string[];
}

/** A record holds its system prompt, some kB, so some tens of MiB at most; as many sessions as a busy server has at work. */
const MAX_SESSIONS = 2048;

export function createSessionCache(): SessionCache {
  const entries = new Map<string, CachedSession>();

  function put(id: string, session: CachedSession): void {
    entries.delete(id);
    entries.set(id, session);
    if (entries.size > MAX_SESSIONS) entries.delete(entries.keys().next().value ?? '');
  }
  return {
    get(id) {
      const known = entries.get(id);
      if (known === undefined) return null;
      put(id, known);
      return known;
    },
    put,
    change(id, values) {
      const known = entries.get(id);
      if (known !== undefined) entries.set(id, { ...known, record: { ...known.record, ...values } });
    },
    drop: (id) => void entries.delete(id),
    dropTree(root) {
      const ids = [...entries].filter(([, { record }]) => record.root_session_id === root).map(([id]) => id);
      for (const id of ids) entries.delete(id);
      return ids;
    },
  };
}
