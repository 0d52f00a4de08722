// Bodies and replies for what a person approves: files by `/workspaces/trust` (20 §11), tool calls by `/confirmations` (05 §3.3).
import { z } from 'zod';
import { AnswerSchema, ConfirmationSchema, ScopeSchema } from '../confirmation.ts';
import { ConfirmationIdSchema, Sha256Schema, TimeSchema, WorkspacePathSchema } from '../scalars.ts';
import { plainText } from '../text/plain-text.ts';

const FilePathSchema = z.string().min(1).max(4096).describe('Relative to the workspace.');

const InWorkspace = WorkspacePathSchema.describe('The workspace that the file is in.');

export const TrustFileBody = z.strictObject({
  workspace_path: WorkspacePathSchema,
  path: FilePathSchema,
  sha256: Sha256Schema.describe('Of the bytes that are trusted, as the file was read.'),
});
export type TrustFileBody = z.infer<typeof TrustFileBody>;

export const TrustQuery = z.strictObject({
  workspace_path: InWorkspace,
  path: FilePathSchema.optional().describe('Only this file, with its content.'),
});
export const UntrustQuery = z.strictObject({ workspace_path: InWorkspace, path: FilePathSchema });

export const TrustedFileSchema = z.object({
  path: FilePathSchema,
  /** The file as it is now is the one that was trusted. */
  trusted: z.boolean(),
  /** Of the file as it is now; null when it is missing or cannot be read. */
  sha256: Sha256Schema.nullable(),
  /** Of the bytes that were trusted; null when none were. */
  trusted_sha256: Sha256Schema.nullable(),
  trusted_by: z.string().nullable(),
  trusted_at: TimeSchema.nullable(),
  /** What the file asks for that counts only once it is trusted. */
  widens: z.array(z.string()),
  /** Only where one file was asked for. */
  content: z.string().optional(),
});
export type TrustedFileInfo = z.infer<typeof TrustedFileSchema>;

export const TrustReply = z.object({ files: z.array(TrustedFileSchema) });

export const AnswerConfirmationBody = z
  .strictObject({
    decision: AnswerSchema,
    scope: ScopeSchema.default('once'),
    reason: z.string().max(500).overwrite(plainText).nullable().default(null),
    modified_input: z.record(z.string(), z.unknown()).nullable().default(null),
    /** Of a worker that is to be created: the whole definition, in place of `modified_input`. */
    modified_yaml: z.string().max(262_144).nullable().default(null),
  })
  .refine((b) => (b.modified_input === null && b.modified_yaml === null) || b.decision === 'modify', {
    path: ['modified_input'],
    message: 'belongs to decision "modify"',
  })
  .refine((b) => b.modified_input !== null || b.modified_yaml !== null || b.decision !== 'modify', {
    path: ['modified_input'],
    message: 'is required with decision "modify"',
  })
  .refine((b) => b.modified_input === null || b.modified_yaml === null, {
    path: ['modified_yaml'],
    message: 'cannot be sent together with modified_input; send one of the two',
  });

export const AnswerConfirmationReply = z.object({
  confirmation_request_id: ConfirmationIdSchema,
  decision: AnswerSchema,
  scope: ScopeSchema,
  applied: z.boolean(),
});
export const ConfirmationListReply = z.object({
  confirmations: z.array(ConfirmationSchema),
  next_cursor: z.string().nullable(),
});
