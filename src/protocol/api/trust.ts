// What is sent to and answered by `/workspaces/trust` (20 §11).
import { z } from 'zod';
import { Sha256Schema, TimeSchema, WorkspacePathSchema } from '../scalars.ts';

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
