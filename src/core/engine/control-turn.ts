// Cancels one turn; the scope tree carries the cancellation to everything below (04 §9).
import { Cancelled } from '#protocol/abort.ts';
import { isoTime } from '#protocol/clock.ts';
import { AppError } from '#protocol/errors.ts';
import { draft, TERMINAL_TURN_EVENTS } from '#protocol/event.ts';
import type { SessionId, TurnId } from '#protocol/ids.ts';
import { JournalConflict } from '#protocol/journal-batch.ts';
import { USER_RUBRIC } from '#protocol/learned-pattern.ts';
import type { UserScore } from '#protocol/turn.ts';
import { shuttingDownError } from './lifecycle.ts';
import { requireBudget } from './money/budget-limits.ts';
import type { Engine } from './state/engine.ts';
import { cancelRunning } from './turn/background-waits.ts';
import { draftCheckScore } from './turn/check-score.ts';
import { endOpenTurn } from './turn/end-turn.ts';
import { resumeTopLevelTurn } from './turn/planner-turn.ts';

interface CancelReply {
  readonly turn_id: TurnId;
  readonly cancellation_initiated: true;
}

/**
 * Initiates the cancellation; the terminal event follows. Idempotent while the turn is being cancelled.
 * @param reason of the caller, at most 200 characters
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
    cancelRunning(engine, active, new Cancelled('user_cancel', reason));
    return { turn_id: active.turn_id, cancellation_initiated: true };
  }
  const session = await engine.store.sessions.record(sessionId);
  if (!session) throw new AppError('not_found', `no session with id ${sessionId}`, { resource: 'session' });
  const turn = await engine.store.turns.record(sessionId, turnId);
  if (!turn) throw new AppError('not_found', `no turn with id ${turnId} in this session`, { resource: 'turn' });
  if (turn.ended_at !== null) throw new AppError('turn_already_completed', `this turn has ended: ${turn.status}`);
  if (engine.locks.tryTake(session.id, turn.id).held) {
    // The turn is being admitted, resumed or ended right now: the call below cancels it, or finds that it has ended.
    await engine.locks.whenDecided(session.id);
    return cancelTurn(engine, sessionId, turnId, reason);
  }
  try {
    await endOpenTurn(engine, session, new Cancelled('user_cancel', reason));
  } finally {
    engine.locks.release(session.id);
  }
  return { turn_id: turn.id, cancellation_initiated: true };
}

// Concludes a turn: it answers with what it has, in one last model call (20 §3).

interface ConcludeReply {
  readonly turn_id: TurnId;
  /** False where the conclusion was requested before. */
  readonly applied: boolean;
}

/**
 * Requests the conclusion of a running turn, a worker's too: no further tool starts, and one last model call is made,
 * which may use none. An interrupted turn is concluded when it resumes. Throws `not_found` or `turn_not_running`.
 */
export async function concludeTurn(engine: Engine, sessionId: string, turnId: string): Promise<ConcludeReply> {
  const session = await engine.store.sessions.record(sessionId);
  if (!session) throw new AppError('not_found', `no session with id ${sessionId}`, { resource: 'session' });
  const turn = await engine.store.turns.record(sessionId, turnId);
  if (!turn) throw new AppError('not_found', `no turn with id ${turnId} in this session`, { resource: 'turn' });
  if (turn.ended_at !== null) throw new AppError('turn_not_running', `this turn has ended: ${turn.status}`);
  if (engine.locks.turn(turnId)?.scope.signal.aborted)
    throw new AppError('turn_not_running', 'this turn is being cancelled');
  if (turn.concluded_at !== null) return { turn_id: turn.id, applied: false };
  try {
    await engine.journal.commit({
      writes: [{ kind: 'turn.request_conclusion', turn_id: turn.id, at: engine.clock.now() }],
      emit: [],
    });
  } catch (error) {
    if (!(error instanceof JournalConflict)) throw error;
    // It has ended meanwhile, or another caller was faster.
    return concludeTurn(engine, sessionId, turnId);
  }
  // A turn that is being admitted or resumed right now may have been read before.
  if (engine.locks.turn(turnId) === null) await engine.locks.whenDecided(session.id);
  engine.locks.turn(turnId)?.conclusion.abort();
  return { turn_id: turn.id, applied: true };
}

// Resumes an interrupted turn: no routing, no second user message, no call is paid twice (04 §13).

interface ResumeReply {
  readonly turn_id: TurnId;
  readonly resumed: true;
}

/**
 * Resumes an interrupted turn. Throws `not_found`, `session_is_worker`, `turn_not_interrupted`, `budget_exceeded`,
 * `service_shutting_down`.
 */
