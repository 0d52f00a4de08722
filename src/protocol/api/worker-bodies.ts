// Bodies and replies of `/workers` (13 §10).
import { z } from 'zod';
import {
  ContextModeSchema,
  DelegateInputSchema,
  type Delegation,
  DelegationSchema,
  UsageSummarySchema,
} from '../delegate.ts';
import { ChangedTextSchema, MAX_CHANGED_FILES, selectChanges, WorkerChangesSchema } from '../file-change.ts';
import {
  CountSchema,
  EffortSchema,
  SessionIdSchema,
  Sha256Schema,
  TierSchema,
  TimeSchema,
  ToolUseIdSchema,
  WorkerOriginSchema,
  WorkspacePathSchema,
} from '../scalars.ts';
import { SandboxSchema, WorkerDefinitionSchema, WorkerNameSchema, WorkerProblemSchema } from '../worker-definition.ts';

export const WorkerInfoSchema = z.object({
  name: z.string(),
  description: z.string().nullable(),
  origin: WorkerOriginSchema,
  /** The file has a foreign format, which Metis reads and never writes. */
  read_only: z.boolean(),
  locked: z.boolean(),
  valid: z.boolean(),
  errors: z.array(WorkerProblemSchema),
  warnings: z.array(WorkerProblemSchema),
  digest: Sha256Schema.nullable(),
  /** Path of the definition file, relative to the workspace. */
  path: z.string().nullable(),
  model: z.string().nullable(),
  tier: TierSchema.nullable(),
  effort: EffortSchema.nullable(),
  accepts_attachments: z.boolean(),
  output_schema_ref: z.string().nullable(),
  /** Folders that the worker may read or write. */
  sandboxes: z.array(SandboxSchema),
  tools: z.array(z.string()),
  allow_workers: z.array(z.string()),
  root_session_id: SessionIdSchema.nullable(),
  created_by_session_id: SessionIdSchema.nullable(),
  created_by_tool_use_id: ToolUseIdSchema.nullable(),
  edited_by_user: z.boolean().nullable(),
  created_at: TimeSchema.nullable(),
});
export type WorkerInfo = z.infer<typeof WorkerInfoSchema>;

export const WorkerDetailSchema = WorkerInfoSchema.extend({
  /** The definition with defaults filled in; null when the file could not be parsed. */
  definition: WorkerDefinitionSchema.nullable(),
  resolved_instructions: z.string().nullable(),
  /** `inline`, or the path of the prompt file. */
  instructions_source: z.string().nullable(),
  /** The text that saving the definition would write. */
  yaml: z.string().nullable(),
});
export type WorkerDetail = z.infer<typeof WorkerDetailSchema>;

export const DefinitionListReply = z.object({ workers: z.array(WorkerInfoSchema), next_cursor: z.string().nullable() });

const Given = {
  workspace_path: WorkspacePathSchema,
  definition: z.record(z.string(), z.unknown()).nullable().default(null),
  /** The definition as YAML, in place of `definition`. */
  yaml: z.string().max(262_144).nullable().default(null),
};
const oneOfBoth = ({ definition, yaml }: { definition: unknown; yaml: unknown }) =>
  (definition === null) !== (yaml === null);
const ONE = { path: ['definition'], message: 'send either definition or yaml' };

export const CreateWorkerBody = z.strictObject(Given).refine(oneOfBoth, ONE);
export const ReplaceWorkerBody = z
  .strictObject({ ...Given, /** Replaces a locked worker too. */ force: z.boolean().default(false) })
  .refine(oneOfBoth, ONE);

// Body and reply of `POST /sessions/{id}/delegations` (19 §3.1).

const { tier, task } = DelegateInputSchema.shape;

/** The parameters of `delegate`, or a named worker with its input. */
export const SubmitDelegationBody = z
  .strictObject({
    ...DelegateInputSchema.omit({ tier: true, task: true, context: true, background: true }).shape,
    tier: tier.optional(),
    task: task.optional(),
    context: z
      .strictObject({
        mode: ContextModeSchema,
        /** Notes, or items of the five kinds of 04 §4.1. */
        include: z
          .array(z.union([z.string(), z.record(z.string(), z.unknown())]))
          .max(50)
          .optional(),
      })
      .optional(),
    /** A named worker of the project that this session may call. */
    worker: WorkerNameSchema.optional(),
    input: z.string().min(1).optional(),
    attachments: z.array(z.string().min(1).max(4096)).max(100).optional(),
  })
  .superRefine((body, issues) => {
    const wrong = (path: string, message: string) => issues.addIssue({ code: 'custom', path: [path], message });
    if (body.worker === undefined) {
      if (body.tier === undefined) wrong('tier', 'is required: fast, balanced or deep; or name a worker');
      if (body.task === undefined) wrong('task', 'is required: what the worker is to do');
      for (const key of ['input', 'attachments'] as const)
        if (body[key] !== undefined) wrong(key, 'belongs to a named worker; describe the work in task');
    } else {
      if (body.input === undefined) wrong('input', 'is required: what the worker is to do');
      for (const key of ['tier', 'task', 'context'] as const)
        if (body[key] !== undefined) wrong(key, 'is settled by the definition of the worker');
      for (const key of [
        'effort',
        'output_schema',
        'allowed_tools',
        'max_tokens',
        'timeout_seconds',
        'max_cost_usd',
        'check',
        'on_fail',
      ] as const)
        if (body[key] !== null) wrong(key, 'is settled by the definition of the worker');
    }
  });
