// Taking up an interrupted turn again: no routing, no second user message, nothing paid twice (04 §13).
import { draft } from '../domain/event.ts';
import type { SessionRecord } from '../domain/session.ts';
import type { TurnRecord } from '../domain/turn.ts';
import { Cancelled, createScope } from '../kernel/abort.ts';
import { AppError } from '../kernel/errors.ts';
import type { TurnId } from '../kernel/ids.ts';
import { endOpenDelegations, endUnfinishedTurn } from './closing/close-turn.ts';
import { goingDown } from './drain.ts';
import type { Engine } from './state/engine.ts';
import type { TurnBase, TurnEnd } from './state/turn-run.ts';
import { failTurn } from './turn/end.ts';
import { requireBudget, startTopLevel } from './turn/planner-turn.ts';
import { rebuildRun } from './turn/rebuild.ts';

/** A turn that crashed the server this often is ended instead of tried again. */
const MAX_ATTEMPTS = 3;

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
  if (session.is_worker) throw new AppError('session_is_worker', "a worker's turn is resumed with its planner's turn");
  const turn = await engine.store.turns.record(sessionId, turnId);
  if (!turn) throw new AppError('not_found', `no turn with id ${turnId} in this session`, { resource: 'turn' });
  if (turn.status !== 'interrupted')
    throw new AppError('turn_not_interrupted', `this turn is ${turn.status}, not interrupted`);
  if (turn.interrupted_reason === 'budget') await requireBudget(engine, session);
  if (engine.draining.value) throw goingDown();
  await resumeTopLevel(engine, session, turn);
  return { turn_id: turn.id, resumed: true };
}

/**
 * Starts a top-level turn again where it stands; resolves when it runs. A turn somebody else holds is left alone, and
 * while the server drains every turn is.
 */
export async function resumeTopLevel(engine: Engine, session: SessionRecord, turn: TurnRecord): Promise<void> {
  if (engine.draining.value || engine.locks.reserve(session.id, turn.id).held) return;
  try {
    if (turn.resume_attempts >= MAX_ATTEMPTS) {
      engine.log.warn({ session_id: session.id, turn_id: turn.id }, 'a turn was interrupted too often and is ended');
      await endUnfinishedTurn(engine, session, turn, new Cancelled('shutdown'));
      engine.locks.release(session.id);
      return;
    }
    const scope = createScope();
    const { run, served, known } = await rebuildRun(engine, session, turn, {
      scope,
      worker: null,
      clocks: [],
      tree: { delegations: await workersSoFar(engine, turn) },
      caps: [],
    });
    if (served === null) {
      await failModelGone(engine, run);
      engine.locks.release(session.id);
      return;
    }
    await announceResumed(engine, run);
    startTopLevel(engine, { ...run, ...served }, known);
  } catch (error) {
    engine.locks.release(session.id);
    throw error;
  }
}

/** Workers that the turn and everything below it has had: a restart gives it no new ones to spend (04 §10). */
async function workersSoFar(engine: Engine, turn: TurnRecord): Promise<number> {
  // No call of this turn has a smaller id than the turn itself; parents come before their children.
  const query = { recursive: true, after: `tu_${turn.id}`, limit: 1000 };
  const workers = new Set<string>();
  for (const d of (await engine.store.delegations.list(turn.session_id, query)).rows)
    if (d.worker_session_id && (d.parent_turn_id === turn.id || workers.has(d.parent_session_id)))
      workers.add(d.worker_session_id);
  return workers.size;
}

/** Back to `in_flight`, with `turn.resumed`. A pause for money is no failed attempt. */
export async function announceResumed(engine: Engine, run: TurnBase): Promise<void> {
  const reason = run.turn.interrupted_reason ?? 'restart';
  await engine.journal.commit({
    writes: [{ kind: 'turn.resume', turn_id: run.turn.id, count_attempt: engine.crashed.delete(run.turn.id) }],
    emit: [
      draft({
        type: 'turn.resumed',
        session_id: run.session.id,
        turn_id: run.turn.id,
        parent: run.started_event_id,
        payload: {
          resumed_at_call_index: run.tally.llm_calls + 1,
          reused_llm_calls: run.tally.llm_calls,
          reused_tool_calls: run.tally.tool_calls,
          interrupted_reason: reason,
        },
      }),
    ],
  });
}

/** Ends a turn that nobody can go on with, its workers first. */
export async function failModelGone(engine: Engine, run: TurnBase): Promise<TurnEnd> {
  await endOpenDelegations(engine, run.turn.id, new Cancelled('shutdown'));
  return failTurn(engine, run, {
    error_code: 'model_not_configured',
    message: `the model of this turn is not configured any more: ${run.turn.chosen_model}`,
    error_class: null,
    retryable: false,
  });
}
