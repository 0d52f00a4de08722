// Nothing happens to a turn or a session after its end: checked against the state before the batch (02 §3.5).
import type Database from 'better-sqlite3';
import { type EventType, TERMINAL_TURN_EVENTS } from '../../../domain/event.ts';
import { JournalConflict, type Write } from '../../../ports/journal.ts';
import { TURN_IS_OPEN } from '../connection/sql.ts';
import type { PreparedBatch } from './prepare.ts';

/** Ends of what outlived its turn over a fault: each comes with the conditional update of its own row. */
const LATE_ENDS: readonly EventType[] = ['delegate.failed', 'tool.confirmation_resolved'];

/** Those, and events about a turn or session rather than of it. */
function mayComeLate(type: EventType): boolean {
  return (
    LATE_ENDS.includes(type) ||
    type.startsWith('eval.') ||
    type.startsWith('pattern.') ||
    type.startsWith('routing.provider_')
  );
}

export type Guard = (batch: PreparedBatch) => void;

/** As many ids as a busy server has open; more are looked up again. */
const MAX_KNOWN = 4096;

/** Throws `JournalConflict('turn_closed' | 'session_ended')`. Conditions of single rows are in their own updates. */
export function createGuard(db: Database.Database): Guard {
  const closedTurn = db.prepare<[string], { status: string }>(
    `SELECT status FROM turns WHERE id = ? AND NOT (${TURN_IS_OPEN})`,
  );
  const endedSession = db.prepare('SELECT 1 FROM sessions WHERE id = ? AND ended_at IS NOT NULL');

  // Found open, and ended by nothing since. An id that was dropped in vain is only looked up again.
  const openTurns = new Set<string>();
  const liveSessions = new Set<string>();
  function remember(known: Set<string>, id: string): void {
    if (known.size >= MAX_KNOWN) known.clear();
    known.add(id);
  }

  return ({ writes, emit }) => {
    const turns = new Set<string>();
    const sessions = new Set<string>();
    for (const write of writes) {
      const turn = turnOf(write);
      if (turn !== null) turns.add(turn);
    }
    // Within the batch a terminal event closes its turn or session for the events after it.
    const closedHere = new Set<string>();
    for (const item of emit) {
      if (item.kind === 'transient' || mayComeLate(item.draft.type)) continue;
      const { type, turn_id, session_id } = item.draft;
      if (turn_id !== null) turns.add(turn_id);
      sessions.add(session_id);
      if (turn_id !== null && closedHere.has(turn_id)) {
        throw new JournalConflict('turn_closed', `${type} after the terminal event of turn ${turn_id}`);
      }
      if (closedHere.has(session_id)) {
        throw new JournalConflict('session_ended', `${type} after session.ended of ${session_id}`);
      }
      if (turn_id !== null && (TERMINAL_TURN_EVENTS as readonly string[]).includes(type)) closedHere.add(turn_id);
      if (type === 'session.ended') closedHere.add(session_id);
    }
    for (const turn of turns) {
      if (openTurns.has(turn)) continue;
      const status = closedTurn.get(turn)?.status;
      if (status !== undefined) throw new JournalConflict('turn_closed', `turn ${turn} is ${status}`);
      remember(openTurns, turn);
    }
    for (const session of sessions) {
      if (liveSessions.has(session)) continue;
      if (endedSession.get(session) !== undefined) {
        throw new JournalConflict('session_ended', `session ${session} has ended`);
      }
      remember(liveSessions, session);
    }
    // Before the writes themselves: the batches behind this one, in the same transaction too, look again.
    for (const write of writes) {
      if (write.kind === 'turn.end') openTurns.delete(write.turn_id);
      else if (write.kind === 'session.end') liveSessions.delete(write.session_id);
    }
  };
}

/** The existing turn that a write adds to. */
function turnOf(write: Write): string | null {
  switch (write.kind) {
    case 'message.insert':
      return write.message.turn_id;
    case 'tool_call.insert':
      return write.call.turn_id;
    case 'delegation.insert':
      return write.delegation.parent_turn_id;
    case 'confirmation.insert':
      return write.confirmation.turn_id;
    default:
      return null;
  }
}
