// A delegation: the input of `delegate()`, its record and what comes back (01 §9, 04 §4).
import { z } from 'zod';
import { CheckNameSchema, type Rung, RungsSchema, type StoredCheck } from './check.ts';
import { type Apply, ApplySchema, type Isolation, IsolationSchema, WorkerChangesSchema } from './file-change.ts';
import type { Pusd } from './money.ts';
import {
  CountSchema,
  type Effort,
  EffortSchema,
  MessageIdSchema,
  SessionIdSchema,
  TierSchema,
  TimeSchema,
  ToolUseIdSchema,
  TurnIdSchema,
  UsdLimitSchema,
  UsdSchema,
} from './scalars.ts';
import { plainText } from './text/plain-text.ts';
import { EntrySchema, type JsonSchema } from './tool.ts';
import type { WorkerDefinition } from './worker-definition.ts';

export const FailureModeSchema = z.enum([
  'worker_error',
  'max_tokens_exceeded',
  'insufficient_context',
  'output_schema_validation_failed',
  'no_model_available_for_tier',
  'cancelled_by_user',
  'timeout',
  'budget_exceeded',
  /** Its check failed, and no rung was left (20 §10). */
  'check_failed',
]);
export type FailureMode = z.infer<typeof FailureModeSchema>;
export const DelegationStatusSchema = z.enum(['running', 'interrupted', 'completed', 'failed']);
export type DelegationStatus = z.infer<typeof DelegationStatusSchema>;
export const ContextModeSchema = z.enum(['minimal', 'explicit']);
export const CancelScopeSchema = z.enum(['planner', 'worker']);

export const ContextItemSchema = z.discriminatedUnion('type', [
  z.strictObject({ type: z.literal('file'), path: z.string().min(1) }),
  z.strictObject({
    type: z.literal('file_range'),
    path: z.string().min(1),
    lines: z.tuple([z.int().min(1), z.int().min(1)]).refine(([a, b]) => a <= b, 'start must not be after end'),
  }),
  z.strictObject({ type: z.literal('tool_result'), tool_use_id: ToolUseIdSchema }),
  z.strictObject({ type: z.literal('message'), message_id: MessageIdSchema }),
  z.strictObject({ type: z.literal('inline'), label: z.string(), text: z.string() }),
]);
export type ContextItem = z.infer<typeof ContextItemSchema>;

/** What a worker that continues another one starts with: its messages, or a summary of them (20 §3). */
export const EarlierHistorySchema = z.enum(['full', 'summary']);
export type EarlierHistory = z.infer<typeof EarlierHistorySchema>;

/** `delegate()` as a model writes it, checked and with the shorthand strings spelled out. */
export const DelegateInputSchema = z.strictObject({
  tier: TierSchema,
  /** Wins over that of the tier (22 §1). */
  effort: EffortSchema.nullable().default(null),
  task: z
    .string()
    .min(1)
    .max(20_000)
    .refine((t) => t.trim() !== '', 'must not be blank')
    .overwrite(plainText),
  context: z
    .strictObject({
      mode: ContextModeSchema,
      include: z
        .array(
          z.preprocess(
            (v) => (typeof v === 'string' ? { type: 'inline', label: 'note', text: v } : v),
            ContextItemSchema,
          ),
        )
        .max(50)
        .default([]),
    })
    .refine((c) => c.mode === 'explicit' || c.include.length === 0, {
      path: ['include'],
      message: 'must be empty in mode "minimal"',
    })
    .default({ mode: 'minimal', include: [] }),
  output_schema: z.record(z.string(), z.unknown()).nullable().default(null),
  allowed_tools: z.array(z.string()).nullable().default(null),
  max_tokens: z.int().min(1).nullable().default(null),
  timeout_seconds: z.int().min(1).max(3600).nullable().default(null),
  max_cost_usd: UsdLimitSchema.nullable().default(null),
  /** Null = by the configuration. */
  isolation: IsolationSchema.nullable().default(null),
  apply: ApplySchema.nullable().default(null),
  /** The name of a check that decides whether the changes count (20 §10). */
  check: CheckNameSchema.nullable().default(null),
  /** What follows a check that failed, in order. */
  on_fail: RungsSchema.nullable().default(null),
  /** A worker of the calling session to go on with (20 §3). */
  continue: SessionIdSchema.nullable().default(null),
  /** How it gets the earlier messages. */
  history: EarlierHistorySchema.nullable().default(null),
  /** The call answers as soon as the worker is stored; its turn waits for it at its end (20 §9). */
  background: z.boolean().default(false),
});
export type DelegateInput = z.infer<typeof DelegateInputSchema>;

