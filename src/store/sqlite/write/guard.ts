// Holds a batch against the state before it: its turns and sessions must not have ended (02 §3.5).
import type Database from 'better-sqlite3';
import { listConditions, turnRefusal } from '#core/policy/journal/conditions.ts';
import type { PreparedBatch } from '#core/policy/journal/prepare.ts';
import { JournalConflict } from '#protocol/journal-batch.ts';
import type { TurnStatus } from '#protocol/turn.ts';
import { ENDED_TURN } from '#store/write/turns.ts';
import type { LiveSessions } from './live-sessions.ts';

export type Guard = (batch: PreparedBatch) => void;

/** As many ids as a busy server has open; more are looked up again. */
const MAX_KNOWN = 4096;

/** Throws `JournalConflict('turn_closed' | 'session_ended')`. Conditions of single rows are in their own updates. */
export function createGuard(db: Database.Database, sessions: LiveSessions): Guard {
  const endedTurn = db.prepare<[string], { status: TurnStatus }>(ENDED_TURN);
  // Found open, and ended by nothing since. An id that was dropped in vain is only looked up again.
  const openTurns = new Set<string>();

  return (batch) => {
    const needed = listConditions(batch);
    for (const turn of needed.turns) {
      if (openTurns.has(turn)) continue;
      const status = endedTurn.get(turn)?.status;
      if (status !== undefined) throw turnRefusal(turn, status);
      if (openTurns.size >= MAX_KNOWN) openTurns.clear();
      openTurns.add(turn);
    }
    for (const session of needed.sessions) {
      if (sessions.hasEnded(session)) throw new JournalConflict('session_ended', `session ${session} has ended`);
    }
    // Before the writes themselves: the batches behind this one, in the same transaction too, look again.
    for (const write of batch.writes) {
      if (write.kind === 'turn.end') openTurns.delete(write.turn_id);
      else if (write.kind === 'session.end') sessions.forget(write.session_id);
    }
  };
}
