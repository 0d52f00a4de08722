// Payloads of `llm.*`; `cost_usd` of `llm.call_completed` is the source of every cost figure (02 §9.4).
import { z } from 'zod';
import { CountSchema, ErrorClassSchema, MessageIdSchema, RequestIdSchema, SessionIdSchema } from '../scalars.ts';
import { UsageSchema } from '../usage.ts';

export const PurposeSchema = z.enum(['turn', 'compaction', 'gateway']);
export type Purpose = z.infer<typeof PurposeSchema>;

export const LlmCallStartedSchema = z.strictObject({
  model: z.string(),
  provider: z.string(),
  estimated_input_tokens: CountSchema,
  request_id: RequestIdSchema,
  call_index: z.int().min(1),
  purpose: PurposeSchema,
  is_worker: z.boolean(),
  parent_session_id: SessionIdSchema.nullable(),
  root_session_id: SessionIdSchema,
});

export const LlmCallCompletedSchema = UsageSchema.extend({
  model: z.string(),
  provider: z.string(),
  stop_reason: z.enum(['end_turn', 'max_tokens', 'stop_sequence', 'tool_use', 'cancelled']),
  error_class: ErrorClassSchema.nullable(),
  produced_tool_calls: CountSchema,
  produced_thinking_blocks: CountSchema,
  parent_session_id: SessionIdSchema.nullable(),
  is_worker: z.boolean(),
  root_session_id: SessionIdSchema,
  request_id: RequestIdSchema,
  message_id: MessageIdSchema.nullable(),
  purpose: PurposeSchema,
});
export type LlmCallCompleted = z.infer<typeof LlmCallCompletedSchema>;

export const LlmCallFailedSchema = z.strictObject({
  model: z.string(),
  provider: z.string(),
  error_class: ErrorClassSchema,
  error_message_redacted: z.string(),
  retry_count: CountSchema,
  latency_ms: CountSchema,
  request_id: RequestIdSchema,
  is_worker: z.boolean(),
  parent_session_id: SessionIdSchema.nullable(),
  root_session_id: SessionIdSchema,
});
