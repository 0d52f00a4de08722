// Payloads of `turn.*` (02 §9.2).
import { z } from 'zod';
import {
  CountSchema,
  ErrorClassSchema,
  MessageIdSchema,
  SessionIdSchema,
  Sha256Schema,
  UlidSchema,
  UsdSchema,
} from '../scalars.ts';
import { CancelReasonSchema, InterruptedReasonSchema, TurnErrorCodeSchema, TurnStopReasonSchema } from '../turn.ts';

export const TurnStartedSchema = z.strictObject({
  user_message_hash: Sha256Schema,
  user_message_id: MessageIdSchema,
  estimated_input_tokens: CountSchema,
  has_images: z.boolean(),
  has_tool_calls_in_history: z.boolean(),
});

export const TurnCompletedSchema = z.strictObject({
  stop_reason: TurnStopReasonSchema,
  llm_call_count: CountSchema,
  tool_call_count: CountSchema,
  total_input_tokens: CountSchema,
  total_output_tokens: CountSchema,
  total_cached_input_tokens: CountSchema,
  total_cache_creation_input_tokens: CountSchema,
  total_cost_usd: UsdSchema,
  wall_time_seconds: z.number().min(0),
  parent_session_id: SessionIdSchema.nullable(),
  unread_inputs: CountSchema,
});

export const TurnCancelledSchema = z.strictObject({
  reason: CancelReasonSchema,
  reason_detail: z.string().max(200).nullable(),
  partial_llm_calls: CountSchema,
  partial_tool_calls: CountSchema,
  total_cost_usd: UsdSchema,
  parent_session_id: SessionIdSchema.nullable(),
  unread_inputs: CountSchema,
});

export const TurnFailedSchema = z.strictObject({
  error_code: TurnErrorCodeSchema,
  error_message: z.string(),
  retryable: z.boolean(),
  error_class: ErrorClassSchema.nullable(),
  partial_llm_calls: CountSchema,
  partial_tool_calls: CountSchema,
  total_cost_usd: UsdSchema,
  parent_session_id: SessionIdSchema.nullable(),
  unread_inputs: CountSchema,
});

export const TurnResumedSchema = z.strictObject({
  resumed_at_call_index: CountSchema,
  reused_llm_calls: CountSchema,
  reused_tool_calls: CountSchema,
  interrupted_reason: InterruptedReasonSchema,
});

/** A message that joined the running turn (20 §4). */
export const TurnSteeredSchema = z.strictObject({
  message_id: MessageIdSchema,
  input_id: UlidSchema,
  /** From its arrival until it was read. */
  waited_ms: CountSchema,
});
