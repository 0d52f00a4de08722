// Ends a turn after its last step: one transaction with the one terminal event (00 §3 step 7).

import { measureHistory } from '#core/policy/context/session-history.ts';
import { routingRecord } from '#core/policy/routing/chain.ts';
import type { ToolCallState } from '#core/ports/store-reader.ts';
import type { ToolSet } from '#core/ports/tool-port.ts';
import { Cancelled, cancelledBy, createScope } from '#protocol/abort.ts';
import { type Awaitable, continueWith } from '#protocol/async/awaitable.ts';
import { type InsufficientContextRequest, InsufficientContextRequestSchema } from '#protocol/delegate.ts';
import { TERMINAL_TOOL_EVENTS } from '#protocol/event.ts';
import { isInputsWaiting } from '#protocol/journal-batch.ts';
import { type StopReason, type StoredMessage, toolUses } from '#protocol/message.ts';
import type { RouteDecision } from '#protocol/route.ts';
import type { SessionRecord } from '#protocol/session.ts';
import type { ToolDefinition } from '#protocol/tool.ts';
import type { TurnRecord, TurnStopReason } from '#protocol/turn.ts';
import { messageAppended } from '../model-call/call-records.ts';
import { buildTurnEnd, closeOpenParts, type Ending, readOpenCallOutcomes } from '../model-call/turn-end.ts';
import { toWireTool } from '../prompt/model-input.ts';
import { readCheckpoints, readHistory } from '../session/read-history.ts';
import { FAULT, type InterruptReason, isHandOver } from '../state/concurrency.ts';
import {
  type CostHistories,
  type ModelCatalog,
  type Runtime,
  type Storage,
  safeText,
  type TurnEndEngine,
} from '../state/engine.ts';
import type { DelegationCap } from '../state/memory.ts';
import {
  type DelegationTree,
  newDelegationTree,
  recordMessages,
  type ToolResults,
  type TurnBase,
  type TurnCounts,
  type TurnEnd,
  type TurnPlan,
  type TurnRun,
  type WorkerClock,
  type WorkerRun,
} from '../state/turn-run.ts';
import {
  CANCELLED_TEXT,
  FAILED_TEXT,
  RESTART_TEXT,
  readStartedCalls,
  readStoredResults,
} from '../tool-call/tool-results.ts';
import { type Closing, closeCalls } from './close-calls.ts';

/**
 * Ends a turn in one transaction: open calls of its newest message are answered, announced model calls get their
 * outcome, unread messages are counted, and the one terminal event comes last.
 * @param text the answer for a tool call without a result
 */
export async function endTurn(
  engine: Runtime & Storage & CostHistories,
  run: TurnBase,
  ending: Ending,
  text = ending.status === 'cancelled' ? CANCELLED_TEXT : FAILED_TEXT,
): Promise<TurnEnd> {
  const closing = await closeCalls(engine, run, text);
  for (;;) {
    const unread = await countUnread(engine, run);
    if (await storeEnd(engine, run, ending, { closing, unread: unread - closing.delivered })) break;
  }
  switch (ending.status) {
    case 'completed':
      return ending;
    case 'cancelled':
      return { status: 'cancelled', reason: ending.by.reason };
    case 'failed':
      return { status: 'failed', message: safeText(engine, ending.message, run.session.workspace_path) };
  }
}

/** Messages and results of workers that the turn has not read. */
async function countUnread({ store }: Pick<Storage, 'store'>, { turn }: TurnPlan): Promise<number> {
  const [inputs, deliveries] = await Promise.all([store.turns.inputs(turn.id), store.delegations.deliveries(turn.id)]);
  return inputs.length + deliveries.length;
}

/** Ends a turn whose model has finished. Null when a message for the turn or a worker's result arrived at the last moment. */
export async function completeTurn(
  engine: Runtime & Storage & CostHistories,
  run: TurnBase,
  stopReason: TurnStopReason,
): Promise<TurnEnd | null> {
  const ending = { status: 'completed', stop_reason: stopReason } as const;
  const closing = await closeCalls(engine, run, FAILED_TEXT);
  if (await storeEnd(engine, run, ending, { closing, unread: 0 })) return ending;
  return null;
}

