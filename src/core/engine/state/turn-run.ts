// The state of one running turn: the part fixed at its admission, its progress, its counts. Dropped when the turn ends.

import type { Window } from '#core/policy/context/window.ts';
import type { DelegationTerms } from '#core/policy/delegation/delegation-bill.ts';
import type { LimitReached } from '#core/policy/turn-machine.ts';
import type { ProviderAdapter } from '#core/ports/provider.ts';
import type { ToolSet } from '#core/ports/tool-port.ts';
import type { Clock, Timer } from '#protocol/clock.ts';
import type { InsufficientContextRequest } from '#protocol/delegate.ts';
import type { Purpose } from '#protocol/event/turn-events.ts';
import type { EventId, MessageId, ToolUseId } from '#protocol/ids.ts';
import type { RoutingDecisionRecord, StopReason, StoredMessage, ToolResultBlock } from '#protocol/message.ts';
import type { ModelEntry } from '#protocol/model.ts';
import type { CanonicalRequest, WireTool } from '#protocol/model-call.ts';
import { type Pusd, sumPusd, ZERO_PUSD } from '#protocol/money.ts';
import type { Checkpoint } from '#protocol/prompt-parts.ts';
import type { Effort, Tier } from '#protocol/scalars.ts';
import type { SessionRecord } from '#protocol/session.ts';
import type { JsonSchema, ToolDefinition } from '#protocol/tool.ts';
import type { TurnRecord } from '#protocol/turn.ts';
import type { Usage } from '#protocol/usage.ts';
import type { BudgetRefusal, DelegationCap } from './memory.ts';

// A worker's wall clock: runs from its creation, pauses while an approval is open (04 §10).

export interface WorkerClock {
  /** Stops the time; pairs with `resume`, and pairs nest. */
  pause(): void;
  resume(): void;
  /** Seconds of running time so far, without downtime and open approvals. */
  activeSeconds(): number;
  /** Ends the clock; it never expires after that. */
  stop(): void;
}

/** A moment of a worker's running time. */
interface ClockLimit {
  readonly seconds: number;
  /** May be called again after a pause. */
  onReached(): void;
}

/** @param usedSeconds running time already used before a restart */
export function startWorkerClock(clock: Clock, usedSeconds: number, limits: readonly ClockLimit[]): WorkerClock {
  let used = usedSeconds * 1000;
  let since: number | null = null;
  let timers: readonly Timer[] = [];
  let holds = 0;

  function run() {
    since = clock.monotonic();
    timers = limits.map(({ seconds, onReached }) => clock.after(Math.max(0, seconds * 1000 - used), onReached));
  }
  function halt() {
    for (const timer of timers) timer.cancel();
    if (since !== null) used += clock.monotonic() - since;
    since = null;
  }
  function pause() {
    holds += 1;
    halt();
  }
  run();
  return {
    pause,
    resume() {
      holds -= 1;
      if (holds === 0) run();
    },
    activeSeconds: () => (used + (since === null ? 0 : clock.monotonic() - since)) / 1000,
    stop: pause,
  };
}

// A model call that is ready to be sent.

export interface ModelRequest {
  readonly purpose: Purpose;
  readonly request: CanonicalRequest;
  /** Tokens, by the estimate that routing uses. */
  readonly estimated: number;
  /** Tokens as they count against the window (10 §7). */
  readonly load: number;
  readonly window: Window;
}

// The known results and starts of one message's tool calls.

/** Results by call; a call without one did not finish. */
export type ToolResults = ReadonlyMap<ToolUseId, ToolResultBlock>;

/** The `tool.called` of a call. */
export interface StartedCall {
  readonly event_id: EventId;
  /** Hash of the input that ran, which an approver may have edited. */
  readonly input_hash: string;
}

/** Shared by the delegations of one top-level turn, descendants' included (04 §10). */
export interface DelegationTree {
  delegations: number;
  /** Money of the workers of the turn, descendants' included. */
  workers_pusd: Pusd;
}

export function newDelegationTree(): DelegationTree {
  return { delegations: 0, workers_pusd: ZERO_PUSD };
}

/** Shared by a worker's turns. */
export interface WorkerRun {
  readonly tool_use_id: ToolUseId;
  readonly task: string;
  /** Files that its planner referenced. */
  readonly files: readonly string[];
  /** Slot 5's candidate, and the reason for it; another one after a failed check (20 §10). */
  tier_model: string | null;
  tier_reason: string;
  /** The tier that it is the model of, null = none; and the effort that was asked for. */
  tier: Tier | null;
  effort: Effort | null;
  readonly output_schema: JsonSchema | null;
  /** It starts with a summary of the worker that it continues (20 §3). */
  readonly starts_with_summary: boolean;
  /** Remainder of `max_tokens`; null = no limit. */
  output_tokens_left: number | null;
  readonly clock: WorkerClock;
  /** What it may use before it is concluded; null = it never is by itself. */
  readonly conclude_at: WorkerShares | null;
}

