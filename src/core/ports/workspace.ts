// Files of a workspace: confined access for tools, and the user's files under `.metis/` (09 §8, 09 §5.1, 10).

import type { Awaitable } from '#protocol/async/awaitable.ts';
import type { MemoryFile, MemoryWrite } from '#protocol/event/session-events.ts';
import type { SessionId } from '#protocol/ids.ts';
import type { ImageBlock } from '#protocol/message.ts';
import type { Skill, SkillEntry } from '#protocol/prompt-parts.ts';
import type { Result } from '#protocol/result.ts';
import { ToolError } from '#protocol/tool.ts';
import type { FoundWorker, Sandbox, WorkerDefinition } from '#protocol/worker-definition.ts';

/** The use of a path. `list` is a directory walk, which skips files that may not be read. */
export type PathUse = 'read' | 'write' | 'list';

/** A path that passed confinement. */
export interface ConfinedPath {
  /** As the model gave it. */
  readonly given: string;
  /** Real absolute path. */
  readonly absolute: string;
  /** Relative to the root, `/` separated, `.` for the root itself. */
  readonly relative: string;
}

export interface DirectoryEntry {
  readonly name: string;
  readonly kind: 'file' | 'directory' | 'other';
}

/** A path that leads out of its root, as by a link. */
export class PathEscape extends ToolError {
  constructor(message: string) {
    super('permission_denied', message);
  }
}

/**
 * The file API that a tool gets. Every path goes through confinement; a violation throws
 * `ToolError('permission_denied')` that names the path as given and never the root.
 */
export interface WorkspaceFiles {
  /** Of the workspace. */
  readonly root: string;
  /** Folders that a search goes through, each with what its paths begin with. */
  readonly roots: readonly { readonly prefix: string; readonly absolute: string }[];
  /** A hint for a model that cannot read a file as text; '' = none. */
  readonly binary_hint: string;
  /** Throws when the path escapes or is protected. Existence is not checked. */
  resolve(path: string, use: PathUse): Promise<ConfinedPath>;
  /**
   * Opens without following a link swapped in meanwhile; regular files only.
   * Throws `ToolError('execution_error')`, also for a file of more than `limitBytes` (default 64 MiB).
   */
  readFile(path: ConfinedPath, limitBytes?: number): Promise<Buffer>;
  /** As `read`, for a file of any size: its bytes in order, a piece at a time. */
  chunks(path: ConfinedPath): AsyncIterable<Buffer>;
  /** SHA-256 of a file's content in hex; null when nothing is there. Throws as `read`. */
  hash(path: ConfinedPath, signal: AbortSignal): Promise<string | null>;
  /** Entries of a directory, unsorted and unfiltered; links are of kind `other`. Throws `ToolError('execution_error')`. */
  entries(path: ConfinedPath): Promise<readonly DirectoryEntry[]>;
  /** Creates parents, writes beside and renames, keeps an existing file's mode. */
  write(path: ConfinedPath, data: string | Uint8Array): Promise<void>;
  /** Runs `fn` alone among all holders of this path, first come first served, process-wide. */
  exclusive<T>(path: ConfinedPath, fn: () => Promise<T>): Promise<T>;
  /** An entry of a directory that `entries` gave; null when it may not be shown. */
  below(folder: ConfinedPath, entry: DirectoryEntry): Promise<ConfinedPath | null>;
  /** Whether a path as tools show it may be shown to a model. */
  readable(path: string): boolean;
}

/** `trust.yaml` as read for one decision. */
export interface Trust {
  readonly always_allow: readonly string[];
  readonly always_deny: readonly string[];
  /** Broken: no allow entry applies, nothing may be persisted over it. */
  readonly malformed: boolean;
}

/** A tool that is added to one list and taken off the other. */
export interface TrustChange {
  readonly list: 'always_allow' | 'always_deny';
  readonly tool: string;
}

/** A change of a memory file by its only writer of that moment (10 §4.2). */
export interface MemoryChange {
  readonly file: MemoryFile;
  /** The new content. Of an oversized file only the beginning is passed. An error of this function is passed on. */
  next(before: { readonly head: Buffer; readonly size: number }): Buffer;
  /** Called once the file has changed, and not at all when the content is the same; the next writer waits for it. */
  notify(write: MemoryWrite): Promise<void>;
}

/** One routing file as found at a turn's start. */
export interface RoutingFile {
  readonly path: string;
  /** Null when there is no file. */
  readonly bytes: Buffer | null;
  /** Changes whenever the content may have changed; equal stamps mean equal content. */
  readonly stamp: string;
}

/** Folders for what a worker's commands leave while it works: one for each, gone with its delegation (20 §2). */
export interface TemporaryFolders {
  /** The worker's folder, made where it is missing. */
  open(session: SessionId): Promise<string>;
  /** Never rejects: what stays is removed after the next start. */
  remove(session: SessionId): Promise<void>;
  /** Sessions that have a folder, those of an earlier process too. */
  list(): Promise<readonly SessionId[]>;
}

