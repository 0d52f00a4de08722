// The turn loop: computes the next step, runs it, until a terminal event is stored (00 §3, 04 §3.1).

import { extendHistory } from '#core/policy/context/session-history.ts';
import { CONCLUSION_TEXT, type Step } from '#core/policy/turn-machine.ts';
import { Cancelled, cancelledBy } from '#protocol/abort.ts';
import { TreeLost } from '#protocol/journal-batch.ts';
import { type StoredMessage, type ToolUseBlock, textBlock } from '#protocol/message.ts';
import { callModel, isCrowded } from '../model-call/call-model.ts';
import { messageAppended } from '../model-call/call-records.ts';
import { buildModelRequest, callStartedEvent } from '../model-call/model-request.ts';
import { closeOpenParts, type Ending } from '../model-call/turn-end.ts';
import { listLimits, pauseTree, toSpender } from '../money/budget-limits.ts';
import { reportExceeded, warnIfNear } from '../money/budget-notices.ts';
import { readVolatilePrompt } from '../prompt/model-input.ts';
import { cancelScope, FAULT, type InterruptReason, isHandOver, throwIfLost } from '../state/concurrency.ts';
import type { Budgets, Delegations, Runtime, Storage, TurnLoopEngine, WorkspaceAccess } from '../state/engine.ts';
import type { BudgetRefusal } from '../state/memory.ts';
import {
  type ModelRequest,
  recordConclusion,
  recordInputs,
  recordLimit,
  recordMessages,
  recordRefusal,
  setNextCall,
  type ToolResults,
  type TurnEnd,
  type TurnRun,
} from '../state/turn-run.ts';
import { dispatchTools } from '../tool-call/dispatch-tools.ts';
import { buildAnswers, FAILED_TEXT } from '../tool-call/tool-results.ts';
import {
  cancelWorkers,
  concludeWorkers,
  findInterruption,
  findRunningGroup,
  settleWorkers,
  throwIfFaulty,
} from './background-waits.ts';
import { deliverWithAnswers, listDeliveries } from './deliveries.ts';
import { completeTurn, endTurn, interruptTurn } from './end-turn.ts';
import { newUserMessage } from './incoming-message.ts';
import { decideNextStep } from './next-step.ts';
import { collectInputs, NO_INPUTS, readInputs } from './turn-inputs.ts';

/** Stores the tool messages of a finished batch in one transaction with the messages that came meanwhile, and announces the call that sends them (00 §3 step 5). */
export async function storeAnswers(
  engine: Runtime & Storage & WorkspaceAccess & Budgets & Delegations,
  run: TurnRun,
  calls: readonly ToolUseBlock[],
  results: ToolResults,
): Promise<void> {
  const { messages, writes } = buildAnswers(engine, run, calls, { results, missing: FAILED_TEXT });
  const deliveries = await listDeliveries(engine, run);
  const inputs = (await collectInputs(engine, run, messages, deliveries)) ?? NO_INPUTS;
  const prepared = await prepareCertainCall(engine, run, extendHistory(run.history, ...messages, ...inputs.messages));
  const carried = await deliverWithAnswers(engine, run, messages, deliveries);
  const emit = [...messages.map((m) => messageAppended(engine, run, m)), ...carried.events, ...inputs.emit];
  const cause = inputs.messages.length === 0 ? run.cause : emit.findLastIndex((item) => 'type' in item);
  const events = await engine.journal.commit({
    writes: [...writes, ...carried.writes, ...inputs.writes],
    emit: [...emit, ...(prepared ? [callStartedEvent(run, prepared, cause)] : [])],
  });
  recordMessages(run, messages);
  const read = carried.events.length + inputs.messages.length;
  if (inputs.messages.length > 0) recordInputs(run, inputs.messages, events[read - 1]!.id);
  if (prepared) setNextCall(run, { prepared, started: events[read]!.id });
}

// Prepares the next call where that is certain before the current step is stored (00 §3).

/**
 * The call that follows once `history` is stored, to be announced in the same transaction. Null where the turn may take
 * another step, money has to be reserved first, or room has to be made in the window.
 */
export async function prepareCertainCall(
  engine: Runtime & Storage & WorkspaceAccess,
  run: TurnRun,
  history: readonly StoredMessage[],
): Promise<ModelRequest | null> {
  if (decideNextStep(engine, run, history).kind !== 'call_model') return null;
  const volatile = await readVolatilePrompt(engine, run.session);
  // Last, since everything that takes time comes before it.
  if ((await listLimits(engine, toSpender(run), run.caps)).length > 0) return null;
  if (!canAnnounce(engine, run.signal) || run.conclusion.signal.aborted) return null;
  const prepared = buildModelRequest(engine, { ...run, history }, volatile);
  if (isCrowded(engine, prepared)) return null;
  return prepared;
}