export type SubmitDelegationBody = z.infer<typeof SubmitDelegationBody>;

export const DelegationReceiptSchema = z.object({
  tool_use_id: ToolUseIdSchema,
  /** The session that delegates. */
  session_id: SessionIdSchema,
  /** Null if no worker was created. */
  worker_session_id: SessionIdSchema.nullable(),
});
export type DelegationReceipt = z.infer<typeof DelegationReceiptSchema>;

/** The result of a delegation (04 §4.2). */
export const DelegationResultSchema = z.object({
  success: z.boolean(),
  output: DelegationSchema.shape.output.unwrap(),
  error: z.string().nullable(),
  usage_summary: UsageSummarySchema,
  worker_session_id: SessionIdSchema.nullable(),
  /** Tools that were requested or inherited and that workers may not have. */
  dropped_tools: DelegationSchema.shape.dropped_tools,
  ...WorkerChangesSchema.shape,
});
export type DelegationResult = z.infer<typeof DelegationResultSchema>;

/** What became of changes that were kept (20 §2.5). */
export const AppliedChangesSchema = z.object({
  worker_session_id: SessionIdSchema,
  applied: z.boolean(),
  conflicts: z.array(z.string()),
});
export type AppliedChanges = z.infer<typeof AppliedChangesSchema>;

export const ChangesDiffSchema = z.object({
  worker_session_id: SessionIdSchema,
  /** Unified, at most 1 MiB. */
  diff: z.string(),
  truncated: z.boolean(),
});
export type ChangesDiff = z.infer<typeof ChangesDiffSchema>;

export const ChangedTextsSchema = z.object({
  worker_session_id: SessionIdSchema,
  /** Text files with at most 128 KiB before and after, by path. */
  files: z.array(ChangedTextSchema).max(MAX_CHANGED_FILES),
  /** Files are missing: there are more than 200, or more than 1 MiB of text. */
  truncated: z.boolean(),
});
export type ChangedTexts = z.infer<typeof ChangedTextsSchema>;

export const KeptWorktreeSchema = z.object({
  worker_session_id: SessionIdSchema,
  /** What its changes are applied to. */
  workspace_path: z.string(),
  /** The worker still runs. */
  open: z.boolean(),
  applied: z.boolean().nullable(),
  /** False where its result equals its base. */
  changed: z.boolean(),
  /** Of its folder; 0 once it is removed. */
  folder_bytes: CountSchema,
  /** Of git objects that only its refs hold. */
  ref_bytes: CountSchema,
  created_at: TimeSchema,
});
export type KeptWorktree = z.infer<typeof KeptWorktreeSchema>;

/** Newest first. */
export const KeptWorktreesReply = z.object({ worktrees: z.array(KeptWorktreeSchema) });

export const PruneWorktreesBody = z.strictObject({
  /** Changes that were not applied go too. */
  all: z.boolean().default(false),
});
export type PruneWorktreesBody = z.infer<typeof PruneWorktreesBody>;

export const PrunedWorktreesSchema = z.object({
  worker_session_ids: z.array(SessionIdSchema),
  freed_bytes: CountSchema,
});
export type PrunedWorktrees = z.infer<typeof PrunedWorktreesSchema>;

/** @param delegation one that has ended */
export function makeDelegationResult(delegation: Delegation): DelegationResult {
  const { failure_mode, error_message } = delegation;
  const startsWithMode = failure_mode === null || error_message?.startsWith(failure_mode);
  return {
    success: delegation.status === 'completed',
    output: delegation.output ?? '',
    error: startsWithMode ? error_message : `${failure_mode}: ${error_message}`,
    usage_summary: delegation.usage_summary,
    worker_session_id: delegation.worker_session_id,
    dropped_tools: delegation.dropped_tools,
    ...selectChanges(delegation),
  };
}
