// Caches of held trees: they follow each commit, as part of the claim (16 §4.6).
import { createHistoryCache, createSessionCache, NO_SESSIONS, type ReadCaches } from '#store/read/caches.ts';
import type { Effects } from '#store/write/transaction.ts';

const HISTORY_BYTES = 64 * 1024 * 1024;

export interface HeldCaches extends ReadCaches {
  /** Called by the journal. */
  readonly following: {
    readonly keepCurrent: (effects: Effects) => void;
    readonly forget: (sessions: readonly string[]) => void;
  };
  /** Drops a tree that this node no longer holds. */
  dropTree(root: string): void;
}

/** Caches nothing of a tree that this node does not hold, because other nodes change it. */
export function createHeldCaches(trees: { holds(root: string): boolean }): HeldCaches {
  const histories = createHistoryCache(HISTORY_BYTES);
  const sessions = createSessionCache();
  const getHeld: ReadCaches['sessions']['get'] = (id) => {
    const cached = sessions.get(id);
    if (cached !== null && trees.holds(cached.record.root_session_id)) return cached;
    return null;
  };
  return {
    // Not followed here.
    idle: NO_SESSIONS,
    whole: NO_SESSIONS,
    sessions: {
      get: getHeld,
      put(id, session) {
        if (trees.holds(session.record.root_session_id)) sessions.put(id, session);
      },
    },
    // A history does not name its tree, so it is kept only beside its session.
    histories: {
      get: (id) => (getHeld(id) === null ? null : histories.get(id)),
      put(id, messages, bytes) {
        if (getHeld(id) !== null) histories.put(id, messages, bytes);
      },
    },
    following: {
      keepCurrent(effects) {
        for (const { message, bytes } of effects.messages) histories.append(message, bytes);
        for (const id of effects.ended) histories.drop(id);
        for (const { id, values } of effects.sessions) {
          if (values === null) sessions.drop(id);
          else sessions.change(id, values);
        }
        for (const root of effects.trees) sessions.dropTree(root);
      },
      forget(ids) {
        for (const id of ids) {
          histories.drop(id);
          sessions.drop(id);
        }
      },
    },
    dropTree(root) {
      for (const id of sessions.dropTree(root)) histories.drop(id);
    },
  };
}
