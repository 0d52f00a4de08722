// Cancelling one turn; the scope tree carries it to everything below (04 §9).
import { Cancelled } from '#protocol/abort.ts';
import { AppError } from '#protocol/errors.ts';
import type { TurnId } from '#protocol/ids.ts';
import type { Engine } from './state/engine.ts';
import { cancelScope } from './state/session-lock.ts';
import { endOpenTurn } from './turn/end-unfinished.ts';

export interface CancelReply {
  readonly turn_id: TurnId;
  readonly cancellation_initiated: true;
}

/**
 * Initiates the cancellation; the terminal event follows. Idempotent while it is under way.
 * @param reason a person's words, at most 200 characters
 * Throws `not_found` or `turn_already_completed`.
 */
export async function cancelTurn(
  engine: Engine,
  sessionId: string,
  turnId: string,
  reason: string | null,
): Promise<CancelReply> {
  const active = engine.locks.turn(turnId);
  if (active && active.session_id === sessionId) {
    cancelScope(active.scope, new Cancelled('user_cancel', reason));
    return { turn_id: active.turn_id, cancellation_initiated: true };
  }
  const session = await engine.store.sessions.record(sessionId);
  if (!session) throw new AppError('not_found', `no session with id ${sessionId}`, { resource: 'session' });
  const turn = await engine.store.turns.record(sessionId, turnId);
  if (!turn) throw new AppError('not_found', `no turn with id ${turnId} in this session`, { resource: 'turn' });
  if (turn.ended_at !== null) throw new AppError('turn_already_completed', `this turn has ended: ${turn.status}`);
  if (engine.locks.reserve(session.id, turn.id).held) {
    // It is being admitted, resumed or ended at this moment: what comes of that is cancelled, or has ended.
    await engine.locks.decided(session.id);
    return cancelTurn(engine, sessionId, turnId, reason);
  }
  try {
    await endOpenTurn(engine, session, new Cancelled('user_cancel', reason));
  } finally {
    engine.locks.release(session.id);
  }
  return { turn_id: turn.id, cancellation_initiated: true };
}
