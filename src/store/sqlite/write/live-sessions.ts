// Caches the sessions that commits refer to: whether they have ended, and the fields that events and cost facts copy.
import type Database from 'better-sqlite3';
import { listConditions, turnRefusal } from '#core/policy/journal/conditions.ts';
import type { PreparedBatch, SessionStamp } from '#core/policy/journal/prepare.ts';
import { JournalConflict } from '#protocol/journal-batch.ts';
import type { TurnStatus } from '#protocol/turn.ts';
import * as sql from '#store/read/sessions.ts';
import { ENDED_TURN } from '#store/write/turns.ts';

/** Only open sessions are cached, so that a rolled-back end leaves nothing to undo. */
export interface LiveSessions {
  hasEnded(sessionId: string): boolean;
  /** The root of a session that is cached; null for any other. */
  findRoot(sessionId: string): string | null;
  /** Null when there is no such session. */
  stamp(sessionId: string): SessionStamp | null;
  /** Drops a session that ends, was purged, or whose insertion was rolled back. */
  forget(sessionId: string): void;
  /** Drops a tree whose owner changes. */
  forgetTree(root: string): void;
}

/** Maximum entries, as many as a busy server has open; others are looked up again. */
const MAX_KEPT = 4096;

export function createLiveSessions(db: Database.Database): LiveSessions {
  const live = new Map<string, SessionStamp>();
  const select = db.prepare<[string], sql.StampRow>(sql.STAMP);

  function loadStamp(sessionId: string): { readonly stamp: SessionStamp; readonly ended: boolean } | null {
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
    hasEnded: (sessionId) => !live.has(sessionId) && loadStamp(sessionId)?.ended === true,
    findRoot: (sessionId) => live.get(sessionId)?.root_session_id ?? null,
    stamp: (sessionId) => live.get(sessionId) ?? loadStamp(sessionId)?.stamp ?? null,
    forget: (sessionId) => {
      live.delete(sessionId);
    },
    forgetTree: (root) => {
      for (const [id, { root_session_id }] of live) if (root_session_id === root) live.delete(id);
    },
  };
}

// Checks a batch against the stored state: its turns and sessions must not have ended (02 §3.5).

/** Open turns that commits refer to. An entry that was dropped needlessly is only looked up again. */
export interface LiveTurns {
  /** Throws `JournalConflict('turn_closed' | 'session_ended')`. Conditions of single rows are in their own updates. */
  guard(batch: PreparedBatch): void;
  /** Whether a person may have submitted the turn: false only for an open turn that this process stored without one. */
  mayHaveSubmitter(turn: string): boolean;
  /** Forgets what a batch that was written has ended. */
  settle(batch: PreparedBatch): void;
  /** Drops a turn whose insertion was rolled back. */
  forget(turn: string): void;
}

/** Maximum entries, as many as a busy server has open; others are looked up again. */
const MAX_KNOWN = 4096;

export function createLiveTurns(db: Database.Database, sessions: LiveSessions): LiveTurns {
  const endedTurn = db.prepare<[string], { status: TurnStatus }>(ENDED_TURN);
  // Found open, and not ended since; whether a person may have submitted it.
  const open = new Map<string, boolean>();

  function keepTurn(turn: string, mayHaveSubmitter: boolean): void {
    if (open.size >= MAX_KNOWN) open.clear();
    open.set(turn, mayHaveSubmitter);
  }

  return {
    guard(batch) {
      const needed = listConditions(batch);
      for (const write of batch.writes)
        if (write.kind === 'turn.insert') keepTurn(write.turn.id, write.turn.submitted_by !== null);
      for (const turn of needed.turns) {
        if (open.has(turn)) continue;
        const status = endedTurn.get(turn)?.status;
        if (status !== undefined) throw turnRefusal(turn, status);
        keepTurn(turn, true);
      }
      for (const session of needed.sessions) {
        if (sessions.hasEnded(session)) throw new JournalConflict('session_ended', `session ${session} has ended`);
      }
      // Runs before the writes, so that the following batches, of the same transaction too, look these up again.
      for (const write of batch.writes) {
        if (write.kind === 'session.end') sessions.forget(write.session_id);
        else if (write.kind === 'session.set_ownership') sessions.forgetTree(write.session_id);
      }
    },
    mayHaveSubmitter: (turn) => open.get(turn) ?? true,
    settle({ writes }) {
      for (const write of writes) if (write.kind === 'turn.end') open.delete(write.turn_id);
    },
    forget: (turn) => void open.delete(turn),
  };
}
