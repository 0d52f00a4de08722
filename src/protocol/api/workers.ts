// What is sent to and answered by `/workers` (13 §10).
import { z } from 'zod';
import {
  SessionIdSchema,
  Sha256Schema,
  TierSchema,
  TimeSchema,
  ToolUseIdSchema,
  WorkerOriginSchema,
  WorkspacePathSchema,
} from '../scalars.ts';
import { SandboxSchema, WorkerDefinitionSchema, WorkerProblemSchema } from '../worker/definition.ts';

export const WorkerInfoSchema = z.object({
  name: z.string(),
  description: z.string().nullable(),
  origin: WorkerOriginSchema,
  /** In a form that is only read. */
  read_only: z.boolean(),
  locked: z.boolean(),
  valid: z.boolean(),
  errors: z.array(WorkerProblemSchema),
  warnings: z.array(WorkerProblemSchema),
  digest: Sha256Schema.nullable(),
  /** Of its file, relative to the workspace. */
  path: z.string().nullable(),
  model: z.string().nullable(),
  tier: TierSchema.nullable(),
  accepts_attachments: z.boolean(),
  output_schema_ref: z.string().nullable(),
  /** What it may touch. */
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
  /** As written, defaults filled in; null when nothing could be made of it. */
  definition: WorkerDefinitionSchema.nullable(),
  resolved_instructions: z.string().nullable(),
  /** `inline`, or the path of the prompt file. */
  instructions_source: z.string().nullable(),
  /** As it would be saved. */
  yaml: z.string().nullable(),
});
export type WorkerDetail = z.infer<typeof WorkerDetailSchema>;

export const DefinitionListReply = z.object({ workers: z.array(WorkerInfoSchema), next_cursor: z.string().nullable() });

const Given = {
  workspace_path: WorkspacePathSchema,
  definition: z.record(z.string(), z.unknown()).nullable().default(null),
  /** In place of `definition`. */
  yaml: z.string().max(262_144).nullable().default(null),
};
const oneOfBoth = ({ definition, yaml }: { definition: unknown; yaml: unknown }) =>
  (definition === null) !== (yaml === null);
const ONE = { path: ['definition'], message: 'send either definition or yaml' };

export const CreateWorkerBody = z.strictObject(Given).refine(oneOfBoth, ONE);
export const ReplaceWorkerBody = z
  .strictObject({ ...Given, /** Also a locked one. */ force: z.boolean().default(false) })
  .refine(oneOfBoth, ONE);
