// Payloads of `turn.*` (02 §9.2).
import { z } from 'zod';
import {
  OutageScopeSchema,
  OutageTriggerSchema,
  PolicyEvaluationSchema,
  RefusalSchema,
  RouteFactsSchema,
} from '../route.ts';
import {
  CountSchema,
  EffortSchema,
  ErrorClassSchema,
  MessageIdSchema,
  RequestIdSchema,
  SessionIdSchema,
  Sha256Schema,
  UlidSchema,
  UsdSchema,
} from '../scalars.ts';
import { CancelReasonSchema, InterruptedReasonSchema, TurnErrorCodeSchema, TurnStopReasonSchema } from '../turn.ts';
import { billFields, UsageSchema } from '../usage.ts';

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
  /** Its last call was made because it was concluded (20 §3). */
  concluded: z.boolean(),
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

// Payloads of `route.*` and `routing.*` (02 §9.3).

export const RouteDecidedSchema = z.strictObject({
  chosen_model: z.string(),
  /** Null when refused, and where the model has no efforts (22 §1). */
  chosen_effort: EffortSchema.nullable(),
  winner_index: z.int().min(-1).max(6),
  elapsed_ms: z.number().min(0),
  refused: RefusalSchema.nullable(),
  fallback_costlier: z.boolean(),
  chain: z.array(PolicyEvaluationSchema).length(7),
  /** The name that a client of the gateway asked for; null elsewhere. */
  requested_model: z.string().nullable(),
  /** Null for a decision of a version that noted none. */
  facts: RouteFactsSchema.nullable(),
});

export const RoutingPolicyInvalidSchema = z.strictObject({
  policy_path: z.string(),
  errors: z.array(z.string()),
  using_last_known_good: z.boolean(),
});

export const ProviderUnavailableSchema = z.strictObject({
  provider: z.string(),
  scope: OutageScopeSchema,
  models_affected: z.array(z.string()),
  trigger_reason: OutageTriggerSchema,
});

export const ProviderRecoveredSchema = z.strictObject({
  provider: z.string(),
  scope: OutageScopeSchema,
  models_recovered: z.array(z.string()),
  downtime_seconds: z.number().min(0),
});

// Payloads of `llm.*`; `cost_usd` of `llm.call_completed` is the source of every cost figure (02 §9.4).

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
  ...billFields,
  model: z.string(),
  provider: z.string(),
  /** The effort of the call; null where the model has none. */
  effort: EffortSchema.nullable(),
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

// Payload of `budget.*` (02 §9.10).

export const BudgetSchema = z.strictObject({
  scope: z.enum(['session', 'delegation', 'experiment', 'owner', 'day', 'key']),
  limit_usd: UsdSchema,
  spent_usd: UsdSchema,
  reserved_usd: UsdSchema,
  needed_usd: UsdSchema,
  model: z.string(),
  root_session_id: SessionIdSchema,
});
