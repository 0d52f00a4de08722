// Payloads of `session.*` (02 §9.1).
import { z } from 'zod';
import {
  ApprovalModeSchema,
  CountSchema,
  DoorSchema,
  SessionIdSchema,
  Sha256Schema,
  ToolUseIdSchema,
  UsdSchema,
  WorkerOriginSchema,
} from '../scalars.ts';
import { DispositionSchema } from '../session.ts';

export const SessionCreatedSchema = z.strictObject({
  workspace_path: z.string(),
  workspace_hash: Sha256Schema,
  initial_active_model: z.string().nullable(),
  routing_policy_version: Sha256Schema.nullable(),
  parent_session_id: SessionIdSchema.nullable(),
  parent_tool_use_id: ToolUseIdSchema.nullable(),
  is_worker: z.boolean(),
  root_session_id: SessionIdSchema,
  delegation_depth: CountSchema,
  worker_name: z.string().nullable(),
  worker_digest: z.string().nullable(),
  worker_origin: WorkerOriginSchema.nullable(),
  approval_mode: ApprovalModeSchema,
  door: DoorSchema,
  client: z.string().nullable(),
});

export const SessionEndedSchema = z.strictObject({
  disposition: DispositionSchema,
  turn_count: CountSchema,
  total_cost_usd: UsdSchema,
  duration_seconds: z.number().min(0),
});
