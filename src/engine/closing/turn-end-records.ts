// What every end of a turn stores of it: its row and its figures (00 §3 step 7).

import type { EventDraft } from '../../domain/event.ts';
import { draft } from '../../domain/event.ts';
import type { TurnStopReason } from '../../domain/turn.ts';
import { fromPusd } from '../../kernel/money.ts';
import type { TurnOutcome, Write } from '../../ports/journal.ts';
import type { Engine } from '../state/engine.ts';
import type { TurnBase } from '../state/turn-run.ts';

export type Ending = Partial<TurnOutcome> & { readonly status: TurnOutcome['status'] };

/**
 * What completes a turn with nothing left to answer, for the batch of the call that ended it.
 * @param run its figures as they will be after that call
 */
export function completion(
  engine: Engine,
  run: TurnBase,
  stopReason: TurnStopReason,
): { readonly write: Write; readonly event: EventDraft } {
  const seconds = wallTime(engine, run);
  return {
    write: turnEnd(engine, run, { status: 'completed', stop_reason: stopReason }, seconds),
    event: completed(run, stopReason, seconds),
  };
}

export function completed(run: TurnBase, stopReason: TurnStopReason, seconds: number): EventDraft {
  const { tally } = run;
  return draft({
    type: 'turn.completed',
    session_id: run.session.id,
    turn_id: run.turn.id,
    parent: run.started_event_id,
    payload: {
      stop_reason: stopReason,
      llm_call_count: tally.llm_calls,
      tool_call_count: tally.tool_calls,
      total_input_tokens: tally.input_tokens,
      total_output_tokens: tally.output_tokens,
      total_cached_input_tokens: tally.cached_input_tokens,
      total_cache_creation_input_tokens: tally.cache_creation_input_tokens,
      total_cost_usd: fromPusd(tally.cost_pusd),
      wall_time_seconds: seconds,
      parent_session_id: run.session.parent_session_id,
    },
  });
}

export function turnEnd(engine: Engine, run: TurnBase, ending: Ending, seconds: number): Write {
  return {
    kind: 'turn.end',
    turn_id: run.turn.id,
    session_id: run.session.id,
    outcome: {
      stop_reason: null,
      cancel_reason: null,
      error_code: null,
      error_class: null,
      error_message: null,
      retryable: null,
      ...ending,
      llm_call_count: run.tally.llm_calls,
      tool_call_count: run.tally.tool_calls,
      wall_time_seconds: seconds,
      final_message_id: run.final_message_id,
      ended_at: engine.clock.now(),
    },
  };
}

export function wallTime(engine: Engine, run: TurnBase): number {
  return Math.max(0, Math.round(engine.clock.monotonic() - run.started_monotonic) / 1000);
}
