// Bodies and replies of `/sessions` (05 §3.1).
import { z } from 'zod';
import { DelegationSchema } from '../delegate.ts';
import { PurposeSchema } from '../event/turn-events.ts';
import { AnyEventSchema } from '../event.ts';
import { ImageBlockSchema, MessageSchema, TextBlockSchema } from '../message.ts';
import { PersonRefSchema, ShareSchema } from '../people/person.ts';
import { PolicyEvaluationSchema } from '../route.ts';
import {
  ApprovalModeSchema,
  CountSchema,
  DoorSchema,
  EffortSchema,
  MessageIdSchema,
  OnReachedSchema,
  SessionIdSchema,
  Sha256Schema,
  TimeSchema,
  TurnIdSchema,
  UlidSchema,
  UsdLimitSchema,
  UsdSchema,
  WorkspacePathSchema,
} from '../scalars.ts';
import { SessionSchema } from '../session.ts';
import { plainText } from '../text/plain-text.ts';
import { TurnSchema, UserScoreSchema } from '../turn.ts';
import { billFields, UsageSchema } from '../usage.ts';
import { CostHistorySchema } from '../what-if/cost-ahead.ts';
import { WorkerNameSchema } from '../worker-definition.ts';

const PRINTABLE = /^[\x20-\x7e]{1,200}$/;

export const CreateSessionBody = z
  .strictObject({
    workspace_path: WorkspacePathSchema,
    initial_active_model: z.string().min(1).nullable().default(null),
    max_cost_usd: UsdLimitSchema.nullable().default(null),
    on_reached: OnReachedSchema.nullable().default(null),
    approval_mode: ApprovalModeSchema.nullable().default(null),
    /** Delegations of one message above these limits are confirmed before the first starts; null = as configured. */
    confirm_above_usd: UsdLimitSchema.nullable().default(null),
    confirm_above_workers: CountSchema.nullable().default(null),
    /** The door of the adapter that opens the session. The gateway opens sessions of its own. */
    door: DoorSchema.exclude(['gateway']).default('api'),
    /** The name that the client program gives itself. */
    client: z.string().regex(PRINTABLE, 'must be 1 to 200 printable ASCII characters').nullable().default(null),
    /** The client's own name for the session. A session that has the name already is returned. */
    client_ref: z.string().regex(PRINTABLE, 'must be 1 to 200 printable ASCII characters').nullable().default(null),
    /** The named worker that the session runs. It may call the workers that its definition allows. */
    worker: WorkerNameSchema.nullable().default(null),
    /** The named workers that the planner may call; null = the workers that the configuration allows. */
    allow_workers: z.array(z.string().min(1).max(128)).max(1000).nullable().default(null),
    /** What others may do with it (23 §1); null = as configured. */
    share: ShareSchema.nullable().default(null),
    /** The experiment that the session is a run of. Its limit covers all of its runs together. */
    experiment: z
      .strictObject({
        id: Sha256Schema,
        max_cost_usd: UsdLimitSchema,
        /** A folder of a git repository, of which the run works on a copy. */
        start_path: WorkspacePathSchema,
        /** The model of each tier, id or alias. */
        tiers: z
          .strictObject({ fast: z.string().min(1), balanced: z.string().min(1), deep: z.string().min(1) })
          .nullable()
          .default(null),
        /** False = without the tools that call workers. */
        delegate: z.boolean().default(true),
      })
      .nullable()
      .default(null),
    /** Store what the session needs to run again without a model: `metis case save` writes it to a folder. */
    record_case: z.boolean().default(false),
  })
  .refine(({ experiment, record_case }) => experiment === null || !record_case, {
    path: ['record_case'],
    message: 'must be false beside experiment, whose runs work on copies of their own',
  })
  .refine(({ worker, allow_workers }) => worker === null || allow_workers === null, {
    path: ['allow_workers'],
    message: 'belongs to a session without a worker: the definition of a worker lists the workers it may call',
  });

export const UpdateSessionBody = z
  .strictObject({
    active_model: z.string().min(1).nullable().optional(),
    max_cost_usd: UsdLimitSchema.nullable().optional(),
    on_reached: OnReachedSchema.optional(),
    /** Its owner and admins may change it. */
    share: ShareSchema.optional(),
    /** Name or id of the token that gets the session; null = no token's. */
    owner: z.string().min(1).max(100).nullable().optional().meta({ 'x-metis-role': 'admin' }),
  })
  .refine((body) => Object.values(body).some((value) => value !== undefined), {
    message: 'must set at least one of active_model, max_cost_usd, on_reached, share, owner',
  });

export const UpdateSessionReply = z.object({
  id: SessionIdSchema,
  active_model: z.string().nullable(),
  swap_queued: z.boolean(),
  swap_queued_until_turn: TurnIdSchema.nullable(),
  max_cost_usd: UsdSchema.nullable(),
  on_reached: OnReachedSchema,
  /** Absent, as in the session, where no person owns or shares it. */
  owner: PersonRefSchema.nullable().optional(),
  share: ShareSchema.optional(),
});

export const EndSessionReply = z.object({
  id: SessionIdSchema,
  ended_at: TimeSchema,
  purged: z.boolean(),
  purged_session_count: z.int().optional(),
});

export const SessionListReply = z.object({ sessions: z.array(SessionSchema), next_cursor: z.string().nullable() });

