// Which files a worker changed, and what else its caller must know before trusting the workspace (20 §1).
import { z } from 'zod';

export const FileChangeSchema = z.strictObject({
  /** Relative to the workspace. */
  path: z.string(),
  change: z.enum(['created', 'edited', 'deleted']),
});
export type FileChange = z.infer<typeof FileChangeSchema>;

/** Changes of the workspace by one tool call. */
export interface CallChanges {
  readonly files: readonly FileChange[];
  /** It ran commands, which may have changed files that are not listed. */
  readonly shell: boolean;
}

export const MAX_CHANGED_FILES = 200;

/** Fields of a delegation's record, its result and the event that closes it. */
export const WorkerChangesSchema = z.strictObject({
  /** By the worker and the workers below it, sorted by path. */
  changed_files: z.array(FileChangeSchema).max(MAX_CHANGED_FILES),
  changed_files_truncated: z.boolean(),
  /** In a shared workspace more may have changed. */
  shell_used: z.boolean(),
  /** Changed files that another delegation of the same turn changed after this worker had read them. */
  overlaps: z.array(z.string()).max(MAX_CHANGED_FILES),
});
export type WorkerChanges = z.infer<typeof WorkerChangesSchema>;

export const NO_CHANGES: WorkerChanges = {
  changed_files: [],
  changed_files_truncated: false,
  shell_used: false,
  overlaps: [],
};
