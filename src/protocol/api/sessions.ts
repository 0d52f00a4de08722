// What is sent to and answered by `/sessions` (05 §3.1).
import { z } from 'zod';
import {
  ApprovalModeSchema,
  DoorSchema,
  OnReachedSchema,
  SessionIdSchema,
  TimeSchema,
  TurnIdSchema,
  UsdLimitSchema,
  UsdSchema,
  WorkspacePathSchema,
} from '../scalars.ts';
import { SessionSchema } from '../session.ts';
import { WorkerNameSchema } from '../worker/definition.ts';

const PRINTABLE = /^[\x20-\x7e]{1,200}$/;

export const CreateSessionBody = z
  .strictObject({
    workspace_path: WorkspacePathSchema,
    initial_active_model: z.string().min(1).nullable().default(null),
    max_cost_usd: UsdLimitSchema.nullable().default(null),
    on_reached: OnReachedSchema.nullable().default(null),
    approval_mode: ApprovalModeSchema.nullable().default(null),
    /** Of the adapter that opens it; the gateway opens its own. */
    door: DoorSchema.exclude(['gateway']).default('api'),
    /** What the program calls itself that is behind the door. */
    client: z.string().regex(PRINTABLE, 'must be 1 to 200 printable ASCII characters').nullable().default(null),
    /** The client's own name for the session: where one has it already, that one is the answer. */
    client_ref: z.string().regex(PRINTABLE, 'must be 1 to 200 printable ASCII characters').nullable().default(null),
    /** The named worker that the session is; it may call whom its definition says. */
    worker: WorkerNameSchema.nullable().default(null),
    /** The named workers that its planner may call; null = those of the configuration. */
    allow_workers: z.array(z.string().min(1).max(128)).max(1000).nullable().default(null),
  })
  .refine(({ worker, allow_workers }) => worker === null || allow_workers === null, {
    path: ['allow_workers'],
    message: 'belongs to a session without a worker: the definition says whom a worker may call',
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