/** One resolved include item, ready for the worker's prompt (10 §3.2). */
export interface ContextEntry {
  readonly kind: ContextItem['type'];
  /** The heading of the item in the prompt, e.g. `src/a.ts lines 40-80`. */
  readonly label: string;
  /** Null for a reference that the worker reads by itself. */
  readonly text: string | null;
}

/** A file that is handed on with a call: what is stored of it beside the message that holds its bytes (13 §5). */
export interface AttachedFile {
  /** As the caller names it, `<sandbox>/<relative>`. */
  readonly path: string;
  /** Relative to the workspace. */
  readonly file: string;
  readonly bytes: number;
  readonly media_type: string;
  readonly sha256: string;
}

/** The target of a named call, as resolved at the time of the call. */
export interface CalledWorker {
  readonly name: string;
  readonly origin: 'project' | 'session';
  readonly digest: string;
  readonly definition: WorkerDefinition;
  /** Its system prompt. */
  readonly instructions: string;
  /** Of a session's worker that no person edited: the tools that its creator had; null = no such bound. */
  readonly creator_tools: readonly string[] | null;
}

/** Everything a spawn needs, whatever tool asked for it (13 §1). Stored as `delegations.request_json`. */
export interface DelegateRequest {
  readonly entry: z.infer<typeof EntrySchema>;
  readonly tier: z.infer<typeof TierSchema> | null;
  /** Null = that of the model's own reference. */
  readonly effort: Effort | null;
  /** The task brief; for a named worker its `input`. */
  readonly task: string;
  readonly context_mode: z.infer<typeof ContextModeSchema>;
  readonly context: readonly ContextEntry[];
  readonly output_schema: JsonSchema | null;
  readonly allowed_tools: readonly string[] | null;
  readonly max_tokens: number | null;
  readonly timeout_seconds: number | null;
  /** Decimal US dollars. */
  readonly max_cost_usd: string | null;
  /** What the worker gets: as asked for, or as configured. */
  readonly isolation: Isolation;
  readonly apply: Apply;
  /** Of a worker that continues another one; absent = full. */
  readonly history?: EarlierHistory;
  /** Its result is delivered to the calling turn; absent in requests of earlier versions. */
  readonly background?: boolean;
  /** As it was found when the call was accepted; null = the worker's word counts (20 §10). */
  readonly check: StoredCheck | null;
  readonly on_fail: readonly Rung[];
  /** Null for `delegate`. */
  readonly worker: CalledWorker | null;
  readonly attachments: readonly AttachedFile[];
}

export const UsageSummarySchema = z.object({
  model: z.string(),
  turn_count: CountSchema,
  input_tokens: CountSchema,
  output_tokens: CountSchema,
  cost_usd: UsdSchema,
  wall_time_seconds: z.number(),
  tool_call_count: CountSchema,
});
export type UsageSummary = z.infer<typeof UsageSummarySchema>;

export const InsufficientContextRequestSchema = z.strictObject({
  summary: z.string().min(1).max(500),
  missing: z
    .array(
      z.strictObject({
        type: z.enum(['file', 'file_range', 'message', 'tool_result', 'decision', 'other']),
        ref: z.string(),
        hint: z.string(),
      }),
    )
    .min(1)
    .max(20),
});
export type InsufficientContextRequest = z.infer<typeof InsufficientContextRequestSchema>;

const OutputSchema = z.union([z.string(), z.record(z.string(), z.unknown())]).nullable();

export const DelegationSchema = z.object({
  tool_use_id: ToolUseIdSchema,
  parent_session_id: SessionIdSchema,
  /** Null where it was asked for from outside, without a turn (19 §3.1). */
  parent_turn_id: TurnIdSchema.nullable(),
  worker_session_id: SessionIdSchema.nullable(),
  entry: EntrySchema,
  worker_name: z.string().nullable(),
  worker_digest: z.string().nullable(),
  tier: TierSchema.nullable(),
  resolved_model: z.string().nullable(),
  context_mode: ContextModeSchema,
  context_reference_count: CountSchema,
  task_size_tokens: CountSchema,
  effective_tools: z.array(z.string()),
  /** Null without `allowed_tools`. */
  allowed_tool_count: CountSchema.nullable(),
  dropped_tools: z.array(z.string()),
  max_tokens: CountSchema.nullable(),
  max_cost_usd: UsdSchema.nullable(),
  /** Null = no limit. */
  timeout_seconds: z.number().nullable(),
  active_seconds: z.number(),
  status: DelegationStatusSchema,
  failure_mode: FailureModeSchema.nullable(),
  error_message: z.string().nullable(),
  output: OutputSchema,
  created_at: TimeSchema,
  ended_at: TimeSchema.nullable(),
  usage_summary: UsageSummarySchema,
  ...WorkerChangesSchema.shape,
});
/** The wire object of `GET /sessions/{id}/workers`. */
export type Delegation = z.infer<typeof DelegationSchema>;

