// A message from outside becomes a turn: checks first, the lock without an await, then admission (05 §3.2).

import { JournalConflict } from '../domain/batch-fault.ts';
import type { SessionRecord } from '../domain/session.ts';
import { Cancelled, createScope } from '../kernel/abort.ts';
import { isoTime, sleep } from '../kernel/clock.ts';
import { AppError } from '../kernel/errors.ts';
import type { MessageId, SessionId, TurnId } from '../kernel/ids.ts';
import type { Write } from '../ports/journal.ts';
import { goingDown } from './drain.ts';
import { requireBudget } from './money/require-budget.ts';
import { alreadyEnded, liveSession } from './session/find-session.ts';
import type { Engine } from './state/engine.ts';
import { takeOver } from './state/session-lock.ts';
import { type IntakeBlock, type TakenMessage, takeMessage } from './turn/accept-message.ts';
import { admitTurn } from './turn/admit.ts';
import { endOpenTurn } from './turn/end-unfinished.ts';
import { startTopLevel } from './turn/planner-turn.ts';

export interface TurnSubmission {
  /** A string is one text block. */
  readonly content: string | readonly IntakeBlock[];
  /** Alias or id. */
  readonly per_message_override: string | null;
  readonly if_busy: 'reject' | 'interrupt';
}

export interface TurnReceipt {
  readonly turn_id: TurnId;
  readonly session_id: SessionId;
  readonly submitted_at: string;
  readonly user_message_id: MessageId;
}

type Claim = (status: number, body: unknown) => Write;

/**
 * Starts a turn and answers as soon as it exists. Throws `not_found`, `session_is_worker`, `session_already_ended`,
 * `turn_in_flight`, `validation_error`, `unknown_alias`, `override_missing_body`, `routing_failed`,
 * `explicit_model_rejected`, `service_shutting_down`. A message that is wrong in itself changes nothing; one that routing refuses has by then
 * ended the turn it was to replace.
 */
export async function submitTurn(
  engine: Engine,
  sessionId: string,
  submission: TurnSubmission,
  claim?: Claim,
): Promise<TurnReceipt> {
  let session = await liveSession(engine, sessionId);
  await requireBudget(engine, session);
  if (engine.draining.value) throw goingDown();
  const turnId = engine.ids.turn();
  const lock = engine.locks.reserve(session.id, turnId);
  if (lock.held && submission.if_busy === 'reject')
    throw engine.ending.has(session.id) ? alreadyEnded() : inFlight(lock.turn_id);
  let owned = !lock.held;
  try {
    const checked = await takeMessage(engine, session, submission);
    if (!owned) {
      const reason = new Cancelled('user_cancel', 'interrupted by a new message');
      await takeOver(engine.locks, session.id, turnId, reason);
      owned = true;
    }
    await endOpenTurn(engine, session);
    engine.budget.paused.delete(session.id);
    // A model swap that waited for the end of the turn before is in force now.
    session = await liveSession(engine, sessionId);
    return await start(engine, session, { ...checked, turnId, claim });
  } catch (error) {
    if (owned) engine.locks.release(session.id);
    if (error instanceof JournalConflict && error.code === 'turn_in_flight')
      throw inFlight((await engine.store.turns.open(session.id))?.id ?? null);
    if (error instanceof JournalConflict && error.code === 'session_ended') throw alreadyEnded();
    throw error;
  }
}

async function start(
  engine: Engine,
  session: SessionRecord,
  message: TakenMessage & { readonly turnId: TurnId; readonly claim: Claim | undefined },
): Promise<TurnReceipt> {
  const { claim } = message;
  const scope = createScope();
  const receiptOf = (turn: { id: TurnId; user_message_id: MessageId; started_at: number }): TurnReceipt => ({
    turn_id: turn.id,
    session_id: session.id,
    submitted_at: isoTime(turn.started_at),
    user_message_id: turn.user_message_id,
  });
  const admission = await admitTurn(engine, {
    session,
    turn_id: message.turnId,
    content: message.content,
    override: message.override,
    scope,
    worker: null,
    clocks: [],
    tree: { delegations: 0 },
    caps: [],
    before: null,
    parent_event: null,
    tool_names: null,
    claim: claim ? (turn) => claim(202, receiptOf(turn)) : null,
  });
  if (!admission.ok) throw admission.error;
  const { run } = admission;
  startTopLevel(engine, run);
  return receiptOf(run.turn);
}

function inFlight(turnId: TurnId | null): AppError {
  return new AppError(
    'turn_in_flight',
    'a turn is running in this session; wait for it, cancel it, or send if_busy: "interrupt"',
    {
      current_turn_id: turnId,
    },
  );
}

/** Resolves when the turn has ended, when `ms` are over, or when the signal aborts. */
export async function waitForTurn(engine: Engine, turnId: string, ms: number, signal: AbortSignal): Promise<void> {
  const turn = engine.locks.turn(turnId);
  if (!turn) return;
  const enough = new AbortController();
  const either = AbortSignal.any([signal, enough.signal]);
  await Promise.race([turn.done, sleep(engine.clock, ms, either).catch(() => {})]);
  enough.abort();
}
