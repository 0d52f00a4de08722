// What the journal copies from a session onto events and cost facts; fixed at the session's creation (01 §7.1).
import type Database from 'better-sqlite3';

export interface SessionStamp {
  readonly parent_session_id: string | null;
  readonly root_session_id: string;
  readonly is_worker: boolean;
  readonly workspace_hash: string;
  /** '' = none, as in the ledger; likewise below. */
  readonly worker_name: string;
  readonly delegated_by_model: string;
  readonly delegation_tier: string;
}

export interface SessionStamps {
  /** Null when there is no such session. */
  of(sessionId: string): SessionStamp | null;
  /** For a session that was purged, or whose insertion was rolled back. */
  forget(sessionId: string): void;
}

const MAX_CACHED = 4096;

type Row = Omit<SessionStamp, 'is_worker'> & { readonly is_worker: 0 | 1 };

export function createSessionStamps(db: Database.Database): SessionStamps {
  const cached = new Map<string, SessionStamp>();
  const select = db.prepare<[string], Row>(`
    SELECT s.parent_session_id, s.root_session_id, s.is_worker, s.workspace_hash,
      coalesce(s.worker_name, '') AS worker_name, coalesce(s.delegated_by_model, '') AS delegated_by_model,
      coalesce(d.tier, '') AS delegation_tier
    FROM sessions s LEFT JOIN delegations d ON d.worker_session_id = s.id
    WHERE s.id = ?`);
  return {
    of(sessionId) {
      const known = cached.get(sessionId);
      if (known !== undefined) return known;
      const row = select.get(sessionId);
      if (row === undefined) return null;
      const stamp = { ...row, is_worker: row.is_worker === 1 };
      if (cached.size >= MAX_CACHED) cached.delete(cached.keys().next().value ?? '');
      cached.set(sessionId, stamp);
      return stamp;
    },
    forget: (sessionId) => {
      cached.delete(sessionId);
    },
  };
}
