// What is stored beside a worktree: the repository that it is of, and the folders of the caller that it links to (20 §2.2).
import { readFile, writeFile } from 'node:fs/promises';

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
  /** Entries of the workspace that are in no snapshot; absent = as configured. */
  readonly names?: readonly string[];
}

export async function readOrigin(gitFolder: string): Promise<Origin> {
  return JSON.parse(await readFile(`${gitFolder}/origin.json`, 'utf8')) as Origin;
}

export async function writeOrigin(gitFolder: string, origin: Origin): Promise<void> {
  await writeFile(`${gitFolder}/origin.json`, JSON.stringify(origin));
}

/** The worktree that a folder is, or lies in; null where it is none below `home`. */
export function findWorktreeId(home: string, folder: string): string | null {
  if (!folder.startsWith(`${home}/`)) return null;
  return folder.slice(home.length + 1).split('/')[0]!;
}
