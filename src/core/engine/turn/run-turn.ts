// The turn loop: computes the next step, runs it, until a terminal event is stored (00 §3, 04 §3.1).

import { CONCLUSION_TEXT, countPauses, findNextStep, type Step } from '#core/policy/turn-machine.ts';
import type { Write } from '#core/ports/journal-writer.ts';
import { Cancelled, cancelledBy } from '#protocol/abort.ts';
import type { Transient } from '#protocol/delta.ts';
import { draft, type EventDraft } from '#protocol/event.ts';
import { TreeLost } from '#protocol/journal-batch.ts';
import { type StoredMessage, type ToolUseBlock, textBlock } from '#protocol/message.ts';
import { callModel, isCrowded } from '../model-call/call-model.ts';
import { messageAppended } from '../model-call/call-records.ts';
import { buildModelRequest, callStartedEvent } from '../model-call/model-request.ts';
import { closeOpenParts } from '../model-call/turn-end.ts';
import { listLimits, pauseTree } from '../money/budget-limits.ts';
import { reportExceeded, warnIfNear } from '../money/budget-notices.ts';
import { readVolatilePrompt } from '../prompt/model-input.ts';
import { cancelScope, FAULT, isHandOver, throwIfLost } from '../state/concurrency.ts';
import type { Runtime, Storage, TurnLoopEngine, WorkspaceAccess } from '../state/engine.ts';
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
  type TurnBase,
  type TurnEnd,
  type TurnPlan,
  type TurnRun,
} from '../state/turn-run.ts';
import { dispatchTools } from '../tool-call/dispatch-tools.ts';
import { buildAnswers, FAILED_TEXT } from '../tool-call/tool-results.ts';
import { completeTurn, endTurn, interruptTurn } from './end-turn.ts';
import { newUserMessage } from './incoming-message.ts';

/** Stores the tool messages of a finished batch in one transaction with the messages that came meanwhile, and announces the call that sends them (00 §3 step 5). */
export async function storeAnswers(
  engine: Runtime & Storage & WorkspaceAccess,
  run: TurnRun,
  calls: readonly ToolUseBlock[],
  results: ToolResults,
): Promise<void> {
  const { messages, writes } = buildAnswers(engine, run, calls, { results, missing: FAILED_TEXT });
  const inputs = (await collectInputs(engine, run, messages)) ?? NO_INPUTS;
  const prepared = await prepareCertainCall(engine, run, [...run.history, ...messages, ...inputs.messages]);
  const emit = [...messages.map((m) => messageAppended(engine, run, m)), ...inputs.emit];
  const cause = inputs.messages.length === 0 ? run.cause : emit.findLastIndex((item) => 'type' in item);
  const events = await engine.journal.commit({
    writes: [...writes, ...inputs.writes],
    emit: [...emit, ...(prepared ? [callStartedEvent(run, prepared, cause)] : [])],
  });
  recordMessages(run, messages);
  const read = inputs.messages.length;
  if (read > 0) recordInputs(run, inputs.messages, events[read - 1]!.id);
  if (prepared) setNextCall(run, { prepared, started: events[read]!.id });
}

// Messages for a running turn: read at its next step boundary (20 §4).

/** The messages that wait for the turn, in their stored form. */
export interface Inputs {
  readonly messages: readonly StoredMessage[];
  readonly writes: readonly Write[];
  /** Two items per message: its `turn.steered`, then the message for stream clients. */
  readonly emit: readonly (EventDraft | Transient)[];
}

export const NO_INPUTS: Inputs = { messages: [], writes: [], emit: [] };

/** The messages to read now, behind `before`. Null where messages wait and no model call may follow: the turn counts them as unread when it ends. */
export async function collectInputs(
  engine: Runtime & Storage,
  run: TurnBase,
  before: readonly StoredMessage[] = [],
): Promise<Inputs | null> {
  const inputs = await engine.store.turns.inputs(run.turn.id);
  if (inputs.length === 0) return NO_INPUTS;
  const { session, turn } = run;
  const now = engine.clock.now();
  const messages = inputs.map(({ content }) => newUserMessage(engine, session, { turn_id: turn.id, content, now }));
  if (decideNextStep(engine, run, [...run.history, ...before, ...messages]).kind !== 'call_model') return null;
  return {
    messages,
    writes: inputs.flatMap(({ id }, i): Write[] => [
      { kind: 'turn_input.read', id },
      { kind: 'message.insert', message: messages[i]! },
    ]),
    emit: inputs.flatMap(({ id, submitted_at }, i) => [
      draft({
        type: 'turn.steered',
        session_id: session.id,
        turn_id: turn.id,
        parent: run.started_event_id,
        payload: { message_id: messages[i]!.id, input_id: id, waited_ms: Math.max(0, now - submitted_at) },
      }),
      messageAppended(engine, run, messages[i]!),
    ]),
  };
}

/**
 * Reads the waiting messages of a turn that would end here, so that one more model call follows.
 * @returns `limited` where no call may follow
 */
export async function readInputs(engine: Runtime & Storage, run: TurnBase): Promise<'read' | 'nothing' | 'limited'> {
  const inputs = await collectInputs(engine, run);
  if (inputs === null) return 'limited';
  const { messages, writes, emit } = inputs;
  if (messages.length === 0) return 'nothing';
  const events = await engine.journal.commit({ writes, emit });
  recordInputs(run, messages, events.at(-1)!.id);
  return 'read';
}

// Computes a running turn's next step, and its next call where that is certain before the current step is stored (00 §3).

