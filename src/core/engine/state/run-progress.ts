// What a turn's run comes to as it goes on: the one place that changes it, each time right behind what was stored.

import type { LimitReached } from '#core/policy/turn-machine.ts';
import type { Checkpoint } from '#protocol/context/checkpoint.ts';
import type { InsufficientContextRequest } from '#protocol/delegate.ts';
import type { EventId } from '#protocol/ids.ts';
import type { StopReason, StoredMessage } from '#protocol/message.ts';
import type { Pusd } from '#protocol/money.ts';
import type { Usage } from '#protocol/usage.ts';
import type { BudgetRefusal } from './reservations.ts';
import type { TurnBase, TurnRun, TurnTally } from './turn-run.ts';

/** The tally with one more model call in it. */
export function counted(tally: TurnTally, usage: Usage, cost: Pusd): TurnTally {
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
export function modelCallCounted(run: TurnRun, usage: Usage, cost: Pusd): void {
  Object.assign(run.tally, counted(run.tally, usage, cost));
  if (run.worker?.output_tokens_left != null) run.worker.output_tokens_left -= usage.output_tokens;
}

/** A whole answer. `settled` is how many of its tool calls were settled with it, `last` the event of the last of them. */
export function answerStored(
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
  toolCallsSettled(run, how.settled);
}

/** What there was of an answer that was cut off. */
export function partialAnswerStored(run: TurnRun, message: StoredMessage): void {
  run.history.push(message);
  run.final_message_id = message.id;
}

/** @param event the newest of their terminal events, where the next model call is to follow from it */
export function toolCallsSettled(run: TurnBase, count: number, event: EventId | null = null): void {
  run.tally.tool_calls += count;
  // Two that settle together may be heard of in another order than they are stored in.
  if (event !== null && event > run.cause) run.cause = event;
}

export function messagesStored(run: TurnBase, messages: readonly StoredMessage[]): void {
  run.history.push(...messages);
}

/** Messages that were sent to the turn. @param event the `turn.steered` of the last of them, which the next call follows from */
export function inputsRead(run: TurnBase, messages: readonly StoredMessage[], event: EventId): void {
  messagesStored(run, messages);
  run.cause = event;
}

export function compacted(run: TurnRun, checkpoint: Checkpoint): void {
  run.checkpoints = [...run.checkpoints, checkpoint];
}

export function overflowAnswered(run: TurnRun): void {
  run.overflow_answered = true;
}

export function nextCallPrepared(run: TurnRun, call: NonNullable<TurnRun['next_call']>): void {
  run.next_call = call;
}

/** The call that was prepared ahead, to be made now. */
export function takeNextCall(run: TurnRun): TurnRun['next_call'] {
  const call = run.next_call;
  run.next_call = null;
  return call;
}

export function contextRequested(run: TurnRun, request: InsufficientContextRequest): void {
  run.context_request = request;
}

export function limitReached(run: TurnRun, limit: LimitReached | null): void {
  run.limit = limit;
}

export function refused(run: TurnRun, refusal: BudgetRefusal): void {
  run.refusal = refusal;
}
