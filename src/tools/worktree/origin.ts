// What is stored beside a worktree: the repository that it is of, and the folders of the caller that it links to (20 §2.2).
import { readdir, readFile, readlink, rename, rm, rmdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import type { WorktreeRecord } from '#protocol/file-change.ts';
import type { SessionId } from '#protocol/ids.ts';
import { byteName } from './git.ts';

/** `<session>.git/origin.json`. */
export interface Origin {
  /** The git folder with its refs. */
  readonly repository: string;
  /** The workspace that it was found by, in no worktree of ours. */
  readonly root: string;
  /**
   * Folders that file tools read and never write: paths in the worker's tree, and what they lead to: the caller's folder,
   * or the copy in the tree.
   */
  readonly links: Readonly<Record<string, string>>;
  /** The session tree that made it, whose owner removes what is left of it; absent = this server's alone. */
  readonly tree?: SessionId | undefined;
  /** Entries of the workspace that are in no snapshot; absent = as configured. */
  readonly names?: readonly string[];
}

export async function readOrigin(gitFolder: string): Promise<Origin> {
  return JSON.parse(await readFile(`${gitFolder}/origin.json`, 'utf8')) as Origin;
}

/** In one step: a process that dies leaves the file as it was. */
export async function writeOrigin(gitFolder: string, origin: Origin): Promise<void> {
  await writeFile(`${gitFolder}/${UNFINISHED}`, JSON.stringify(origin));
  await rename(`${gitFolder}/${UNFINISHED}`, `${gitFolder}/origin.json`);
}

const UNFINISHED = 'origin.json.tmp';

/** Removes a git folder whose process died before it had an origin; one with anything else in it stays. */
export async function removeUnfinished(gitFolder: string): Promise<boolean> {
  const names = await readdir(gitFolder);
  if (names.some((name) => name !== UNFINISHED)) return false;
  await rm(`${gitFolder}/${UNFINISHED}`, { force: true });
  await rmdir(gitFolder);
  return true;
}

/** The worktree that a folder is, or lies in; null where it is none below `home`. */
export function findWorktreeId(home: string, folder: string): string | null {
  if (!folder.startsWith(`${home}/`)) return null;
  return folder.slice(home.length + 1).split('/')[0]!;
}

/** Whether a path is a link that leads out of the worker's tree: no such link reaches the caller's workspace. */
export async function leadsOut({ folder, tree_path }: WorktreeRecord, name: string): Promise<boolean> {
  const bytes = Buffer.from(`${byteName(folder)}/${name}`, 'latin1');
  const target = await readlink(bytes, { encoding: 'buffer' }).catch(() => null);
  if (target === null) return false;
  const full = path.resolve(path.dirname(bytes.toString('latin1')), target.toString('latin1'));
  const root = byteName(tree_path);
  return full !== root && !full.startsWith(`${root}/`);
}

/** The name of the folder in which the check of a worker runs. */
export function nameCheck(id: string): string {
  return `${id}-check`;
}
