// Which files a worker changed, and what else its caller must know before trusting the workspace (20 §1).
import { z } from 'zod';
import type { SessionId } from './ids.ts';

export const FileChangeSchema = z.strictObject({
  /** Relative to the workspace. */
  path: z.string(),
  change: z.enum(['created', 'edited', 'deleted']),
});
export type FileChange = z.infer<typeof FileChangeSchema>;

/** A changed text file. */
export const ChangedTextSchema = z.strictObject({
  ...FileChangeSchema.shape,
  /** Null = the file was created. */
  old_text: z.string().nullable(),
  /** Null = the file was deleted. */
  new_text: z.string().nullable(),
});
export type ChangedText = z.infer<typeof ChangedTextSchema>;

export const IsolationSchema = z.enum(['shared', 'worktree']);
export type Isolation = z.infer<typeof IsolationSchema>;

export const ApplySchema = z.enum(['each', 'together', 'never']);
export type Apply = z.infer<typeof ApplySchema>;

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
  /** Where the worker worked (§2). */
  isolation: IsolationSchema,
  /** Whether the changes of a worktree are in the caller's workspace; null = shared, or not ended. */
  applied: z.boolean().nullable(),
  /** Why not: the paths in which both changed the same, or that were saved while the changes were written. */
  conflicts: z.array(z.string()).max(MAX_CHANGED_FILES),
  /** Why not, where nothing conflicts: they could not be recorded, or not be written. Null = nothing failed. */
  apply_error: z.string().nullable(),
  /** The check that decided, and the number of its runs on what the worker left (20 §10); null and 0 = none. */
  check: z.string().nullable(),
  attempts: z.int().min(0),
  /** True = the check passed on the changes merged with the caller's workspace; null = it was not run. */
  verified: z.boolean().nullable(),
  /** Files of the check that the worker changed; its changes to them are dropped. */
  protected_changes: z.array(z.string()).max(MAX_CHANGED_FILES),
  /** Changed files that another delegation of the same turn changed after this worker had read them. */
  overlaps: z.array(z.string()).max(MAX_CHANGED_FILES),
});
export type WorkerChanges = z.infer<typeof WorkerChangesSchema>;

/** The report of changes alone, from a record that has it among other fields. */
export function selectChanges(from: WorkerChanges): WorkerChanges {
  const { changed_files, changed_files_truncated, shell_used, isolation, applied, conflicts, apply_error, overlaps } =
    from;
  const { check, attempts, verified, protected_changes } = from;
  const changes = { changed_files, changed_files_truncated, shell_used, overlaps };
  const place = { isolation, applied, conflicts, apply_error };
  return { ...changes, ...place, check, attempts, verified, protected_changes };
}

/** What a check decided, as part of the report. */
export type CheckReport = Pick<WorkerChanges, 'check' | 'attempts' | 'verified' | 'protected_changes'>;

export const NO_CHANGES: WorkerChanges = {
  changed_files: [],
  changed_files_truncated: false,
  shell_used: false,
  isolation: 'shared',
  applied: null,
  conflicts: [],
  apply_error: null,
  check: null,
  attempts: 0,
  verified: null,
  protected_changes: [],
  overlaps: [],
};

// The worktree of a worker: where it lies, and which trees were recorded of it (20 §2).

/** One row of `worktrees`. Trees are git's object ids. */
export interface WorktreeRecord {
  /** Of the worker. */
  readonly session_id: SessionId;
  /** The folder that the changes are applied to: the caller's workspace, or the caller's own tree. */
  readonly caller_path: string;
  /** The git folder that the refs and objects lie in. */
  readonly repository: string;
  /** The folder that git checked out. */
  readonly folder: string;
  /** The worker's root: `folder`, or the workspace's place in it. */
  readonly tree_path: string;
  readonly base_tree: string;
  /** Null until the worker has ended. */
  readonly result_tree: string | null;
  /** Set before the first file of a merge is written: the tree that the merge began from, and its outcome. */
  readonly merged_from: string | null;
  readonly merged_tree: string | null;
  /** Null until it was tried. */
  readonly applied: boolean | null;
  readonly created_at: number;
}

// What a worktree is given beside its snapshot: by the server's configuration, or by a trusted file of the workspace (20 §2.2).

const MAX_SETTING_ENTRIES = 100;
const MAX_ENTRY_CHARS = 512;

const treePath = z
  .string()
  .min(1)
  .max(MAX_ENTRY_CHARS)
  .refine((text) => !text.includes('\0') && !text.includes('\n'), 'must be one line')
  .refine(
    (text) => !text.startsWith('/') && !text.split('/').some((part) => part === '..' || part === '.' || part === ''),
    'must be a path in the workspace without "." and "..", such as "node_modules"',
  );
/** As in `.gitignore`: a name matches in every folder, a pattern with a slash from the workspace on. */
const filePattern = z
  .string()
  .min(1)
  .max(MAX_ENTRY_CHARS)
  .refine((text) => !text.includes('\0') && !text.includes('\n'), 'must be one line')
  .refine((text) => !text.startsWith('!'), 'must not begin with "!"')
  .refine((text) => !text.split('/').includes('..'), 'must not hold ".."');

export const WorktreeSettingsSchema = z.strictObject({
  worktree_copy: z.array(filePattern).max(MAX_SETTING_ENTRIES),
  worktree_links: z.array(treePath).max(MAX_SETTING_ENTRIES),
  worktree_setup: z.string().min(1).max(4096).nullable(),
});
export type WorktreeSettings = z.infer<typeof WorktreeSettingsSchema>;

/** Relative to the workspace. */
export const WORKSPACE_SETTINGS_FILE = '.metis/server.yaml';

/** The workspace's file: the keys of a worktree. A home folder that is a workspace has the server's own file there. */
export const WorkspaceSettingsSchema = z.object({
  delegation: z.object(WorktreeSettingsSchema.partial().shape).default({}),
});