/** Whether the turn is not about to stop. A call that is announced and then stopped is rejected and costs two events. */
export function canAnnounce(engine: Pick<Runtime, 'draining'>, signal: AbortSignal): boolean {
  return !signal.aborted && !engine.draining.value;
}

/**
 * Runs an admitted turn to its terminal event, or interrupts it where it can be resumed. Only the journal's own faults
 * are thrown. A cancellation takes effect between steps and inside them; the closing itself cannot be cancelled.
 * @param known results of the newest message's tool calls from before a restart
 */
export async function runTurn(engine: TurnLoopEngine, run: TurnRun, known: ToolResults = new Map()): Promise<TurnEnd> {
  try {
    if (run.resumed) await engine.workers.resumeBackground(run);
    return await runSteps(engine, run, known);
  } catch (thrown) {
    if (thrown instanceof TreeLost) {
      engine.background.get(run.turn.id)?.scope.abort(thrown);
      await settleWorkers(engine, run);
      return { status: 'lost' };
    }
    engine.log.error({ err: thrown, session_id: run.session.id, turn_id: run.turn.id }, 'a turn failed unexpectedly');
    await cancelWorkers(engine, run, FAULT);
    // If the store refuses one of these too, the turn stays open: the next operation on it, or the next start, ends it.
    await closeOpenParts(engine, run.session, run.turn.id, FAULT);
    return await endTurn(engine, run, {
      status: 'failed',
      error_code: 'internal_error',
      message: 'internal error',
      error_class: null,
      retryable: false,
    });
  } finally {
    engine.background.close(run.turn.id);
  }
}

/** Runs steps until the turn has ended or is interrupted. No background worker of it runs then. */
async function runSteps(engine: TurnLoopEngine, run: TurnRun, known: ToolResults): Promise<TurnEnd> {
  let results = known;
  for (;;) {
    throwIfLost(run.signal);
    if (run.worker !== null && (await hasUsedShare(engine, run))) run.conclusion.abort();
    const step = decideNextStep(engine, run);
    // The calls of a stopped turn are dispatched too: each is rejected with its own terminal event.
    // An announced call is sent too: it is rejected at once, and so has its outcome.
    const owed = step.kind === 'run_tools' || run.next_call?.started != null;
    if (run.signal.aborted && !owed) return await stopTurn(engine, run);
    if (step.kind === 'fail')
      return await failTurn(engine, run, {
        message: step.message,
        error_class: 'other',
        retryable: false,
      });
    if (step.kind === 'finish') {
      const end = await finishTurn(engine, run, step);
      if (end !== null) return end;
      continue;
    }
    if (engine.draining.value && !run.signal.aborted) {
      await settleWorkers(engine, run);
      cancelScope(run.scope, new Cancelled('shutdown'));
      continue;
    }
    if (step.kind === 'call_model') {
      if (run.conclusion.signal.aborted && run.next_call?.started == null) {
        if (await concludeWorkersFirst(engine, run)) continue;
        await storeConclusion(engine, run);
      }
      const outcome = await callModel(engine, run);
      if (outcome.ok) {
        if (outcome.end !== null) return outcome.end;
        results = outcome.settled;
        await warnIfNear(engine, run);
      } else if (outcome.error === null) return await endOverBudget(engine, run, outcome.refusal);
      else if (!run.signal.aborted)
        return await failTurn(engine, run, {
          message: outcome.error.message,
          error_class: outcome.error.error_class,
          retryable: outcome.error.retryable,
        });
      continue;
    }
    const done = await dispatchTools(engine, run, step.calls, results);
    throwIfLost(run.signal);
    results = done.results;
    if (run.signal.aborted) return await stopTurn(engine, run);
    if (done.interrupted) return await interruptWithWorkers(engine, run, done.interrupted.reason);
    await storeAnswers(engine, run, step.calls, results);
    results = new Map();
  }
}

/** Ends a turn whose model has nothing left to do, after its background workers. Null when the turn goes on. */
async function finishTurn(
  engine: TurnLoopEngine,
  run: TurnRun,
  { stopReason, limit }: Extract<Step, { kind: 'finish' }>,
): Promise<TurnEnd | null> {
  const group = engine.background.get(run.turn.id);
  const mark = group?.mark() ?? 0;
  const inputs = limit === null ? await readInputs(engine, run) : 'limited';
  if (inputs === 'read') return null;
  throwIfFaulty(engine, run);
  if (group !== null && group.runs.size > 0) {
    if (inputs === 'limited' || run.conclusion.signal.aborted) await concludeWorkers(engine, run);
    else if (engine.draining.value) {
      await settleWorkers(engine, run);
      cancelScope(run.scope, new Cancelled('shutdown'));
    } else await group.whenChanged(mark);
    return null;
  }
  const interruption = findInterruption(engine, run);
  if (interruption !== null) return interruptWithWorkers(engine, run, interruption);
  recordLimit(run, limit);
  if (inputs === 'limited') return endTurn(engine, run, { status: 'completed', stop_reason: stopReason });
  return completeTurn(engine, run, stopReason);
}

