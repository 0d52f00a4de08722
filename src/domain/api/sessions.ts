// What is sent to and answered by `/sessions` (05 §3.1).
import { z } from 'zod';
import {
  ApprovalModeSchema,
  OnReachedSchema,
  SessionIdSchema,
  TimeSchema,
  TurnIdSchema,
  UsdLimitSchema,
  UsdSchema,
  WorkspacePathSchema,
} from '../scalars.ts';
import { SessionSchema } from '../session.ts';

export const CreateSessionBody = z.strictObject({
  workspace_path: WorkspacePathSchema,
  initial_active_model: z.string().min(1).nullable().default(null),
  max_cost_usd: UsdLimitSchema.nullable().default(null),
  on_reached: OnReachedSchema.nullable().default(null),
  approval_mode: ApprovalModeSchema.nullable().default(null),
});

export const UpdateSessionBody = z
  .strictObject({
    active_model: z.string().min(1).nullable().optional(),
    max_cost_usd: UsdLimitSchema.nullable().optional(),
    on_reached: OnReachedSchema.optional(),
  })
  .refine((body) => Object.values(body).some((value) => value !== undefined), {
    message: 'must set at least one of active_model, max_cost_usd, on_reached',
  });

export const UpdateSessionReply = z.object({
  id: SessionIdSchema,
  active_model: z.string().nullable(),
  swap_queued: z.boolean(),
  swap_queued_until_turn: TurnIdSchema.nullable(),
  max_cost_usd: UsdSchema.nullable(),
  on_reached: OnReachedSchema,
});

export const EndSessionReply = z.object({
  id: SessionIdSchema,
  ended_at: TimeSchema,
  purged: z.boolean(),
  purged_session_count: z.int().optional(),
});

export const SessionListReply = z.object({ sessions: z.array(SessionSchema), next_cursor: z.string().nullable() });
