// Taking up an interrupted turn again: no routing, no second user message, nothing paid twice (04 §13).

import { AppError } from '#protocol/errors.ts';
import type { TurnId } from '#protocol/ids.ts';
import { goingDown } from './drain.ts';
import { requireBudget } from './money/budget-limits.ts';
import type { Engine } from './state/engine.ts';
import { resumeTopLevel } from './turn/planner-turn.ts';

export interface ResumeReply {
  readonly turn_id: TurnId;
  readonly resumed: true;
}

/**
 * A person's wish to go on. Throws `not_found`, `session_is_worker`, `turn_not_interrupted`, `budget_exceeded`,
 * `service_shutting_down`.
 */
export async function resumeTurn(engine: Engine, sessionId: string, turnId: string): Promise<ResumeReply> {
  const session = await engine.store.sessions.record(sessionId);
  if (!session) throw new AppError('not_found', `no session with id ${sessionId}`, { resource: 'session' });
  const delegation = session.is_worker ? await engine.store.delegations.ofWorker(session.id) : null;
  // One that was asked for from outside has no turn above it.
  if (session.is_worker && delegation?.parent_turn_id !== null)
    throw new AppError('session_is_worker', "a worker's turn is resumed with its planner's turn");
  const turn = await engine.store.turns.record(sessionId, turnId);
  if (!turn) throw new AppError('not_found', `no turn with id ${turnId} in this session`, { resource: 'turn' });
  if (turn.status !== 'interrupted')
    throw new AppError('turn_not_interrupted', `this turn is ${turn.status}, not interrupted`);
  if (turn.interrupted_reason === 'budget') await requireBudget(engine, session);
  if (engine.draining.value) throw goingDown();
  if (delegation !== null) await engine.workers.resumeOutside(session.root_session_id, delegation.tool_use_id);
  else await resumeTopLevel(engine, session, turn);
  return { turn_id: turn.id, resumed: true };
}