export function decideNextStep(
  engine: Pick<Runtime, 'config'>,
  run: TurnBase,
  history: readonly StoredMessage[] = run.history,
): Step {
  return findNextStep({
    last: findLastSent(history),
    stopReason: run.stop_reason,
    llmCalls: run.tally.llm_calls,
    maxLlmCalls: maxLlmCalls(engine, run),
    outputTokensLeft: run.worker?.output_tokens_left ?? null,
    pauses: countPauses(history),
    contextRequested: run.context_request !== null,
    concluded: run.conclusion_message !== null,
  });
}

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
  if ((await listLimits(engine, run.session, run.caps)).length > 0) return null;
  if (!canAnnounce(engine, run.signal) || run.conclusion.signal.aborted) return null;
  const prepared = buildModelRequest(engine, { ...run, history }, volatile);
  if (isCrowded(engine, prepared)) return null;
  return prepared;
}

/** Whether the turn is not about to stop. A call that is announced and then stopped is rejected and costs two events. */
export function canAnnounce(engine: Pick<Runtime, 'draining'>, signal: AbortSignal): boolean {
  return !signal.aborted && !engine.draining.value;
}

/** The newest message that a provider would be sent. */
function findLastSent(history: readonly StoredMessage[]): StoredMessage {
  const last = history.findLast((m) => m.metadata.status === 'complete');
  if (!last) throw new Error('a turn without its user message');
  return last;
}

/** Model calls in one turn of a worker, however many `turn.max_llm_calls` allows a planner. */
const MAX_WORKER_LLM_CALLS = 25;

function maxLlmCalls(engine: Pick<Runtime, 'config'>, run: Pick<TurnPlan, 'session'>): number {
  const limit = engine.config.turn.max_llm_calls;
  if (run.session.is_worker) return Math.min(limit, MAX_WORKER_LLM_CALLS);
  return limit;
}

/**
 * Runs an admitted turn to its terminal event, or interrupts it where it can be resumed. Only the journal's own faults
 * are thrown. A cancellation takes effect between steps and inside them; the closing itself cannot be cancelled.
 * @param known results of the newest message's tool calls from before a restart
 */
export async function runTurn(engine: TurnLoopEngine, run: TurnRun, known: ToolResults = new Map()): Promise<TurnEnd> {
  let results = known;
  try {
    for (;;) {
      throwIfLost(run.signal);
      if (await hasUsedShare(engine, run)) run.conclusion.abort();
      const step = decideNextStep(engine, run);
      // The calls of a stopped turn are dispatched too: each is rejected with its own terminal event.
      // An announced call is sent too: it is rejected at once, and so has its outcome.
      const owed = step.kind === 'run_tools' || run.next_call?.started != null;
      if (run.signal.aborted && !owed) return await stopTurn(engine, run);
      if (step.kind === 'fail')
        return await endTurn(engine, run, {
          status: 'failed',
          error_code: 'provider_error',
          message: step.message,
          error_class: 'other',
          retryable: false,
        });
      if (step.kind === 'finish') {
        const inputs = step.limit === null ? await readInputs(engine, run) : 'limited';
        if (inputs === 'read') continue;
        recordLimit(run, step.limit);
        const { stopReason } = step;
        if (inputs === 'limited') return await endTurn(engine, run, { status: 'completed', stop_reason: stopReason });
        const end = await completeTurn(engine, run, stopReason);
        if (end !== null) return end;
        continue;
      }
      if (engine.draining.value && !run.signal.aborted) {
        cancelScope(run.scope, new Cancelled('shutdown'));
        continue;
      }
      if (step.kind === 'call_model') {
        if (run.conclusion.signal.aborted) await storeConclusion(engine, run);
        const outcome = await callModel(engine, run);
        if (outcome.ok) {
          if (outcome.end !== null) return outcome.end;
          results = outcome.settled;
          await warnIfNear(engine, run);
        } else if (outcome.error === null) return await endOverBudget(engine, run, outcome.refusal);
        else if (!run.signal.aborted)
          return await endTurn(engine, run, {
            status: 'failed',
            error_code: 'provider_error',
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
      if (done.interrupted) return await interruptTurn(engine, run, done.interrupted.reason);
      await storeAnswers(engine, run, step.calls, results);
      results = new Map();
    }
  } catch (thrown) {
    if (thrown instanceof TreeLost) return { status: 'lost' };
    engine.log.error({ err: thrown, session_id: run.session.id, turn_id: run.turn.id }, 'a turn failed unexpectedly');
    // If the store refuses one of these too, the turn stays open: the next operation on it, or the next start, ends it.
    await closeOpenParts(engine, run.session, run.turn.id, FAULT);
    return endTurn(engine, run, {
      status: 'failed',
      error_code: 'internal_error',
      message: 'internal error',
      error_class: null,
      retryable: false,
    });
  }
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
    return endTurn(engine, run, { status: 'completed', stop_reason: 'budget_exceeded' });
  }
  if (pauseTree(engine, run.session, refusal)) await reportExceeded(engine, run, refusal);
  return interruptTurn(engine, run, 'budget');
}

/** An aborted turn ends as cancelled, unless the process stops and the turn goes on after its next start. */
async function stopTurn(engine: TurnLoopEngine, run: TurnBase): Promise<TurnEnd> {
  if (isHandOver(engine, run.signal)) return interruptTurn(engine, run, 'restart');
  // Workers that were interrupted before the cancellation would stay open otherwise.
  const by = cancelledBy(run.signal);
  await engine.workers.closeUnder(run.turn.id, by);
  return endTurn(engine, run, { status: 'cancelled', by });
}
