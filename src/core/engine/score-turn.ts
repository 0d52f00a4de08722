// A person says how good an ended turn was: kept with the turn, and told to whoever learns (12 §12.8).

import { JournalConflict } from '#protocol/batch.ts';
import { isoTime } from '#protocol/clock.ts';
import { AppError } from '#protocol/errors.ts';
import { draft, TERMINAL_TURN_EVENTS } from '#protocol/event.ts';
import type { SessionId, TurnId } from '#protocol/ids.ts';
import { USER_RUBRIC } from '#protocol/learning/pattern.ts';
import type { UserScore } from '#protocol/turn.ts';
import type { Engine } from './state/engine.ts';

export interface GivenScore {
  /** 0..1 */
  readonly score: number;
  readonly comment: string | null;
}
export interface ScoreReply extends UserScore {
  readonly turn_id: TurnId;
  readonly session_id: SessionId;
  readonly changed: boolean;
}

/**
 * Takes the place of what a person said before; the same once more changes nothing. A session's end does not matter.
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
  if (turn === null) throw noTurn(turnId);
  const { id, session_id, user_score: said } = turn;
  const comment = given.comment === '' ? null : given.comment;
  const { score } = given;
  if (said !== null && said.score === score && said.comment === comment)
    return { turn_id: id, session_id, ...said, changed: false };

  const user_score: UserScore = { score, comment, scored_at: isoTime(engine.clock.now()) };
  const end = (await engine.store.events.ofTurn(id, TERMINAL_TURN_EVENTS)).at(-1)?.id ?? null;
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
      // Of another comment alone too: somebody else may have changed the score since it was read.
      emit: [verdict],
    });
  } catch (error) {
    throw refusal(error, turnId);
  }
  return { turn_id: id, session_id, ...user_score, changed: true };
}

/** It is still open, or was purged at this moment. */
function refusal(error: unknown, turnId: string): unknown {
  if (!(error instanceof JournalConflict)) return error;
  if (error.code === 'turn_gone' || error.code === 'session_gone') return noTurn(turnId);
  return new AppError('turn_in_flight', 'this turn has not ended: it is scored when it has', {
    current_turn_id: turnId,
  });
}

function noTurn(turnId: string): AppError {
  return new AppError('not_found', `no turn with id ${turnId} in this session`, { resource: 'turn' });
}
