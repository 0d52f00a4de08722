// What is stored beside a worktree: the repository that it is of, and the folders of the caller that it links to (20 §2.2).
import { lstat, readFile, realpath, stat, symlink, writeFile } from 'node:fs/promises';
import path from 'node:path';

/** `<session>.git/origin.json`. */
export interface Origin {
  /** The git folder with its refs. */
  readonly repository: string;
  /** The workspace that it was found by, in no worktree of ours. */
  readonly root: string;
  /** Linked folders: paths in the worker's tree, and the caller's folders that they lead to. */
  readonly links: Readonly<Record<string, string>>;
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

/** Links folders of the caller that the tree lacks. Returns those that were linked. */
export async function linkFolders(caller: string, tree: string, names: readonly string[]): Promise<Origin['links']> {
  const links: Record<string, string> = {};
  for (const name of names) {
    const target = await realpath(path.join(caller, name)).catch(() => null);
    if (target === null) continue;
    const isFolder = await stat(target).then(
      (found) => found.isDirectory(),
      () => false,
    );
    const taken = await lstat(path.join(tree, name)).catch(() => null);
    if (!isFolder || taken !== null) continue;
    const linked = await symlink(target, path.join(tree, name)).then(
      () => true,
      () => false,
    );
    if (linked) links[name] = target;
  }
  return links;
}
