// Payloads of `tool.*` (02 §9.5).
import { z } from 'zod';
import {
  CancelScopeSchema,
  ContextModeSchema,
  FailureModeSchema,
  InsufficientContextRequestSchema,
} from '../delegate.ts';
import { IsolationSchema, WorkerChangesSchema } from '../file-change.ts';
import { PersonRefSchema } from '../people/person.ts';
import {
  ConfirmationIdSchema,
  CountSchema,
  MessageIdSchema,
  SessionIdSchema,
  Sha256Schema,
  SideEffectsSchema,
  TierSchema,
  TimeSchema,
  ToolUseIdSchema,
  UsdSchema,
  WorkerOriginSchema,
} from '../scalars.ts';
import { EntrySchema, ToolErrorClassSchema } from '../tool.ts';

export const ToolCalledSchema = z.strictObject({
  tool_use_id: ToolUseIdSchema,
  tool_name: z.string(),
  input_hash: Sha256Schema,
  input_size_bytes: CountSchema,
  side_effects: SideEffectsSchema,
});

export const ToolCompletedSchema = z.strictObject({
  tool_use_id: ToolUseIdSchema,
  success: z.boolean(),
  output_size_bytes: CountSchema,
  latency_ms: CountSchema,
  files_modified: z.array(z.string()).nullable(),
  command_executed: z.string().nullable(),
});

export const ToolFailedSchema = z.strictObject({
  tool_use_id: ToolUseIdSchema,
  error_class: ToolErrorClassSchema,
  error_message: z.string().max(2000),
  latency_ms: CountSchema,
});

export const ToolInputInvalidSchema = z.strictObject({
  tool_use_id: ToolUseIdSchema,
  tool_name: z.string(),
  validation_errors: z.array(z.string()),
});

export const ToolConfirmationRequestedSchema = z.strictObject({
  /** One call, or all delegations of a message (21 §1). */
  kind: z.enum(['tool', 'delegations']),
  /** The delegations; `tool_use_id` is the first of them. */
  tool_use_ids: z.array(ToolUseIdSchema),
  tool_use_id: ToolUseIdSchema,
  tool_name: z.string(),
  side_effects: SideEffectsSchema,
  confirmation_request_id: ConfirmationIdSchema,
  input_summary: z.string(),
  projected_modifications: z.array(z.string()).nullable(),
  command_summary: z.string().nullable(),
  expires_at: TimeSchema,
  is_worker: z.boolean(),
  parent_session_id: SessionIdSchema.nullable(),
  root_session_id: SessionIdSchema,
  worker_name: z.string().nullable(),
  rule: z.string().nullable(),
  payload: z.record(z.string(), z.unknown()).nullable(),
  modifiable: z.boolean(),
  allowed_scopes: z.array(z.string()),
});
export type ToolConfirmationRequested = z.infer<typeof ToolConfirmationRequestedSchema>;

export const ToolConfirmationResolvedSchema = z.strictObject({
  tool_use_id: ToolUseIdSchema,
  confirmation_request_id: ConfirmationIdSchema,
  decision: z.enum(['approve', 'reject', 'modify', 'timeout', 'cancelled']),
  scope: z.enum(['once', 'identical', 'always']).nullable(),
  resolved_by: z.enum(['user', 'policy']),
  /** The named token that answered (23 §4). */
  answered_by: PersonRefSchema.optional(),
});

// Payloads of `delegate.*`: they lie on the session and turn that made the call (02 §9.6).

export const DelegateStartedSchema = z.strictObject({
  tool_use_id: ToolUseIdSchema,
  worker_session_id: SessionIdSchema,
  tier: TierSchema.nullable(),
  resolved_model: z.string().nullable(),
  context_mode: ContextModeSchema,
  context_reference_count: CountSchema,
  task_size_tokens: CountSchema,
  allowed_tool_count: CountSchema.nullable(),
  dropped_tools: z.array(z.string()),
  worker_name: z.string().nullable(),
  worker_digest: z.string().nullable(),
  worker_origin: WorkerOriginSchema.nullable(),
  entry: EntrySchema,
  delegation_depth: CountSchema,
  attachment_count: CountSchema,
  attachment_total_bytes: CountSchema,
  max_cost_usd: UsdSchema.nullable(),
  /** What the worker was given (20 §2). */
  isolation: IsolationSchema,
});

/** The worker's real numbers, success or not. Events of earlier versions have no token counts; failed ones have none of them. */
const workerNumbers = {
  turn_count: CountSchema,
  llm_call_count: CountSchema,
  tool_call_count: CountSchema,
  input_tokens: CountSchema,
  output_tokens: CountSchema,
  wall_time_seconds: z.number().min(0),
};

export const DelegateCompletedSchema = z.strictObject({
  tool_use_id: ToolUseIdSchema,
  worker_session_id: SessionIdSchema,
  success: z.literal(true),
  output_size_bytes: CountSchema,
  worker_total_cost_usd: UsdSchema,
  pricing_version: z.string(),
  ...workerNumbers,
  model: z.string(),
  ...WorkerChangesSchema.shape,
});

export const DelegateFailedSchema = z.strictObject({
  tool_use_id: ToolUseIdSchema,
  worker_session_id: SessionIdSchema.nullable(),
  failure_mode: FailureModeSchema,
  error_message: z.string(),
  worker_total_cost_usd: UsdSchema,
  pricing_version: z.string(),
  ...workerNumbers,
  /** Null where no model was found, and in events of earlier versions. */
  model: z.string().nullable(),
  insufficient_context_request: InsufficientContextRequestSchema.nullable(),
  cancel_scope: CancelScopeSchema.nullable(),
  tier: TierSchema.nullable(),
  worker_name: z.string().nullable(),
  ...WorkerChangesSchema.shape,
});

/** The result of a background worker is in the history of its caller: as this message, or within this tool message (20 §9). */
export const DelegateDeliveredSchema = z.strictObject({
  worker_session_id: SessionIdSchema,
  message_id: MessageIdSchema,
  /** From the end of the worker. */
  waited_ms: CountSchema,
});

/** One run of a worker's check has ended (20 §10). */
export const DelegateCheckedSchema = z.strictObject({
  tool_use_id: ToolUseIdSchema,
  worker_session_id: SessionIdSchema,
  /** From 1. */
  attempt: z.int().min(1),
  check: z.string(),
  passed: z.boolean(),
  /** Null where it was stopped. */
  exit_code: z.int().nullable(),
  wall_time_seconds: z.number().min(0),
});
