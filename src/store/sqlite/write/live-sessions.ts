// Sessions that commits are made for: whether they have ended, and what goes from them onto events and cost facts.
import type Database from 'better-sqlite3';
import type { SessionStamp } from '#core/policy/journal/prepare.ts';
import * as sql from '#store/read/sessions.ts';

/** Only what is live is kept: an end that is rolled back then leaves nothing to forget. */
export interface LiveSessions {
  hasEnded(sessionId: string): boolean;
  /** Null when there is no such session. */
  stamp(sessionId: string): SessionStamp | null;
  /** For a session that ends or was purged, or whose insertion was rolled back. */
  forget(sessionId: string): void;
}

/** As many as a busy server has open; more are looked up again. */
const MAX_KEPT = 4096;

export function createLiveSessions(db: Database.Database): LiveSessions {
  const live = new Map<string, SessionStamp>();
  const select = db.prepare<[string], sql.StampRow>(sql.STAMP);

  function read(sessionId: string): { readonly stamp: SessionStamp; readonly ended: boolean } | null {
    const row = select.get(sessionId);
    if (row === undefined) return null;
    const { ended, ...rest } = row;
    const stamp = { ...rest, is_worker: row.is_worker === 1 };
    if (ended === 0) {
      if (live.size >= MAX_KEPT) live.delete(live.keys().next().value ?? '');
      live.set(sessionId, stamp);
    }
    return { stamp, ended: ended === 1 };
  }
  return {
    hasEnded: (sessionId) => !live.has(sessionId) && read(sessionId)?.ended === true,
    stamp: (sessionId) => live.get(sessionId) ?? read(sessionId)?.stamp ?? null,
    forget: (sessionId) => {
      live.delete(sessionId);
    },
  };
}
