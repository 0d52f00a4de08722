// Turns a message from outside into a turn: checks first, the lock without an await, then admission (05 §3.2).

import { Cancelled, createScope, orAbort } from '#protocol/abort.ts';
import {
  type DelegationReceipt,
  type DelegationResult,
  makeDelegationResult,
  type SubmitDelegationBody,
} from '#protocol/api/worker-bodies.ts';
import { type Awaitable, continueWith } from '#protocol/async/awaitable.ts';
import { isoTime, sleep } from '#protocol/clock.ts';
import type { DelegationRecord } from '#protocol/delegate.ts';
import { AppError } from '#protocol/errors.ts';
import type { MessageId, SessionId, ToolUseId, TurnId } from '#protocol/ids.ts';
import { JournalConflict, TreeLost } from '#protocol/journal-batch.ts';
import type { SessionRecord } from '#protocol/session.ts';
import type { TurnRecord } from '#protocol/turn.ts';
import type { Write } from '../ports/journal-writer.ts';
import {
  createOutsideCaller,
  type OutsideInput,
  resolveOutsideRequest,
  startOutsideDelegation,
  toOutsideError,
} from './delegation/outside-delegation.ts';
import { shuttingDownError } from './lifecycle.ts';
import { requireBudget } from './money/budget-limits.ts';
import { requireOpenSession, requireOpenTopLevelSession, sessionEndedError } from './session/session-records.ts';
import { takeWhenFree, throwIfLost } from './state/concurrency.ts';
import type { Engine, LiveSessions, Storage, TurnEngine } from './state/engine.ts';
import { newDelegationTree } from './state/turn-run.ts';
import { admitTurn } from './turn/admit-turn.ts';
import { cancelRunning } from './turn/background-waits.ts';
import { endOpenTurn } from './turn/end-turn.ts';
import {
  checkSteering,
  type IntakeBlock,
  type PreparedMessage,
  prepareMessage,
  type SteeringReceipt,
  steerOrTakeLock,
} from './turn/incoming-message.ts';
import { startTopLevelTurn } from './turn/planner-turn.ts';

export interface TurnSubmission {
  /** A string is one text block. */
  readonly content: string | readonly IntakeBlock[];
  /** Alias or id. */
  readonly per_message_override: string | null;
  readonly if_busy: 'reject' | 'interrupt' | 'steer';
  /** Files of the workspace, for a session that is a named worker. */
  readonly attachments?: readonly string[];
  /** Id of the token that submits it; absent = no named token. */
  readonly submitted_by?: string | null;
  /** Id of the new turn, where the caller has to know it beforehand. */
  readonly turn_id?: TurnId;
}

interface TurnReceipt {
  readonly turn_id: TurnId;
  readonly session_id: SessionId;
  readonly submitted_at: string;
  readonly user_message_id: MessageId;
  readonly steered: false;
  readonly input_id: null;
}

type Claim = (status: number, body: unknown) => Write;

/**
 * Starts a turn, or gives the message to the running one, and returns as soon as that is stored. Throws `not_found`,
 * `session_is_worker`, `session_already_ended`, `session_is_gateway`, `turn_in_flight`, `validation_error`,
 * `unknown_alias`, `override_missing_body`, `routing_failed`, `explicit_model_rejected`, `server_busy`,
 * `service_shutting_down`. An invalid message changes nothing. A message that routing refuses has already ended the
 * turn that it was to replace.
 */
export function submitTurn(
  engine: Engine,
  sessionId: string,
  submission: TurnSubmission,
  claim?: Claim,
): Awaitable<TurnReceipt | SteeringReceipt> {
  if (submission.if_busy === 'steer') return steerTurn(engine, sessionId, submission, claim);
  return continueWith(requireOpenTopLevelSession(engine, sessionId), (session) => {
    rejectGatewaySession(session);
    const spender = { ...session, submitted_by: submission.submitted_by ?? null };
    return continueWith(requireBudget(engine, spender), () =>
      continueWith(acquireTurnSlot(engine, session.id), (release) =>
        submitWithSlot(engine, session, submission, { claim, release }),
      ),
    );
  });
}

async function submitWithSlot(
  engine: TurnEngine,
  session: SessionRecord,
  submission: TurnSubmission,
  { claim, release }: { readonly claim: Claim | undefined; readonly release: () => void },
): Promise<TurnReceipt> {
  let owned = false;
  try {
    const turnId = submission.turn_id ?? engine.ids.turn();
    let lock = engine.locks.tryTake(session.id, turnId);
    // The end of a turn can be read before its loop here is over.
    if (lock.held && lock.turn !== null && (await engine.store.turns.open(session.id)) === null) {
      await lock.turn.done;
      lock = engine.locks.tryTake(session.id, turnId);
    }
    if (lock.held && submission.if_busy === 'reject')
      throw engine.ending.has(session.id) ? sessionEndedError() : turnInFlightError(lock.turn_id);
    owned = !lock.held;
    if (engine.draining.value) throw shuttingDownError();
    const preparing = prepareMessage(engine, session, submission);
    const checked = preparing instanceof Promise ? await preparing : preparing;
    if (!owned) {
      const reason = new Cancelled('user_cancel', 'interrupted by a new message');
      await takeWhenFree(engine.locks, session.id, turnId, (turn) => cancelRunning(engine, turn, reason));
      owned = true;
    }
    const submitted_by = submission.submitted_by ?? null;
    return await beginTurn(engine, session, { ...checked, turnId, submitted_by, claim });
  } catch (error) {
    if (owned) engine.locks.release(session.id);
    throw await toSubmitError(engine, session.id, error);
  } finally {
    // A started turn holds a slot of its own.
    release();
  }
}

