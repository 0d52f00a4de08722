// The locals of a turn that was interrupted, rebuilt from what is stored of it (04 §13).

import { summaryOf } from '#core/policy/context/history.ts';
import { routingRecord } from '#core/policy/routing/chain.ts';
import type { ToolCallState } from '#core/ports/store.ts';
import type { ToolSet } from '#core/ports/tool.ts';
import { type InsufficientContextRequest, InsufficientContextRequestSchema } from '#protocol/delegate.ts';
import { TERMINAL_TOOL_EVENTS } from '#protocol/event.ts';
import { type StopReason, type StoredMessage, toolUses } from '#protocol/message.ts';
import type { RouteDecision } from '#protocol/route.ts';
import type { SessionRecord } from '#protocol/session.ts';
import type { ToolDefinition } from '#protocol/tool.ts';
import type { TurnRecord } from '#protocol/turn.ts';
import { wireTool } from '../prompt/offered-tools.ts';
import type { Engine } from '../state/engine.ts';
import type { DelegationCap } from '../state/reservations.ts';
import type { ToolResults } from '../state/tool-results.ts';
import type { DelegationTree, TurnBase, TurnRun, WorkerRun } from '../state/turn-run.ts';
import type { WorkerClock } from '../state/worker-clock.ts';
import { startedCalls, storedResults } from '../tool-call/results.ts';

export interface Rebuilt {
  readonly run: TurnBase;
  /** Null when the turn's model is not configured any more. */
  readonly served: Pick<TurnRun, 'model' | 'adapter'> | null;
  /** Results of the newest message's calls that are stored but not yet answered in the history. */
  readonly known: ToolResults;
}

export async function rebuildRun(
  engine: Engine,
  session: SessionRecord,
  turn: TurnRecord,
  around: {
    readonly scope: AbortController;
    readonly toolset: ToolSet;
    readonly worker: WorkerRun | null;
    readonly clocks: readonly WorkerClock[];
    readonly tree: DelegationTree;
    readonly caps: readonly DelegationCap[];
  },
): Promise<Rebuilt> {
  const { events, turns, messages } = engine.store;
  const model = turn.chosen_model === null ? null : engine.registry.get(turn.chosen_model);
  const adapter = model && engine.providers.get(model.adapter);
  const started = await events.lastOfTurn(turn.id, ['turn.started']);
  const decided = await events.lastOfTurn(turn.id, ['route.decided']);
  const lastCompleted = await events.lastOfTurn(turn.id, ['llm.call_completed']);
  // A summary is made before the turn's own first call.
  const completed = lastCompleted?.payload.purpose === 'turn' ? lastCompleted : null;
  const cause = await events.lastOfTurn(turn.id, [...TERMINAL_TOOL_EVENTS, 'turn.steered']);
  const said = await events.lastOfTurn(turn.id, [...TERMINAL_TOOL_EVENTS, 'budget.warning']);
  if (!started || !decided) throw new Error(`turn ${turn.id} has no beginning`);
  const calls = await turns.toolCalls(turn.id);
  const totals = await turns.totals(turn.id);
  const history = [...(await messages.history(session.id))];
  const last = history.findLast((m) => m.role === 'assistant' && m.turn_id === turn.id);
  const tools = turn.tools
    .map((name) => around.toolset.definition(name))
    .filter((definition): definition is ToolDefinition => definition !== null)
    .filter(({ planners_only }) => !(planners_only && session.is_worker));
  const elapsed = engine.clock.now() - turn.started_at;

  const run: TurnBase = {
    session,
    turn,
    turn_index: summaryOf(history).turns,
    routing: routingRecord(decided.payload as unknown as RouteDecision),
    toolset: around.toolset,
    tools,
    wire_tools: tools.map(wireTool),
    scope: around.scope,
    signal: around.scope.signal,
    started_event_id: started.id,
    started_monotonic: engine.clock.monotonic() - Math.max(0, elapsed),
    worker: around.worker,
    clocks: around.clocks,
    tree: around.tree,
    caps: around.caps,
    history,
    checkpoints: await messages.checkpoints(session.id),
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
    called: await startedCalls(engine, turn.id),
    resumed: true,
    next_call: null,
    cause: cause?.id ?? started.id,
    stop_reason: (completed?.payload.stop_reason as StopReason | undefined) ?? null,
    call_event_id: completed?.id ?? null,
    final_message_id: last?.id ?? null,
    context_request: contextRequest(around.toolset, last, calls),
    limit: null,
    // The first result behind a warning says it.
    budget_warned: said?.type === 'budget.warning',
    refusal: null,
  };
  return { run, served: model && adapter ? { model, adapter } : null, known: await storedResults(engine, turn.id) };
}

/** The request for more context that ended a worker's turn, if its newest message holds a valid one. */
export function contextRequest(
  toolset: ToolSet,
  last: StoredMessage | undefined,
  calls: readonly ToolCallState[],
): InsufficientContextRequest | null {
  const questions = last ? toolUses(last.content).filter((c) => toolset.definition(c.name)?.requests_context) : [];
  // Before the answers are stored the batch is not over: its other calls have to be turned away first.
  const valid = questions.find(({ id }) => calls.some((c) => c.id === id && c.status === 'succeeded' && c.answered));
  return valid ? (InsufficientContextRequestSchema.safeParse(valid.input).data ?? null) : null;
}
