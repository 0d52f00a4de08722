// The end of a turn as it is stored: its row and its one terminal event. Every end of every turn comes through here.

import type { TurnOutcome, Write } from '#core/ports/journal.ts';
import type { Cancelled } from '#protocol/abort.ts';
import { draft, type EventDraft } from '#protocol/event.ts';
import { fromPusd } from '#protocol/money.ts';
import type { ErrorClass } from '#protocol/scalars.ts';
import type { TurnErrorCode, TurnStopReason } from '#protocol/turn.ts';
import { type Engine, safeText } from '../state/engine.ts';
import type { TurnBase } from '../state/turn-run.ts';

/** How a turn ends. */
export type Ending =
  | { readonly status: 'completed'; readonly stop_reason: TurnStopReason }
  | { readonly status: 'cancelled'; readonly by: Cancelled }
  | {
      readonly status: 'failed';
      readonly error_code: TurnErrorCode;
      /** As it came: what must not leave is taken out here. */
      readonly message: string;
      readonly error_class: ErrorClass | null;
      readonly retryable: boolean;
    };

/**
 * The write and the event that end the turn, for one batch.
 * @param run its figures as they are once that batch is stored
 * @param unread messages sent to it that it has not read
 */
export function turnEnd(
  engine: Engine,
  run: TurnBase,
  ending: Ending,
  unread: number,
): { readonly write: Write; readonly event: EventDraft } {
  const seconds = Math.max(0, Math.round(engine.clock.monotonic() - run.started_monotonic) / 1000);
  const outcome: TurnOutcome = {
    status: ending.status,
    stop_reason: ending.status === 'completed' ? ending.stop_reason : null,
    cancel_reason: ending.status === 'cancelled' ? ending.by.reason : null,
    error_code: null,
    error_class: null,
    error_message: null,
    retryable: null,
    ...(ending.status === 'failed' && {
      error_code: ending.error_code,
      error_class: ending.error_class,
      error_message: safeText(engine, ending.message, run.session.workspace_path),
      retryable: ending.retryable,
    }),
    llm_call_count: run.tally.llm_calls,
    tool_call_count: run.tally.tool_calls,
    wall_time_seconds: seconds,
    final_message_id: run.final_message_id,
    ended_at: engine.clock.now(),
  };
  return {
    write: { kind: 'turn.end', turn_id: run.turn.id, session_id: run.session.id, outcome, unread_inputs: unread },
    event: terminal(run, ending, outcome, unread),
  };
}

function terminal(run: TurnBase, ending: Ending, outcome: TurnOutcome, unread_inputs: number): EventDraft {
  const { tally, session } = run;
  const place = { session_id: session.id, turn_id: run.turn.id, parent: run.started_event_id };
  const partial = {
    partial_llm_calls: tally.llm_calls,
    partial_tool_calls: tally.tool_calls,
    total_cost_usd: fromPusd(tally.cost_pusd),
    parent_session_id: session.parent_session_id,
    unread_inputs,
  };
  switch (ending.status) {
    case 'completed':
      return draft({
        ...place,
        type: 'turn.completed',
        payload: {
          stop_reason: ending.stop_reason,
          llm_call_count: tally.llm_calls,
          tool_call_count: tally.tool_calls,
          total_input_tokens: tally.input_tokens,
          total_output_tokens: tally.output_tokens,
          total_cached_input_tokens: tally.cached_input_tokens,
          total_cache_creation_input_tokens: tally.cache_creation_input_tokens,
          total_cost_usd: fromPusd(tally.cost_pusd),
          wall_time_seconds: outcome.wall_time_seconds ?? 0,
          parent_session_id: session.parent_session_id,
          unread_inputs,
        },
      });
    case 'cancelled':
      return draft({
        ...place,
        type: 'turn.cancelled',
        actor: ending.by.reason === 'user_cancel' ? 'user' : 'system',
        payload: { reason: ending.by.reason, reason_detail: ending.by.detail, ...partial },
      });
    case 'failed':
      return draft({
        ...place,
        type: 'turn.failed',
        payload: {
          error_code: ending.error_code,
          error_message: outcome.error_message ?? '',
          retryable: ending.retryable,
          error_class: ending.error_class,
          ...partial,
        },
      });
  }
}
