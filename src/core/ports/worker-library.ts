// The definitions of named workers in a workspace (13 §3).

import type { Result } from '#protocol/result.ts';
import type { FoundWorker, WorkerDefinition } from '#protocol/worker/definition.ts';

export interface WorkerLibrary {
  /** As it is on the disk now, valid or not; null when no file of the workspace has the name. */
  find(root: string, name: string): Promise<FoundWorker | null>;
  /** A text file of the workspace, up to the size of a definition, with its digest; else why there is none to be read. */
  read(root: string, path: string): Promise<Result<{ readonly text: string; readonly sha256: string }, string>>;
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