/** Concludes the workers of a turn that is to answer with what it has, so that its last answer knows theirs. False where none runs. */
async function concludeWorkersFirst(engine: TurnLoopEngine, run: TurnRun): Promise<boolean> {
  if (run.conclusion_message !== null || findRunningGroup(engine, run) === null) return false;
  await concludeWorkers(engine, run);
  if (!run.signal.aborted) await readInputs(engine, run);
  return true;
}

/** Ends a turn whose provider has failed, after its workers. */
async function failTurn(
  engine: TurnLoopEngine,
  run: TurnRun,
  failure: Pick<Extract<Ending, { status: 'failed' }>, 'message' | 'error_class' | 'retryable'>,
): Promise<TurnEnd> {
  await closeWorkers(engine, run, new Cancelled('shutdown', "its planner's turn has failed"));
  return endTurn(engine, run, { status: 'failed', error_code: 'provider_error', ...failure });
}

/** Ends the background workers of a turn that ends before them: those that run, and those that were interrupted. */
async function closeWorkers(engine: TurnLoopEngine, run: TurnRun, reason: Cancelled): Promise<void> {
  if (engine.background.get(run.turn.id) === null) return;
  await cancelWorkers(engine, run, reason);
  throwIfLost(run.signal);
  await engine.workers.closeUnder(run.turn.id, reason);
}

/** Interrupts the turn once its background workers have stopped: they resume with it. */
async function interruptWithWorkers(engine: TurnLoopEngine, run: TurnRun, reason: InterruptReason): Promise<TurnEnd> {
  await settleWorkers(engine, run);
  throwIfLost(run.signal);
  return interruptTurn(engine, run, reason);
}

/** Whether a worker has used the share of its tokens or of its own money at which it is concluded; the clock watches its time. */
async function hasUsedShare(engine: Runtime & Storage, { worker, caps, conclusion }: TurnRun): Promise<boolean> {
  if (worker === null || worker.conclude_at === null || conclusion.signal.aborted) return false;
  const { output_tokens_left, spent } = worker.conclude_at;
  if (output_tokens_left !== null && (worker.output_tokens_left ?? 0) <= output_tokens_left) return true;
  const own = caps.find((cap) => cap.tool_use_id === worker.tool_use_id);
  if (spent === null || own === undefined) return false;
  return (await engine.store.spend.sumSubtree(own.session_id)) >= spent;
}

/** Asks for the last answer, behind everything that the turn has read. A call that is announced already is made before it. */
async function storeConclusion(engine: Runtime & Storage, run: TurnRun): Promise<void> {
  if (run.conclusion_message !== null || run.next_call?.started != null) return;
  const { session, turn } = run;
  const now = engine.clock.now();
  const message = newUserMessage(engine, session, { turn_id: turn.id, content: [textBlock(CONCLUSION_TEXT)], now });
  await engine.journal.commit({
    writes: [
      { kind: 'turn.conclude', turn_id: turn.id, at: now, message_id: message.id },
      { kind: 'message.insert', message },
    ],
    emit: [messageAppended(engine, run, message)],
  });
  recordConclusion(run, message);
}

/** Handles a call that a limit refused: pauses the tree until the limit is raised, or ends the turn (14 §3). */
async function endOverBudget(engine: TurnLoopEngine, run: TurnRun, refusal: BudgetRefusal): Promise<TurnEnd> {
  if (refusal.on_reached === 'stop') {
    await reportExceeded(engine, run, refusal);
    recordRefusal(run, refusal);
    await concludeWorkers(engine, run);
    throwIfLost(run.signal);
    if (run.signal.aborted) return stopTurn(engine, run);
    const interruption = findInterruption(engine, run);
    if (interruption !== null) return interruptTurn(engine, run, interruption);
    return endTurn(engine, run, { status: 'completed', stop_reason: 'budget_exceeded' });
  }
  if (pauseTree(engine, run.session, refusal)) await reportExceeded(engine, run, refusal);
  return interruptWithWorkers(engine, run, 'budget');
}

/** An aborted turn ends as cancelled, unless the process stops and the turn goes on after its next start. */
async function stopTurn(engine: TurnLoopEngine, run: TurnRun): Promise<TurnEnd> {
  if (isHandOver(engine, run.signal)) return interruptWithWorkers(engine, run, 'restart');
  const by = cancelledBy(run.signal);
  if (by.reason === 'timeout') await concludeWorkers(engine, run);
  else await cancelWorkers(engine, run, by);
  throwIfLost(run.signal);
  // Workers that were interrupted before the cancellation would stay open otherwise.
  await engine.workers.closeUnder(run.turn.id, by);
  return endTurn(engine, run, { status: 'cancelled', by });
}