export interface Workspaces {
  readonly temporary: Omit<TemporaryFolders, 'open'>;
  /** `~` expanded, real, absolute; null when it is missing or not a directory. */
  realDirectory(path: string): Promise<string | null>;
  files(root: string): WorkspaceFiles;
  /** The same for a session that has these sandboxes and nothing else (13 §4). */
  sandboxes(root: string, sandboxes: readonly Sandbox[]): WorkspaceFiles;
  /** Creates what may be written to. Throws `ToolError('execution_error')` (`sandbox_unavailable`) where one is missing. */
  openSandboxes(root: string, sandboxes: readonly Sandbox[]): Promise<void>;
  readTrust(root: string): Promise<Trust>;
  /**
   * Changes the file once `store` has stored what the change follows from. `store` is called once, with whether the
   * file can be changed. False when it could not or must not be; throws what `store` throws, with the file as it was.
   */
  persistTrust(root: string, change: TrustChange, store: (can: boolean) => Promise<void>): Promise<boolean>;
  /** The first of `names` that exists, at most 32 KiB; null when there is none. */
  instructions(
    root: string,
    names: readonly string[],
  ): Promise<{ readonly path: string; readonly text: string } | null>;
  /** The memory text of 10 §4.5; null when both files are blank. */
  memoryText(root: string): Awaitable<string | null>;
  /** Writes are alone on their file, first come first served. Throws `ToolError('execution_error')`. */
  changeMemory(root: string, change: MemoryChange): Promise<MemoryWrite>;
  /** The valid skills of all roots by name (10 §5.1); what is wrong with another one is logged once. */
  skills(root: string): Promise<readonly SkillEntry[]>;
  /** The current content on disk; null when there is none. Throws `ToolError('execution_error')` with its fault. */
  skill(root: string, name: string): Promise<Skill | null>;
  /** A text file of a skill's folder, at most 64 KiB; null when there is no such skill. Throws `ToolError`. */
  skillFile(root: string, name: string, path: string): Promise<string | null>;
  /** Reads an image for intake (10 §8): null when it is missing, not a supported image, or too large. */
  readImage(root: string, path: string): Promise<ImageBlock | null>;
  /** The workspace's and the global routing file; parsed results are cached by the caller on `stamp`. */
  routingFiles(root: string): Awaitable<{ readonly workspace: RoutingFile; readonly global: RoutingFile }>;
  globalRoutingFile(): Awaitable<RoutingFile>;
  /**
   * Replaces the workspace's routing file in one step, and only while it is what `next` was given; an error of
   * `next` is passed on. The error explains why the file cannot be written.
   * @param next the new text made of the file's bytes, null = no file; null leaves it as it is
   */
  changeRoutingFile(
    root: string,
    next: (before: Buffer | null) => Promise<string | null>,
  ): Promise<Result<null, string>>;
}

/** A text file of the workspace as it was read. */
export interface WorkspaceText {
  readonly text: string;
  /** Of its bytes. */
  readonly sha256: string;
}

// The definitions of named workers in a workspace (13 §3).

export interface WorkerLibrary {
  /** The current definition on disk, valid or not; null when no file of the workspace has the name. */
  find(root: string, name: string): Promise<FoundWorker | null>;
  /** A text file of the workspace, up to the size of a definition, with its digest; else why there is none to be read. */
  readText(root: string, path: string): Promise<Result<WorkspaceText, string>>;
  /** Every one by name, invalid ones included. Only files that changed since the last time are read. */
  list(root: string): Promise<readonly FoundWorker[]>;
  /** A definition that is in no file of the workspace, with its prompt and schema from there. */
  complete(root: string, definition: WorkerDefinition): Promise<FoundWorker>;
  /**
   * Writes `.metis/workers/<name>.yaml`, or the file that the worker has already. Returns its path in the workspace.
   * @param yaml made of the file's text; of null where it has none
   */
  save(root: string, name: string, yaml: (before: string | null) => string): Promise<string>;
  remove(root: string, name: string): Promise<void>;
  /** A copy for people outside of any workspace; may fail. */
  keepCopy(path: string, yaml: string): Promise<void>;
  dropCopies(folder: string): Promise<void>;
  /** The names alone; nothing is read. Of those that differ in case alone the first is the worker. */
  names(root: string): Promise<readonly string[]>;
  /** Whether a definition is, or would be, made of the file at this real path. */
  owns(root: string, absolute: string): Promise<boolean>;
  /** Runs `fn` when every change of this workspace's workers that was begun before is done: what it checked still holds when it writes. */
  change<T>(root: string, fn: () => Promise<T>): Promise<T>;
}
