// Caches of held trees: they follow each commit, as part of the claim (16 §4.6).
import {
  createHistoryCache,
  createSessionCache,
  createSessionSet,
  type ReadCaches,
  type SessionSet,
} from '#store/read/caches.ts';
import type { Effects } from '#store/write/transaction.ts';

const HISTORY_BYTES = 64 * 1024 * 1024;
/** Maximum sessions that are being read; beyond it the answers under way are not cached. */
const MAX_READS = 4096;
/** Maximum new sessions; of others their first turn reads what they have. */
const MAX_NEW = 4096;

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
  /** Session -> the reads of it that began since its last commit. */
  const reads = new Map<string, object>();
  /** Sessions that have neither turn, message nor checkpoint, until their record is read; and their trees. */
  const unread = new Map<string, string>();

  const getHeld: ReadCaches['sessions']['get'] = (id) => {
    const cached = sessions.get(id);
    if (cached !== null && trees.holds(cached.record.root_session_id)) return cached;
    return null;
  };
  const limitToHeld = (ids: SessionSet): SessionSet => ({
    has: (id) => ids.has(id) && getHeld(id) !== null,
    set(id, isKnown) {
      if (!isKnown || getHeld(id) !== null) ids.set(id, isKnown);
    },
  });
  const idle = limitToHeld(createSessionSet());
  const whole = limitToHeld(createSessionSet());
  /** What else is known of a session does not name its tree, so it is kept only beside its record. */
  function dropRest(id: string): void {
    histories.drop(id);
    idle.set(id, false);
    whole.set(id, false);
  }
  function followChange(id: string): void {
    reads.delete(id);
    unread.delete(id);
  }
  return {
    idle,
    whole,
    sessions: {
      get: getHeld,
      put(id, session) {
        if (!trees.holds(session.record.root_session_id)) return;
        // The rest may have been left by a record that was evicted before its tree was lost.
        if (sessions.get(id) === null) dropRest(id);
        sessions.put(id, session);
        if (!unread.delete(id)) return;
        histories.put(id, [], 0);
        idle.set(id, true);
        whole.set(id, true);
      },
    },
    histories: {
      get: (id) => (getHeld(id) === null ? null : histories.get(id)),
      put(id, messages, bytes) {
        if (getHeld(id) !== null) histories.put(id, messages, bytes);
      },
    },
    beginRead(id) {
      if (reads.size >= MAX_READS) reads.clear();
      const read = reads.get(id) ?? {};
      reads.set(id, read);
      return () => reads.get(id) === read;
    },
    following: {
      keepCurrent(effects) {
        if (unread.size >= MAX_NEW) unread.clear();
        for (const { id, root } of effects.created) unread.set(id, root);
        for (const { message, bytes } of effects.messages) {
          followChange(message.session_id);
          histories.append(message, bytes);
        }
        for (const { session_id, isOpen } of effects.turns) {
          followChange(session_id);
          idle.set(session_id, !isOpen);
        }
        for (const id of effects.checkpointed) {
          followChange(id);
          whole.set(id, false);
        }
        for (const id of effects.ended) histories.drop(id);
        for (const { id, values } of effects.sessions) {
          reads.delete(id);
          if (values === null) sessions.drop(id);
          else sessions.change(id, values);
        }
        for (const root of effects.trees) {
          reads.clear();
          for (const id of sessions.dropTree(root)) dropRest(id);
        }
      },
      forget(ids) {
        for (const id of ids) {
          sessions.drop(id);
          unread.delete(id);
          dropRest(id);
        }
      },
    },
    dropTree(root) {
      reads.clear();
      for (const [id, of] of unread) if (of === root) unread.delete(id);
      for (const id of sessions.dropTree(root)) dropRest(id);
    },
  };
}