/** False when the number of waiting messages is not `unread`. */
async function storeEnd(
  engine: Runtime & Storage & CostHistories,
  run: TurnBase,
  ending: Ending,
  { closing, unread }: { readonly closing: Closing; readonly unread: number },
): Promise<boolean> {
  const { messages, writes, failed } = closing;
  // A fault may have occurred between an announcement and its call.
  const calls = await readOpenCallOutcomes(engine, run.turn.id);
  const end = buildTurnEnd(engine, run, ending, unread);
  const emit = [...calls, ...failed, ...messages.map((m) => messageAppended(engine, run, m)), end.event];
  try {
    await engine.journal.commit({ writes: [...writes, ...end.writes], emit });
  } catch (error) {
    if (isInputsWaiting(error)) return false;
    throw error;
  }
  if (end.cost !== null) engine.forecasts?.add(end.cost);
  recordMessages(run, messages);
  return true;
}

// Rebuilds the state of an interrupted turn from the store (04 §13).

interface Rebuilt {
  readonly run: TurnBase;
  /** Null when the turn's model is not configured any more. */
  readonly served: Pick<TurnRun, 'model' | 'adapter'> | null;
  /** Results of the newest message's calls that are stored but not yet answered in the history. */
  readonly known: ToolResults;
}

export async function rebuildRun(
  engine: Runtime & Storage & ModelCatalog,
  session: SessionRecord,
  turn: TurnRecord,
  around: {
    readonly scope: AbortController;
    readonly conclusion: AbortController;
    readonly toolset: ToolSet;
    readonly worker: WorkerRun | null;
    readonly clocks: readonly WorkerClock[];
    readonly tree: DelegationTree;
    readonly caps: readonly DelegationCap[];
  },
): Promise<Rebuilt> {
  const { events, turns } = engine.store;
  const model = turn.chosen_model === null ? null : engine.registry.get(turn.chosen_model);
  const adapter = model && engine.providers.get(model.adapter);
  const started = await events.findNewestOfTurn(turn.id, ['turn.started']);
  const decided = await events.findNewestOfTurn(turn.id, ['route.decided']);
  const lastCompleted = await events.findNewestOfTurn(turn.id, ['llm.call_completed']);
  // A summary is made before the turn's own first call.
  const completed = lastCompleted?.payload.purpose === 'turn' ? lastCompleted : null;
  const cause = await events.findNewestOfTurn(turn.id, [...TERMINAL_TOOL_EVENTS, 'turn.steered', 'delegate.delivered']);
  const notice = await events.findNewestOfTurn(turn.id, [...TERMINAL_TOOL_EVENTS, 'budget.warning']);
  if (!started || !decided) throw new Error(`turn ${turn.id} has no beginning`);
  const calls = await turns.toolCalls(turn.id);
  const totals = await turns.totals(turn.id);
  const history = [...(await readHistory(engine, session))];
  const last = history.findLast((m) => m.role === 'assistant' && m.turn_id === turn.id);
  const tools = turn.tools
    .map((name) => around.toolset.definition(name))
    .filter((definition): definition is ToolDefinition => definition !== null)
    .filter(({ planners_only }) => !(planners_only && session.is_worker));
  const elapsed = engine.clock.now() - turn.started_at;
  if (turn.concluded_at !== null) around.conclusion.abort();

  const run: TurnBase = {
    session,
    turn,
    turn_index: measureHistory(history).turns,
    routing: routingRecord(decided.payload as unknown as RouteDecision),
    toolset: around.toolset,
    tools,
    wire_tools: tools.map(toWireTool),
    scope: around.scope,
    signal: around.scope.signal,
    conclusion: around.conclusion,
    started_event_id: started.id,
    started_monotonic: engine.clock.monotonic() - Math.max(0, elapsed),
    worker: around.worker,
    clocks: around.clocks,
    tree: around.tree,
    caps: around.caps,
    history,
    checkpoints: await readCheckpoints(engine, session),
    overflow_answered: false,
    tally: {
      llm_calls: totals.calls,
      tool_calls: calls.filter((c) => c.result !== null).length,
      input_tokens: totals.input_tokens,
      output_tokens: totals.output_tokens,
      cached_input_tokens: totals.cached_input_tokens,
      cache_creation_input_tokens: totals.cache_creation_input_tokens,
      cost_pusd: totals.cost_pusd,
    },
    called: await readStartedCalls(engine, turn.id),
    resumed: true,
    next_call: null,
    cause: cause?.id ?? started.id,
    stop_reason: (completed?.payload.stop_reason as StopReason | undefined) ?? null,
    call_event_id: completed?.id ?? null,
    final_message_id: last?.id ?? null,
    context_request: findContextRequest(around.toolset, last, calls),
    limit: null,
    conclusion_message: turn.conclusion_message_id,
    // The first result behind a warning repeats it.
    budget_warned: notice?.type === 'budget.warning',
    refusal: null,
    terms: new Map(),
  };
  return { run, served: model && adapter ? { model, adapter } : null, known: await readStoredResults(engine, turn.id) };
}

