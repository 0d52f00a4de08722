// What is kept decoded of held trees, following each commit: part of the claim (16 §4.6).
import type { SessionRecord } from '#protocol/session.ts';
import { createHistoryCache } from '#store/read/history-cache.ts';
import type { KnownSession } from '#store/read/sessions.ts';
import type { Effects } from '#store/write/effects.ts';
import type { Known } from './store.ts';

const HISTORY_BYTES = 64 * 1024 * 1024;
/** A record holds its system prompt, so some MiB at most. */
const MAX_SESSIONS = 256;

export interface FollowingKnown extends Known {
  /** For the journal. */
  readonly following: {
    readonly keepCurrent: (effects: Effects) => void;
    readonly forget: (sessions: readonly string[]) => void;
  };
  /** Of a tree that is held no longer. */
  dropTree(root: string): void;
}

/** Nothing is kept or used of a tree that is not held: others change it. */
export function createKnown(trees: { holds(root: string): boolean }): FollowingKnown {
  const histories = createHistoryCache(HISTORY_BYTES);
  const sessions = new Map<string, KnownSession>();
  const held = (id: string): KnownSession | null => {
    const known = sessions.get(id);
    return known !== undefined && trees.holds(known.record.root_session_id) ? known : null;
  };
  function change(id: string, values: Partial<SessionRecord> | null): void {
    const known = sessions.get(id);
    if (known === undefined) return;
    if (values === null) sessions.delete(id);
    else sessions.set(id, { ...known, record: { ...known.record, ...values } });
  }
  return {
    sessions: {
      get: held,
      put(id, known) {
        if (!trees.holds(known.record.root_session_id)) return;
        if (sessions.size >= MAX_SESSIONS) sessions.delete(sessions.keys().next().value ?? '');
        sessions.set(id, known);
      },
    },
    histories: {
      // Only beside its session, which says of which tree it is.
      get: (id) => (held(id) === null ? null : histories.get(id)),
      put(id, messages, bytes) {
        if (held(id) !== null) histories.put(id, messages, bytes);
      },
    },
    following: {
      keepCurrent(effects) {
        for (const { message, bytes } of effects.messages) histories.append(message, bytes);
        for (const id of effects.ended) histories.drop(id);
        for (const { id, values } of effects.sessions) change(id, values);
      },
      forget(ids) {
        for (const id of ids) {
          histories.drop(id);
          sessions.delete(id);
        }
      },
    },
    dropTree(root) {
      for (const [id, { record }] of sessions) {
        if (record.root_session_id !== root) continue;
        sessions.delete(id);
        histories.drop(id);
      }
    },
  };
}
