// The locals of one running turn: what it was admitted with, and what it has done so far. Dies with the turn.

import type { LimitReached } from '#core/policy/turn-machine.ts';
import type { ProviderAdapter } from '#core/ports/provider.ts';
import type { ToolSet } from '#core/ports/tool.ts';
import type { Checkpoint } from '#protocol/context/checkpoint.ts';
import type { InsufficientContextRequest } from '#protocol/delegate.ts';
import type { EventId, MessageId, ToolUseId } from '#protocol/ids.ts';
import type { RoutingDecisionRecord, StopReason, StoredMessage } from '#protocol/message.ts';
import type { ModelEntry } from '#protocol/model.ts';
import type { WireTool } from '#protocol/model-request.ts';
import { type Pusd, ZERO_PUSD } from '#protocol/money.ts';
import type { SessionRecord } from '#protocol/session.ts';
import type { JsonSchema, ToolDefinition } from '#protocol/tool.ts';
import type { TurnRecord } from '#protocol/turn.ts';
import type { ModelRequest } from './model-request.ts';
import type { BudgetRefusal, DelegationCap } from './reservations.ts';
import type { StartedCall } from './tool-results.ts';
import type { WorkerClock } from './worker-clock.ts';

/** What the delegations of one top-level turn share, descendants' included (04 §10). */
export interface DelegationTree {
  delegations: number;
}

/** What a worker's turns share. */
export interface WorkerRun {
  readonly tool_use_id: ToolUseId;
  readonly task: string;
  /** Files that its planner referred it to. */
  readonly files: readonly string[];
  /** Slot 5's candidate and why it proposes. */
  readonly tier_model: string | null;
  readonly tier_reason: string;
  readonly output_schema: JsonSchema | null;
  /** What is left of `max_tokens`; null = no cap. */
  output_tokens_left: number | null;
  readonly clock: WorkerClock;
}

export interface TurnTally {
  llm_calls: number;
  tool_calls: number;
  input_tokens: number;
  output_tokens: number;
  cached_input_tokens: number;
  cache_creation_input_tokens: number;
  cost_pusd: Pusd;
}

export interface TurnRun {
  readonly session: SessionRecord;
  readonly turn: TurnRecord;
  /** 1 for the session's first turn. */
  readonly turn_index: number;
  readonly model: ModelEntry;
  readonly adapter: ProviderAdapter;
  readonly routing: RoutingDecisionRecord;
  /** What there was at its start; its calls take their definition, checks and work from here. */
  readonly toolset: ToolSet;
  /** Offered for the whole turn, in wire order. */
  readonly tools: readonly ToolDefinition[];
  readonly wire_tools: readonly WireTool[];
  readonly scope: AbortController;
  readonly signal: AbortSignal;
  readonly started_event_id: EventId;
  readonly started_monotonic: number;
  readonly worker: WorkerRun | null;
  /** Clocks that stand still while an approval of this turn is open: its worker's and every ancestor's. */
  readonly clocks: readonly WorkerClock[];
  readonly tree: DelegationTree;
  /** Money caps of the delegations this turn works under, its own worker's and every ancestor's. */
  readonly caps: readonly DelegationCap[];
  /** The session's messages, oldest first, this turn's appended as they are stored. */
  readonly history: StoredMessage[];
  /** Of the session, oldest first; the list is made anew with each. */
  checkpoints: readonly Checkpoint[];
  /** The provider found a request too large that was thought to fit, and room was made for it: once a turn. */
  overflow_answered: boolean;
  readonly tally: TurnTally;
  /** Calls that had started before a restart; empty in a turn that runs for the first time. */
  readonly called: ReadonlyMap<ToolUseId, StartedCall>;
  /** Taken up again after a restart or a pause. */
  readonly resumed: boolean;
  /** Prepared with the step before it, and announced there where no limit has to be asked first; null once it is made. */
  next_call: { readonly prepared: ModelRequest; readonly started: EventId | null } | null;
  /** Parent of the next `llm.call_started`. */
  cause: EventId;
  stop_reason: StopReason | null;
  /** The event that held the newest tool calls. */
  call_event_id: EventId | null;
  final_message_id: MessageId | null;
  context_request: InsufficientContextRequest | null;
  limit: LimitReached | null;
  /** A limit was warned about, and no tool result has said so yet. */
  budget_warned: boolean;
  /** The refusal that ended the turn. */
  refusal: BudgetRefusal | null;
}

/** What closing a turn needs: everything but the model, which may be gone by then. */
export type TurnBase = Omit<TurnRun, 'model' | 'adapter'>;

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

/** A turn as a line of the log names it. */
export function named({ session, turn }: TurnRun): { readonly session_id: string; readonly turn_id: string } {
  return { session_id: session.id, turn_id: turn.id };
}

/** How a turn ended, for whoever waits for it in this process. */
export type TurnEnd =
  | { readonly status: 'completed'; readonly stop_reason: NonNullable<TurnRecord['stop_reason']> }
  | { readonly status: 'cancelled'; readonly reason: NonNullable<TurnRecord['cancel_reason']> }
  | { readonly status: 'failed'; readonly message: string }
  /** Put down without a terminal event. */
  | { readonly status: 'interrupted'; readonly reason: 'restart' | 'budget' }
  /** The tree is another node's: it goes on there. */
  | { readonly status: 'lost' };