/** A share of a worker's own limits (20 §3). */
export interface WorkerShares {
  /** The worker is concluded when its remaining tokens are not above this; null = no limit. */
  readonly output_tokens_left: number | null;
  /** Of its delegation's own money. */
  readonly spent: Pusd | null;
}

interface TurnTally {
  llm_calls: number;
  tool_calls: number;
  input_tokens: number;
  output_tokens: number;
  cached_input_tokens: number;
  cache_creation_input_tokens: number;
  cost_pusd: Pusd;
}

/** The part of a turn that is fixed when it is admitted or resumed. */
export interface TurnPlan {
  readonly session: SessionRecord;
  readonly turn: TurnRecord;
  /** 1 for the session's first turn. */
  readonly turn_index: number;
  readonly routing: RoutingDecisionRecord;
  /** The tools at its start; its calls take their definition, checks and implementation from here. */
  readonly toolset: ToolSet;
  /** Offered for the whole turn, in wire order. */
  readonly tools: readonly ToolDefinition[];
  readonly wire_tools: readonly WireTool[];
  readonly scope: AbortController;
  readonly signal: AbortSignal;
  /** Aborted when the turn is to answer with what it has (20 §3). */
  readonly conclusion: AbortController;
  readonly started_event_id: EventId;
  readonly started_monotonic: number;
  readonly worker: WorkerRun | null;
  /** Clocks that pause while an approval of this turn is open: its worker's and every ancestor's. */
  readonly clocks: readonly WorkerClock[];
  readonly tree: DelegationTree;
  /** Limits of the delegations above this turn: its own worker's and every ancestor's. */
  readonly caps: readonly DelegationCap[];
  /** Calls that had started before a restart; empty in a turn that runs for the first time. */
  readonly called: ReadonlyMap<ToolUseId, StartedCall>;
  /** Resumed after a restart or a pause. */
  readonly resumed: boolean;
}

/** The turn's progress; only the functions below change it. */
export interface TurnProgress {
  /** The session's messages, oldest first, this turn's appended as they are stored. */
  readonly history: StoredMessage[];
  /** The session's checkpoints, oldest first; each change makes a new list. */
  checkpoints: readonly Checkpoint[];
  /** Set once the provider rejected a request that was estimated to fit, and room was made for it; done once per turn. */
  overflow_answered: boolean;
  /** The next model call, prepared in the previous step, and announced there if no limit has to be checked first. Null once sent. */
  next_call: { readonly prepared: ModelRequest; readonly started: EventId | null } | null;
  /** Parent of the next `llm.call_started`. */
  cause: EventId;
  stop_reason: StopReason | null;
  /** The event that held the newest tool calls. */
  call_event_id: EventId | null;
  final_message_id: MessageId | null;
  context_request: InsufficientContextRequest | null;
  limit: LimitReached | null;
  /** The message that asks for the last answer, once it is in the history. */
  conclusion_message: MessageId | null;
  /** A limit was warned about, and no tool result has stated it yet. */
  budget_warned: boolean;
  /** The refusal that ended the turn. */
  refusal: BudgetRefusal | null;
  /** The models that the approval of a bill requires, by delegation. */
  readonly terms: Map<ToolUseId, DelegationTerms>;
}

/** Tokens, calls and money that the turn has used so far. */
export interface TurnCounts {
  readonly tally: TurnTally;
}

/** The model of the turn. When an interrupted turn is resumed, it may no longer be configured. */
export interface ServingModel {
  readonly model: ModelEntry;
  readonly adapter: ProviderAdapter;
}

/** The fields that ending a turn needs: all except the model. */
export interface TurnBase extends TurnPlan, TurnProgress, TurnCounts {}

export interface TurnRun extends TurnBase, ServingModel {}

export function newTally(): TurnTally {
  return {
    llm_calls: 0,
    tool_calls: 0,
    input_tokens: 0,
    output_tokens: 0,
    cached_input_tokens: 0,
    cache_creation_input_tokens: 0,
    cost_pusd: ZERO_PUSD,
  };
}

