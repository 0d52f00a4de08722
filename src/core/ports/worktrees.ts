// Worktrees of workers: a copy of the caller's workspace, and the merge of what a worker leaves in it (20 §2).

import type { ChangedText, FileChange, WorktreeRecord, WorktreeSettings } from '#protocol/file-change.ts';
import type { SessionId } from '#protocol/ids.ts';
import type { CaseStart } from '#protocol/what-if/case.ts';

/** A worktree cannot be made, recorded or merged; the message is for the caller. */
export class WorktreeError extends Error {
  override readonly name = 'WorktreeError';
}

/** What a worker changed, as the difference of two trees. */
export interface TreeChanges {
  /** Relative to the workspace, sorted. */
  readonly files: readonly FileChange[];
  readonly result_tree: string;
  /** Protected files that the worker changed; they are as in the base. */
  readonly protected_changes: readonly string[];
}

/** A folder of its own with the files of a tree, for a check. */
export interface CheckFolder {
  /** The workspace in it. */
  readonly root: string;
  readonly temporary: string;
}

export type Merge =
  | {
      readonly kind: 'clean';
      /** Tree of the caller's workspace that was merged. */
      readonly from: string;
      readonly tree: string;
    }
  | { readonly kind: 'conflict'; readonly paths: readonly string[] };

/** The same of several results, each merged into what the earlier ones made of the workspace. */
export type JoinedMerge =
  | Extract<Merge, { readonly kind: 'clean' }>
  | {
      readonly kind: 'conflict';
      /** Of each worker that conflicts with the workspace or with an earlier worker. */
      readonly paths: ReadonlyMap<SessionId, readonly string[]>;
    };

export interface MergeToWrite {
  /** Tree of the caller's workspace that was merged. */
  readonly from: string;
  readonly tree: string;
  /** Whether an earlier write may have written a part of it, which goes too where the rest cannot be written; default: no. */
  readonly is_resumed?: boolean;
}

/** What kept a merge from being written; then nothing of it is left in the workspace. */
export interface Written {
  /** Files that were changed while they were to be written. */
  readonly changed_meanwhile: readonly string[];
  /** A path that the system did not let be written, or a git command that failed, with the error; null = none. */
  readonly obstacle: string | null;
}

/** Bounds of the texts of changed files. */
export interface TextLimits {
  readonly files: number;
  /** Of an old or a new text; files with a longer one are left out. */
  readonly bytes_per_text: number;
  /** Of all texts together. */
  readonly bytes: number;
}

export interface ChangedTexts {
  /** Text files alone, by path. */
  readonly files: readonly ChangedText[];
  /** Files are missing because there are too many, or too many bytes. */
  readonly truncated: boolean;
}

/** Runs `work` while no other one of any process works on this folder. Never nested. */
export type WorkspaceLock = <T>(folder: string, work: () => Promise<T>) => Promise<T>;