export async function resumeTurn(engine: Engine, sessionId: string, turnId: string): Promise<ResumeReply> {
  const session = await engine.store.sessions.record(sessionId);
  if (!session) throw new AppError('not_found', `no session with id ${sessionId}`, { resource: 'session' });
  const delegation = session.is_worker ? await engine.store.delegations.findByWorker(session.id) : null;
  // A delegation requested over the API has no turn above it.
  if (session.is_worker && delegation?.parent_turn_id !== null)
    throw new AppError('session_is_worker', "a worker's turn is resumed with its planner's turn");
  const turn = await engine.store.turns.record(sessionId, turnId);
  if (!turn) throw new AppError('not_found', `no turn with id ${turnId} in this session`, { resource: 'turn' });
  if (turn.status !== 'interrupted')
    throw new AppError('turn_not_interrupted', `this turn is ${turn.status}, not interrupted`);
  if (turn.interrupted_reason === 'budget') await requireBudget(engine, session);
  if (engine.draining.value) throw shuttingDownError();
  if (delegation !== null) await engine.workers.resumeOutside(session.root_session_id, delegation.tool_use_id);
  else await resumeTopLevelTurn(engine, session, turn);
  return { turn_id: turn.id, resumed: true };
}

// The score of an ended turn: stored with the turn, and published as an event for learning (12 §12.8).

interface GivenScore {
  /** `check`: stored as the verdict of a check (20 §10), not as a person's. */
  readonly source?: 'user' | 'check';
  /** 0..1 */
  readonly score: number;
  readonly comment: string | null;
}
interface ScoreReply extends UserScore {
  readonly turn_id: TurnId;
  readonly session_id: SessionId;
  readonly changed: boolean;
}

/**
 * Replaces an earlier score; an equal one changes nothing. The session may have ended.
 * Throws `not_found`, or `turn_in_flight` for a turn that has not ended.
 */
export async function scoreTurn(
  engine: Engine,
  sessionId: string,
  turnId: string,
  given: GivenScore,
): Promise<ScoreReply> {
  if ((await engine.store.sessions.record(sessionId)) === null)
    throw new AppError('not_found', `no session with id ${sessionId}`, { resource: 'session' });
  const turn = await engine.store.turns.view(sessionId, turnId);
  if (turn === null) throw unknownTurnError(turnId);
  const { id, session_id, user_score: known } = turn;
  const comment = given.comment === '' ? null : given.comment;
  const { score } = given;
  if (given.source === 'check') {
    if (turn.ended_at === null) throw new AppError('turn_in_flight', 'a turn is scored when it has ended');
    await engine.journal.commit({
      writes: [],
      emit: [draftCheckScore(engine, { session_id, turn_id: id, score, parent: null })],
    });
    return { turn_id: id, session_id, score, comment, scored_at: isoTime(engine.clock.now()), changed: true };
  }
  if (known !== null && known.score === score && known.comment === comment)
    return { turn_id: id, session_id, ...known, changed: false };

  const user_score: UserScore = { score, comment, scored_at: isoTime(engine.clock.now()) };
  const end = (await engine.store.events.listOfTurn(id, TERMINAL_TURN_EVENTS)).at(-1)?.id ?? null;
  const verdict = draft({
    type: 'eval.completed',
    session_id,
    turn_id: id,
    parent: end,
    actor: 'user',
    payload: {
      eval_id: engine.ids.next(),
      subject_kind: 'turn',
      subject_id: id,
      score,
      confidence: 1,
      rubric_id: USER_RUBRIC,
      rubric_version: '1.0.0',
      signals: { source: 'user' },
    },
  });
  try {
    await engine.journal.commit({
      writes: [{ kind: 'turn.score', turn_id: id, user_score }],
      // Also for a new comment with the same score: another caller may have changed the score since it was read.
      emit: [verdict],
    });
  } catch (error) {
    throw toScoreError(error, turnId);
  }
  return { turn_id: id, session_id, ...user_score, changed: true };
}

/** The error for a turn that is still open, or was purged right now. */
function toScoreError(error: unknown, turnId: string): unknown {
  if (!(error instanceof JournalConflict)) return error;
  if (error.code === 'turn_gone' || error.code === 'session_gone') return unknownTurnError(turnId);
  return new AppError('turn_in_flight', 'this turn has not ended: it is scored when it has', {
    current_turn_id: turnId,
  });
}

function unknownTurnError(turnId: string): AppError {
  return new AppError('not_found', `no turn with id ${turnId} in this session`, { resource: 'turn' });
}