/** The stored record. Times are Unix milliseconds. */
export interface DelegationRecord
  extends Omit<
    Delegation,
    'created_at' | 'ended_at' | 'usage_summary' | 'effective_tools' | 'dropped_tools' | 'max_cost_usd'
  > {
  readonly max_cost_pusd: Pusd | null;
  readonly effective_tools: readonly string[];
  readonly dropped_tools: readonly string[];
  readonly request: DelegateRequest;
  readonly created_at: number;
  readonly ended_at: number | null;
}

/** The result of a background worker that has ended, for the turn that owns the worker (20 §9). Times are Unix milliseconds. */
export interface DeliveryRecord {
  readonly id: string;
  /** The caller's. */
  readonly session_id: z.infer<typeof SessionIdSchema>;
  readonly turn_id: z.infer<typeof TurnIdSchema>;
  readonly worker_session_id: z.infer<typeof SessionIdSchema>;
  readonly created_at: number;
  /** The call of the tool `workers` whose result holds it; null = it is to become a message of its own. */
  readonly read_by: z.infer<typeof ToolUseIdSchema> | null;
}

/** JSON Schema of `background`, the same for `delegate` and for the tools of named workers (20 §9). */
export const BACKGROUND = {
  type: 'boolean',
  description:
    'true: the call returns at once and the worker runs beside you; its result comes to you as a message. Your turn ends only when every such worker has. Default: false.',
};

/** JSON Schema of `tier`, `effort` and `task`, the same at every door (04 §4, 19 §3.2). */
export const DELEGATED = {
  tier: {
    type: 'string',
    enum: ['fast', 'balanced', 'deep'],
    description:
      'How capable, and how expensive, the worker is. fast: mechanical work with a clear recipe. balanced: ordinary coding and analysis. deep: hard reasoning.',
  },
  effort: {
    type: 'string',
    enum: EffortSchema.options,
    description: 'How hard the worker thinks; less is cheaper. Default: set by the server.',
  },
  task: {
    type: 'string',
    minLength: 1,
    maxLength: 20_000,
    description: 'The complete instruction: what to do, where, what counts as done, and what the answer must contain.',
  },
};

/** The same of `isolation` and `apply` (20 §2). */
export const ISOLATED = {
  isolation: {
    type: 'string',
    enum: IsolationSchema.options,
    description:
      'shared: the worker changes your workspace directly. worktree: it works on a copy of your workspace as it is now, and its changes are merged into yours when it is done; use it for workers that change files at the same time. Default: set by the server.',
  },
  apply: {
    type: 'string',
    enum: ApplySchema.options,
    description:
      'For a worktree. each: its changes are merged when it succeeds. together: those of all workers of one message that state it are merged at once when the last has ended, or not at all. never: they are kept for a person to apply. Default: each.',
  },
};

/** The same of `continue` and `history` (20 §3). */
export const CONTINUED = {
  continue: {
    type: ['string', 'null'],
    description:
      'Id of a worker of yours: the new worker starts with its prompt, tools and messages and then gets this task. One that still runs gets the task as a message instead.',
  },
  history: {
    type: ['string', 'null'],
    enum: [...EarlierHistorySchema.options, null],
    description:
      'With `continue`. full: the new worker starts with all messages. summary: it starts with a summary of them, which is cheaper once they are no longer cached. Default: full.',
  },
};

/** The same of `check` and `on_fail` (20 §10). */
export const CHECKED = {
  check: {
    type: ['string', 'null'],
    description:
      'Name of a check: a command that the server runs on your workspace with the changes of the worker merged. The changes are applied only if it passes. Implies isolation "worktree".',
  },
  on_fail: {
    type: ['array', 'null'],
    maxItems: 3,
    items: { type: 'string', pattern: '^(retry|effort:[a-z]+|tier:(fast|balanced|deep))$' },
    description:
      'What follows a failed check, in order: "retry", "effort:high" or "tier:balanced"; the same worker goes on with the output of the check. Default: nothing.',
  },
};

/** The same of `context`; what an item may be differs by door. */
export function delegatedContext<Items>(include: { readonly description: string; readonly items: Items }) {
  return {
    type: 'object',
    additionalProperties: false,
    required: ['mode'],
    description: 'What the worker is given beside the task. Default: nothing.',
    properties: {
      mode: {
        type: 'string',
        enum: ['minimal', 'explicit'],
        description: 'minimal: the task only. explicit: the task and the items of `include`.',
      },
      include: { type: 'array', maxItems: 50, ...include },
    },
  };
}