/**
 * Takes a slot among the turns of this node, and waits for one while the node is full. A message for a session with a
 * running turn does not wait: it replaces that turn or is rejected.
 * @returns the release of the slot
 */
function acquireTurnSlot({ places, locks }: LiveSessions, sessionId: SessionId): Awaitable<() => void> {
  const isRunning = () => locks.activeTurns().some((turn) => turn.session_id === sessionId);
  if (!places.isFull() || isRunning()) return places.enter();
  return places.wait();
}

/** Only the client of a gateway session sends its messages. */
function rejectGatewaySession({ door }: SessionRecord): void {
  if (door === 'gateway')
    throw new AppError('session_is_gateway', 'this session is kept for a client of the gateway: it takes no turns');
}

/** A message for the running turn, a worker's too; starts an ordinary turn where none is open (20 §4). */
async function steerTurn(
  engine: TurnEngine,
  sessionId: string,
  submission: TurnSubmission,
  claim: Claim | undefined,
): Promise<TurnReceipt | SteeringReceipt> {
  const session = await requireOpenSession(engine, sessionId);
  rejectGatewaySession(session);
  const submitted_by = submission.submitted_by ?? null;
  await requireBudget(engine, { ...session, submitted_by });
  if (engine.draining.value) throw shuttingDownError();
  const checked = await prepareMessage(engine, session, submission);
  checkSteering(checked, submission.attachments ?? []);
  const message = { ...checked, turnId: submission.turn_id ?? engine.ids.turn(), submitted_by, claim };
  const receipt = await steerOrTakeLock(engine, session, message);
  if (receipt !== null) return receipt;
  let release = () => {};
  try {
    release = await acquireTurnSlot(engine, session.id);
    return await beginTurn(engine, session, message);
  } catch (error) {
    engine.locks.release(session.id);
    throw await toSubmitError(engine, session.id, error);
  } finally {
    release();
  }
}

type ReadyMessage = PreparedMessage & {
  readonly turnId: TurnId;
  readonly submitted_by: string | null;
  readonly claim: Claim | undefined;
};

/** Starts the turn. The caller holds the session's lock. */
function beginTurn(engine: TurnEngine, session: SessionRecord, message: ReadyMessage): Awaitable<TurnReceipt> {
  return continueWith(endOpenTurn(engine, session), () => {
    engine.budget.paused.delete(session.id);
    // A model swap that waited for the end of the previous turn is in force now.
    return continueWith(requireOpenTopLevelSession(engine, session.id), (current) =>
      startTurn(engine, current, message),
    );
  });
}

async function toSubmitError(engine: Pick<Storage, 'store'>, sessionId: SessionId, error: unknown): Promise<unknown> {
  if (!(error instanceof JournalConflict)) return error;
  if (error.code === 'turn_in_flight') return turnInFlightError((await engine.store.turns.open(sessionId))?.id ?? null);
  if (error.code === 'session_ended') return sessionEndedError();
  return error;
}

async function startTurn(engine: TurnEngine, session: SessionRecord, message: ReadyMessage): Promise<TurnReceipt> {
  const { claim } = message;
  const scope = createScope();
  const toTurnReceipt = (turn: { id: TurnId; user_message_id: MessageId; started_at: number }): TurnReceipt => ({
    turn_id: turn.id,
    session_id: session.id,
    submitted_at: isoTime(turn.started_at),
    user_message_id: turn.user_message_id,
    steered: false,
    input_id: null,
  });
  const admission = await admitTurn(engine, {
    session,
    turn_id: message.turnId,
    content: message.content,
    override: message.override,
    submitted_by: message.submitted_by,
    scope,
    conclusion: createScope(),
    worker: null,
    clocks: [],
    tree: newDelegationTree(),
    caps: [],
    before: null,
    parent_event: null,
    tool_names: null,
    claim: claim ? (turn) => claim(202, toTurnReceipt(turn)) : null,
  });
  if (!admission.ok) throw admission.error;
  const { run } = admission;
  startTopLevelTurn(engine, run);
  return toTurnReceipt(run.turn);
}

function turnInFlightError(turnId: TurnId | null): AppError {
  return new AppError(
    'turn_in_flight',
    'a turn is running in this session; wait for it, cancel it, or send if_busy: "interrupt" or "steer"',
    {
      current_turn_id: turnId,
    },
  );
}

/** How often to look for an interrupted turn that resumes without a caller. */
const AGAIN_MS = 100;

/**
 * Resolves when the turn has ended or waits for an approval, after `ms`, or when the signal aborts. Throws `TreeLost`
 * where another node continues the turn.
 */