/** The fields of a turn in a log line. */
export function logFields({ session, turn }: TurnRun): { readonly session_id: string; readonly turn_id: string } {
  return { session_id: session.id, turn_id: turn.id };
}

/** How a turn ended, for a caller in this process. */
export type TurnEnd =
  | { readonly status: 'completed'; readonly stop_reason: NonNullable<TurnRecord['stop_reason']> }
  | { readonly status: 'cancelled'; readonly reason: NonNullable<TurnRecord['cancel_reason']> }
  | { readonly status: 'failed'; readonly message: string }
  /** Interrupted, without a terminal event. */
  | { readonly status: 'interrupted'; readonly reason: 'restart' | 'budget' }
  /** Another node owns the tree and continues there. */
  | { readonly status: 'lost' };

// The functions that change a turn's progress, each called directly after the step is stored.

/** The tally with one more model call in it. */
export function addToTally(tally: TurnTally, usage: Usage, cost: Pusd): TurnTally {
  return {
    llm_calls: tally.llm_calls + 1,
    tool_calls: tally.tool_calls,
    input_tokens: tally.input_tokens + usage.input_tokens,
    output_tokens: tally.output_tokens + usage.output_tokens,
    cached_input_tokens: tally.cached_input_tokens + usage.cached_input_tokens,
    cache_creation_input_tokens: tally.cache_creation_input_tokens + usage.cache_creation_input_tokens,
    cost_pusd: (tally.cost_pusd + cost) as Pusd,
  };
}

/** Adds a settled model call to the turn's figures; they equal the ledger's because both come from the same usage. */
export function countModelCall(run: TurnRun, usage: Usage, cost: Pusd): void {
  Object.assign(run.tally, addToTally(run.tally, usage, cost));
  if (run.worker !== null) run.tree.workers_pusd = sumPusd([run.tree.workers_pusd, cost]);
  if (run.worker?.output_tokens_left != null) run.worker.output_tokens_left -= usage.output_tokens;
}

/** A complete answer. `settled` is how many of its tool calls were settled with it, `last` the event of the last of them. */
export function recordAnswer(
  run: TurnRun,
  message: StoredMessage,
  how: {
    readonly stop_reason: StopReason;
    readonly event: EventId;
    readonly settled: number;
    readonly last: EventId;
  },
): void {
  run.history.push(message);
  run.final_message_id = message.id;
  run.stop_reason = how.stop_reason;
  run.call_event_id = how.event;
  if (how.settled === 0) return;
  run.cause = how.last;
  recordSettledCalls(run, how.settled);
}

/** The partial answer of a call that was cut off. */
export function recordPartialAnswer(run: TurnRun, message: StoredMessage): void {
  run.history.push(message);
  run.final_message_id = message.id;
}

/** @param event the newest of their terminal events, where the next model call is to follow from it */
export function recordSettledCalls(run: TurnBase, count: number, event: EventId | null = null): void {
  run.tally.tool_calls += count;
  // Two calls that settle at the same time may arrive here in another order than they were stored.
  if (event !== null && event > run.cause) run.cause = event;
}

export function recordMessages(run: TurnBase, messages: readonly StoredMessage[]): void {
  run.history.push(...messages);
}

/** Messages for the turn. @param event the `turn.steered` of the last of them, which the next call follows from */
export function recordInputs(run: TurnBase, messages: readonly StoredMessage[], event: EventId): void {
  recordMessages(run, messages);
  run.cause = event;
}

export function recordCheckpoint(run: TurnRun, checkpoint: Checkpoint): void {
  run.checkpoints = [...run.checkpoints, checkpoint];
}

export function markOverflowAnswered(run: TurnRun): void {
  run.overflow_answered = true;
}

export function setNextCall(run: TurnRun, call: NonNullable<TurnRun['next_call']>): void {
  run.next_call = call;
}

/** Takes the call that was prepared ahead. */
export function takeNextCall(run: TurnRun): TurnRun['next_call'] {
  const call = run.next_call;
  run.next_call = null;
  return call;
}

export function recordContextRequest(run: TurnRun, request: InsufficientContextRequest): void {
  run.context_request = request;
}

/** The message that asks for the last answer. A call that was prepared without it is not sent. */
export function recordConclusion(run: TurnRun, message: StoredMessage): void {
  run.history.push(message);
  run.conclusion_message = message.id;
  run.next_call = null;
}

export function recordLimit(run: TurnRun, limit: LimitReached | null): void {
  run.limit = limit;
}

export function recordRefusal(run: TurnRun, refusal: BudgetRefusal): void {
  run.refusal = refusal;
}