/** The request for more context that ended a worker's turn, if its newest message holds a valid one. */
export function findContextRequest(
  toolset: ToolSet,
  last: StoredMessage | undefined,
  calls: readonly ToolCallState[],
): InsufficientContextRequest | null {
  const questions = last ? toolUses(last.content).filter((c) => toolset.definition(c.name)?.requests_context) : [];
  // The batch is over once its answers are stored: before that, its other calls have to be rejected.
  const valid = questions.find(({ id }) => calls.some((c) => c.id === id && c.status === 'succeeded' && c.answered));
  if (valid) return InsufficientContextRequestSchema.safeParse(valid.input).data ?? null;
  return null;
}

// Ends a turn without a running loop: after a crash, or when it was interrupted and will not be resumed (04 §13).

const SHUTDOWN = new Cancelled('shutdown');

/**
 * Ends the session's open turn, if it has one, with everything below it. The caller holds the session's lock: such a
 * turn was interrupted, or lost its loop to a fault of the journal.
 */
export function endOpenTurn(
  engine: TurnEndEngine,
  session: SessionRecord,
  reason: Cancelled = SHUTDOWN,
): Awaitable<void> {
  return continueWith(engine.store.turns.open(session.id), (turn) => {
    if (turn !== null) return endUnfinishedTurn(engine, session, turn, reason);
  });
}

/**
 * Ends a turn that has no running loop: rebuilds it as for a resumption, and cancels it (01 §11.5). Doing it twice
 * changes nothing.
 */
export async function endUnfinishedTurn(
  engine: TurnEndEngine,
  session: SessionRecord,
  turn: TurnRecord,
  reason: Cancelled,
): Promise<void> {
  await closeOpenParts(engine, session, turn.id, reason);
  const scope = createScope();
  scope.abort(reason);
  const toolset = engine.tools.knownTools(session.workspace_path);
  const conclusion = createScope();
  const alone = { scope, conclusion, toolset, worker: null, clocks: [], tree: newDelegationTree(), caps: [] };
  const { run } = await rebuildRun(engine, session, turn, alone);
  // The effect of a call whose process died is unknown.
  const text = reason.reason === 'shutdown' && reason !== FAULT ? RESTART_TEXT : CANCELLED_TEXT;
  await endTurn(engine, run, { status: 'cancelled', by: reason }, text);
}

// Interrupts a turn at its current step: no terminal event, everything stored so far is kept for its resumption (04 §13).

/** Interrupts the turn. A turn that was cancelled at the last moment ends instead: otherwise it would stay open. */
export async function interruptTurn(
  engine: TurnEndEngine,
  run: TurnPlan & TurnCounts,
  reason: InterruptReason,
): Promise<TurnEnd> {
  await engine.journal.commit({
    writes: [
      {
        kind: 'turn.interrupt',
        turn_id: run.turn.id,
        reason,
        llm_call_count: run.tally.llm_calls,
        tool_call_count: run.tally.tool_calls,
      },
    ],
    emit: [],
  });
  if (!run.signal.aborted || isHandOver(engine, run.signal)) return { status: 'interrupted', reason };
  const cancelled = cancelledBy(run.signal);
  await endUnfinishedTurn(engine, run.session, run.turn, cancelled);
  return { status: 'cancelled', reason: cancelled.reason };
}
