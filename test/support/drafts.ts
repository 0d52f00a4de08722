// Events and deltas as they are given to the journal: valid by default, every field can be overridden.
import type { Transient } from '#protocol/delta.ts';
import type { LlmCallCompleted } from '#protocol/event/turn-events.ts';
import { draft, type EventDraft, type PayloadOf } from '#protocol/event.ts';
import { getProvider } from '#protocol/model.ts';
import type { SessionRecord } from '#protocol/session.ts';
import type { TurnRecord } from '#protocol/turn.ts';
import { buildPlainCost, NO_TOKENS, PLAIN_BILL } from '#protocol/usage.ts';
import { MODEL } from './messages.ts';
import type { Source } from './records.ts';

/** `routing.policy_invalid` on `system`: an event that needs nothing around it. */
export function systemEvent(label: string, over: Partial<EventDraft> = {}): EventDraft {
  return {
    ...draft({
      type: 'routing.policy_invalid',
      session_id: 'system',
      turn_id: null,
      parent: null,
      payload: { policy_path: label, errors: [], using_last_known_good: false },
    }),
    ...over,
  };
}

export function turnCompleted(turn: TurnRecord, over: Partial<PayloadOf<'turn.completed'>> = {}): EventDraft {
  return draft({
    type: 'turn.completed',
    session_id: turn.session_id,
    turn_id: turn.id,
    parent: null,
    payload: {
      stop_reason: 'end_turn',
      llm_call_count: 1,
      tool_call_count: 0,
      total_input_tokens: 0,
      total_output_tokens: 0,
      total_cached_input_tokens: 0,
      total_cache_creation_input_tokens: 0,
      total_cost_usd: '0',
      wall_time_seconds: 1.5,
      parent_session_id: null,
      unread_inputs: 0,
      concluded: false,
      ...over,
    },
  });
}

export function callCompleted(
  of: Source,
  session: SessionRecord,
  turn: TurnRecord | null,
  over: Partial<LlmCallCompleted> = {},
): EventDraft {
  return draft({
    type: 'llm.call_completed',
    session_id: session.id,
    turn_id: turn?.id ?? null,
    parent: null,
    payload: {
      model: MODEL,
      provider: getProvider(over.model ?? MODEL),
      effort: null,
      stop_reason: 'end_turn',
      error_class: null,
      produced_tool_calls: 0,
      produced_thinking_blocks: 0,
      parent_session_id: session.parent_session_id,
      is_worker: session.is_worker,
      root_session_id: session.root_session_id,
      request_id: of.ids.request(),
      message_id: null,
      purpose: 'turn',
      ...NO_TOKENS,
      input_tokens: 100,
      output_tokens: 7,
      ...PLAIN_BILL,
      ...buildPlainCost(over.cost_usd ?? '0.01'),
      pricing_version: 'A',
      priced: true,
      latency_ms: 250,
      ...over,
    },
  });
}

export function textDelta(session: SessionRecord, text: string): Transient {
  return {
    session_id: session.id,
    turn_id: null,
    timestamp: 0,
    delta: { type: 'text.delta', payload: { message_id: 'm', content_block_index: 0, text } },
  };
}