export interface Worktrees {
  /** Why no worktree can be made of the folder; null = one can. */
  findObstacle(root: string): Promise<string | null>;
  /**
   * Records the folder as it is now and checks it out below the worktrees' folder. What was made is removed where it
   * fails. Throws `WorktreeError`.
   * @param root the caller's workspace, or the caller's own tree
   * @param earlier what a worker left that was not applied: its merge with the folder is checked out, with markers around
   * conflicts; absent = none
   * @param settings absent = those of the server; `tree` is the root session of the worker
   */
  create(
    id: SessionId,
    root: string,
    earlier?: (Pick<WorktreeRecord, 'session_id' | 'base_tree'> & { readonly result_tree: string }) | null,
    settings?: Pick<WorktreeSettings, 'worktree_copy' | 'worktree_links'> & { readonly tree?: SessionId },
  ): Promise<Pick<WorktreeRecord, 'repository' | 'folder' | 'tree_path' | 'base_tree'>>;
  /**
   * Records a workspace as it is now: as a commit where it lies in a repository, else as the hashes of its files. Throws
   * `WorktreeError` where it is too large.
   */
  recordStart(id: SessionId, root: string): Promise<CaseStart>;
  /**
   * Records what the worker left; a result that was recorded before stays, and has no protected changes. Throws
   * `WorktreeError`.
   * @param isWritable whether a path, relative to the workspace, may be written there; other changes are left out. It throws
   * `PathEscape` where a link there leads out: nothing can be recorded, unless the worker began with that link
   * @param isProtected whether a path, relative to the workspace, stays as in the base; absent = none does
   */
  recordResult(
    worktree: WorktreeRecord,
    isWritable: (path: string) => Promise<boolean>,
    isProtected?: (path: string) => boolean,
  ): Promise<TreeChanges>;
  /** Files that had conflict markers when the worker began and still have them in its result. Throws `WorktreeError`. */
  findLeftMarkers(worktree: WorktreeRecord): Promise<readonly string[]>;
  /**
   * Files in which the workspace and the earlier worker conflicted when a worker that continues it began, and that have no
   * markers: one side deleted it, or it is no text. Throws `WorktreeError`.
   */
  findUnmarkedConflicts(worktree: WorktreeRecord): Promise<readonly string[]>;
  /**
   * Puts the files of a tree into a new folder, in the place of an earlier one of this worker. Throws `WorktreeError`.
   * @param patterns ignored files of the caller that are copied
   */
  openCheckFolder(worktree: WorktreeRecord, tree: string, patterns: readonly string[]): Promise<CheckFolder>;
  /** Removes that folder. */
  removeCheckFolder(worktree: WorktreeRecord): Promise<void>;
  /** Merges the recorded result with the caller's workspace as it is now. Throws `WorktreeError`. */
  merge(worktree: WorktreeRecord): Promise<Merge>;
  /** Merges recorded results of one caller, in this order, with its workspace as it is now. Throws `WorktreeError`. */
  mergeAll(worktrees: readonly WorktreeRecord[]): Promise<JoinedMerge>;
  /**
   * Writes the paths that differ between the trees, each only where the disk holds what was merged, or already what is
   * to be written. Throws `WorktreeError` where a part of it may be left: it is to be written again.
   */
  write(worktree: WorktreeRecord, merge: MergeToWrite): Promise<Written>;
  /** The paths in which two trees differ, relative to the workspace. */
  comparePaths(worktree: WorktreeRecord, from: string, to: string): Promise<readonly string[]>;
  /** The recorded changes as a unified diff, cut at `limitBytes`. */
  diff(worktree: WorktreeRecord, limitBytes: number): Promise<{ readonly text: string; readonly truncated: boolean }>;
  /** The recorded changes as the texts of the changed files. Throws `WorktreeError`. */
  readTexts(worktree: WorktreeRecord, limits: TextLimits): Promise<ChangedTexts>;
  /** Runs `fn` alone on a caller's workspace, on all nodes: merges and writes. Never nested. */
  mergeExclusive<T>(workspace: string, fn: () => Promise<T>): Promise<T>;
  /** Runs `fn` when all earlier ones of this process for this folder have ended. */
  exclusive<T>(root: string, fn: () => Promise<T>): Promise<T>;
  /** Bytes of the folder, and of the git objects that only the refs of the worktree hold. */
  measure(
    worktree: Pick<WorktreeRecord, 'session_id' | 'repository' | 'folder'>,
  ): Promise<{ readonly folder_bytes: number; readonly ref_bytes: number }>;
  /** Removes the folder and git's entry of it. The refs stay. */
  removeFolder(worktree: Pick<WorktreeRecord, 'session_id' | 'repository' | 'folder'>): Promise<void>;
  /** Removes the refs too. Where it rejects, the next start tries again, once the worktree has no record. */
  removeRefs(worktree: Pick<WorktreeRecord, 'session_id' | 'repository' | 'caller_path'>): Promise<void>;
  /**
   * Kills the git commands that a killed server left running, before anything else is done with what they write. Returns
   * their number; always 0 but on Linux.
   * @param tree only where this session tree has a worktree
   */
  endStray(tree?: SessionId): Promise<number>;
  /**
   * Removes every folder below the worktrees' folder that `isKept` does not claim. The refs go too where `hasRecord`
   * denies the session. Returns the sessions whose folders went.
   * @param owner.isOwn whether a folder may be removed; absent = all may, on a server that is alone
   */
  sweep(owner: {
    isOwn?(folder: {
      readonly id: SessionId;
      /** The session tree that made it; null = not known. */
      readonly tree: SessionId | null;
      /** ms since 1970, by the file system. */
      readonly modified_at: number;
    }): Promise<boolean>;
    isKept(id: SessionId): Promise<boolean>;
    hasRecord(id: SessionId): Promise<boolean>;
  }): Promise<readonly SessionId[]>;
}