export async function waitForTurn(
  engine: Engine,
  { session_id, turn_id }: Pick<TurnReceipt, 'session_id' | 'turn_id'>,
  ms: number,
  signal: AbortSignal,
): Promise<void> {
  const enough = new AbortController();
  const over = AbortSignal.any([signal, enough.signal]);
  const timer = engine.clock.after(ms, () => enough.abort());
  try {
    while (!over.aborted) {
      const turn = engine.locks.turn(turn_id);
      if (turn !== null) {
        await orAbort(turn.done, over).catch(() => {});
        throwIfLost(turn.scope.signal);
      }
      const stored = await engine.store.turns.record(session_id, turn_id);
      if (stored === null || stored.ended_at !== null || engine.draining.value) return;
      // A turn that was just resumed is in the store before it has its lock.
      if (stored.status === 'interrupted' && !isResumedAutomatically(engine, stored)) return;
      const session = await engine.store.sessions.record(session_id);
      const root = session?.root_session_id ?? session_id;
      if (!engine.trees.holds(root)) throw new TreeLost(root);
      await sleep(engine.clock, AGAIN_MS, over).catch(() => {});
    }
  } finally {
    timer.cancel();
  }
}

/** Whether an interrupted turn resumes without a caller: it is about to be resumed, or this server stops and another node resumes it. */
export function isResumedAutomatically(
  { config, trees, draining }: Engine,
  turn: Pick<TurnRecord, 'status' | 'interrupted_reason'>,
): boolean {
  const resumed = turn.status === 'interrupted' && turn.interrupted_reason === 'restart';
  return resumed && config.recovery.on_start === 'resume' && (trees.several || !draining.value);
}

// A delegation requested over the API: checked at once, then a worker as for a planner's call (19 §3.1).

/**
 * Returns as soon as the delegation is stored, which is when it has its slot among the session's delegations. Throws
 * `validation_error`, `not_found`, `session_already_ended`, `session_is_worker`, `session_is_gateway`,
 * `budget_exceeded`, `service_shutting_down`.
 * @param claim makes the row that remembers the answer; it is stored with the delegation
 */
export async function submitDelegation(
  engine: Engine,
  sessionId: string,
  body: SubmitDelegationBody & { readonly submitted_by?: string | null },
  claim?: (status: number, body: unknown) => Write,
): Promise<DelegationReceipt> {
  const { submitted_by = null, ...asked } = body;
  const session = await requireOpenTopLevelSession(engine, sessionId);
  if (session.workspace_path === engine.gatewayFolder)
    throw new AppError(
      'session_is_gateway',
      'this session of the gateway has no workspace for a worker: its client names one with x-metis-workspace on its first call',
    );
  await requireBudget(engine, { ...session, submitted_by });
  if (engine.draining.value) throw shuttingDownError();
  let onStored: (delegation: DelegationRecord) => void = () => {};
  const known = new Promise<DelegationReceipt>((resolve) => {
    onStored = (delegation) => resolve(toDelegationReceipt(delegation));
  });
  const caller = await createOutsideCaller(engine, session, {
    submitted_by,
    claim: (delegation) => (claim ? [claim(202, toDelegationReceipt(delegation))] : []),
    onStored,
  });
  const request = await resolveOutsideRequest(engine, caller, toDelegateInput(asked));
  try {
    return await Promise.race([
      known,
      startOutsideDelegation(engine, caller, engine.ids.toolUse(), request).then(() => known),
    ]);
  } catch (thrown) {
    throw toOutsideError(engine, thrown);
  }
}

/** The tool call with the same effect. */
function toDelegateInput({ worker, input, attachments, ...rest }: SubmitDelegationBody): OutsideInput {
  if (worker === undefined) return { worker: null, input: rest };
  const { continue: earlier, history, isolation, apply } = rest;
  const asked = Object.entries({ attachments, continue: earlier, history, isolation, apply });
  return { worker, input: { input, ...Object.fromEntries(asked.filter(([, value]) => value != null)) } };
}

function toDelegationReceipt({
  tool_use_id,
  parent_session_id,
  worker_session_id,
}: DelegationRecord): DelegationReceipt {
  return { tool_use_id, session_id: parent_session_id, worker_session_id };
}

/** Resolves when the delegation no longer runs, at the latest after this time. Throws `TreeLost` where another node continues it. */
export async function waitForDelegation(
  engine: Engine,
  toolUseId: string,
  ms: number,
  signal: AbortSignal,
): Promise<void> {
  const run = engine.outside.get(toolUseId);
  if (!run) return;
  const enough = new AbortController();
  const either = AbortSignal.any([signal, enough.signal]);
  await Promise.race([run.done, sleep(engine.clock, ms, either).catch(() => {})]);
  enough.abort();
  throwIfLost(run.scope.signal);
}

/** The delegation's result; null while it is open (04 §4.2). */
export async function readDelegationResult(engine: Engine, toolUseId: ToolUseId): Promise<DelegationResult | null> {
  const delegation = await engine.store.delegations.view(toolUseId);
  if (delegation === null || delegation.ended_at === null) return null;
  return makeDelegationResult(delegation);
}
