// Bodies and replies of approvals: files at `/workspaces/trust` (20 §11), tool calls at `/confirmations` (05 §3.3).
import { z } from 'zod';
import { AnswerSchema, ConfirmationSchema, ScopeSchema } from '../confirmation.ts';
import { PersonRefSchema } from '../people/person.ts';
import { ConfirmationIdSchema, Sha256Schema, TimeSchema, WorkspacePathSchema } from '../scalars.ts';
import { plainText } from '../text/plain-text.ts';

const FilePathSchema = z
  .string()
  .min(1)
  .max(4096)
  .refine((path) => !path.includes('\0'), 'must hold no NUL character')
  .describe('Path of the file, relative to the workspace.');

const InWorkspace = WorkspacePathSchema.describe('Workspace that contains the file.');

export const TrustFileBody = z.strictObject({
  workspace_path: WorkspacePathSchema,
  path: FilePathSchema,
  sha256: Sha256Schema.describe('SHA-256 of the file content that you approve.'),
});
export type TrustFileBody = z.infer<typeof TrustFileBody>;

export const TrustQuery = z.strictObject({
  workspace_path: InWorkspace,
  path: FilePathSchema.optional().describe('Return only this file, with its content.'),
});
export const UntrustQuery = z.strictObject({ workspace_path: InWorkspace, path: FilePathSchema });

export const TrustedFileSchema = z.object({
  path: FilePathSchema,
  /** Whether the present content of the file is the content that was trusted. */
  trusted: z.boolean(),
  /** SHA-256 of the present content; null when the file is missing or cannot be read. */
  sha256: Sha256Schema.nullable(),
  /** SHA-256 of the trusted content; null when the file was never trusted. */
  trusted_sha256: Sha256Schema.nullable(),
  trusted_by: z.string().nullable(),
  trusted_at: TimeSchema.nullable(),
  /** Permissions that the file requests. They take effect once the file is trusted. */
  widens: z.array(z.string()),
  /** Present only when the request named one file. */
  content: z.string().optional(),
  /** The content that is trusted, likewise; null when the file is not trusted or its text was not stored. */
  trusted_content: z.string().nullable().optional(),
});
export type TrustedFileInfo = z.infer<typeof TrustedFileSchema>;

export const TrustReply = z.object({ files: z.array(TrustedFileSchema) });

export const AnswerConfirmationBody = z
  .strictObject({
    decision: AnswerSchema,
    scope: ScopeSchema.default('once'),
    reason: z.string().max(500).overwrite(plainText).nullable().default(null),
    modified_input: z.record(z.string(), z.unknown()).nullable().default(null),
    /** For a call that creates a worker: the whole definition, in place of `modified_input`. */
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
  /** The named token whose answer counts. */
  answered_by: PersonRefSchema.optional(),
});
export const ConfirmationListReply = z.object({
  confirmations: z.array(ConfirmationSchema),
  next_cursor: z.string().nullable(),
});
