// Payloads of `tool.*` (02 §9.5).
import { z } from 'zod';
import {
  ConfirmationIdSchema,
  CountSchema,
  SessionIdSchema,
  Sha256Schema,
  SideEffectsSchema,
  TimeSchema,
  ToolUseIdSchema,
} from '../scalars.ts';
import { ToolErrorClassSchema } from '../tool.ts';

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
});