// Bodies and replies of `/sessions/{id}/turns` (05 §3.2) and `/estimate` (14 §4).

/** An image as a client sends it: its bytes, or a path in the workspace that the server reads at intake (10 §8). */
const IntakeImageSchema = ImageBlockSchema.extend({
  source: z.discriminatedUnion('kind', [
    ImageBlockSchema.shape.source,
    z.strictObject({ kind: z.literal('file_ref'), data: z.string().min(1).max(4096) }),
  ]),
});
const IntakeBlockSchema = z.discriminatedUnion('type', [TextBlockSchema, IntakeImageSchema]);

export const SubmitTurnBody = z.strictObject({
  content: z.union([z.string(), z.array(IntakeBlockSchema)], {
    error: (issue) => (issue.input === undefined ? 'is required: a string or a list of blocks' : undefined),
  }),
  per_message_override: z.string().min(1).nullable().default(null),
  if_busy: z.enum(['reject', 'interrupt', 'steer']).default('reject'),
  /** Files of the workspace for a session that runs a named worker (13 §5). */
  attachments: z.array(z.string().min(1).max(4096)).max(100).default([]),
});

export const EstimateTurnBody = SubmitTurnBody.omit({ if_busy: true });
export const EstimateTurnReply = z.object({
  chosen_model: z.string(),
  chosen_effort: EffortSchema.nullable(),
  chain: z.array(PolicyEvaluationSchema).length(7),
  estimated_input_tokens: CountSchema,
  cost_floor_usd: UsdSchema,
  cost_ceiling_usd: UsdSchema,
  fits_budget: z.boolean(),
  /** What earlier turns like it have cost with their workers; null without enough of them. */
  history: CostHistorySchema.nullable(),
  limits: z.array(
    z.object({
      scope: z.enum(['session', 'delegation', 'experiment', 'owner', 'day']),
      limit_usd: UsdSchema,
      spent_usd: UsdSchema,
      reserved_usd: UsdSchema,
      remaining_usd: UsdSchema,
    }),
  ),
});

export const TurnReceipt = z.object({
  turn_id: TurnIdSchema,
  session_id: SessionIdSchema,
  submitted_at: TimeSchema,
  /** Null where the message joined a running turn: it becomes a message when that turn reads it (`turn.steered`). */
  user_message_id: MessageIdSchema.nullable(),
  /** The message joined the running turn. */
  steered: z.boolean(),
  /** Id of the message that joined a running turn, until that turn reads it. */
  input_id: UlidSchema.nullable(),
});

export const TurnListReply = z.object({ turns: z.array(TurnSchema), next_cursor: z.string().nullable() });

export const CancelTurnBody = z.strictObject({
  reason: z.string().max(200).overwrite(plainText).nullable().default(null),
});
export const CancelTurnReply = z.object({ turn_id: TurnIdSchema, cancellation_initiated: z.literal(true) });
export const ConcludeTurnReply = z.object({
  turn_id: TurnIdSchema,
  /** False where the conclusion was requested before. */
  applied: z.boolean(),
});
const MAX_COMMENT = 1000;
/** The scores of `good` and `bad`. */
const LABELS = { good: 1, bad: 0 } as const;
export const ScoreTurnBody = z.strictObject({
  /** `check`: a command decided, not a person; it takes the place of what the server's heuristics found. */
  source: z.enum(['user', 'check']).default('user'),
  score: z
    .union([z.enum(['good', 'bad']), z.number().min(0).max(1)], {
      error: 'must be a number from 0 to 1, "good" or "bad"',
    })
    // `Math.abs` turns -0 into 0.
    .transform((score) => (typeof score === 'string' ? LABELS[score] : Math.abs(score))),
  comment: z
    .string()
    .max(MAX_COMMENT)
    .overwrite((text) => plainText(text).trim())
    .nullable()
    .default(null),
});
export const ScoreTurnReply = UserScoreSchema.extend({
  turn_id: TurnIdSchema,
  session_id: SessionIdSchema,
  /** False if the turn had the same score and comment before. */
  changed: z.boolean(),
});

export const ResumeTurnReply = z.object({ turn_id: TurnIdSchema, resumed: z.literal(true) });

// Replies of the routes that read a session's history (05 §3.4).

export const MessageListReply = z.object({
  messages: z.array(MessageSchema),
  has_more_before: z.boolean(),
  has_more_after: z.boolean(),
});
export const EventListReply = z.object({ events: z.array(AnyEventSchema), next_cursor: z.string().nullable() });
/** A call as the ledger has it; a purge and pruning leave it alone. */
export const ListedCallSchema = UsageSchema.extend({
  /** Id of its `llm.call_completed`. */
  id: UlidSchema,
  timestamp: TimeSchema,
  turn_id: TurnIdSchema.nullable(),
  model: z.string(),
  provider: z.string(),
  effort: EffortSchema.nullable(),
  purpose: PurposeSchema,
  cancelled: z.boolean(),
  latency_ms: CountSchema.nullable(),
  ...billFields,
});
export type ListedCall = z.infer<typeof ListedCallSchema>;
export const CallListReply = z.object({ calls: z.array(ListedCallSchema), next_cursor: z.string().nullable() });
export const WorkerListReply = z.object({ workers: z.array(DelegationSchema), next_cursor: z.string().nullable() });
