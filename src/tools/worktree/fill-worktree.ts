// Adds a worktree to a repository and fills it: an index checked out, linked folders, copies of ignored files (20 §2.2).
import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { runExclusive } from '../workspace/descriptors.ts';
import { type Git, readableName } from './git.ts';
import { readOrigin, writeOrigin } from './origin.ts';
import { copyIgnoredFiles, linkFolders } from './provide-files.ts';
import { type OwnGit, type Repository, runShared } from './repository.ts';
import { copyIndex } from './snapshot.ts';

/** The folder is empty afterwards. */
export async function addWorktree(git: Git, repository: Repository, folder: string, commit: string): Promise<void> {
  const add = ['worktree', 'add', '--no-checkout', '--detach', '--lock', '--reason', 'in use by metis', folder, commit];
  // Git reads the entries of all worktrees, and fails at one that another call has half made.
  await runExclusive(`${repository.common_dir}\0worktree add`, () => runShared(git, repository, add));
}

/** Returns the workspace's place in the folder. */
export async function fillWorktree(
  own: OwnGit,
  {
    folder,
    root,
    index,
    links: names,
    patterns,
    clone,
    addFiles,
  }: {
    readonly folder: string;
    /** The caller's workspace. */
    readonly root: string;
    /** The index to check out. */
    readonly index: string;
    /** Folders of the caller that are linked. */
    readonly links: readonly string[];
    /** Ignored files of the caller that are copied. */
    readonly patterns: readonly string[];
    readonly clone: Parameters<typeof linkFolders>[2]['clone'];
    /** Changes what was checked out, before folders are linked. */
    readonly addFiles?: () => Promise<void>;
  },
): Promise<string> {
  const { common_dir, prefix } = own.repository;
  await own.run(['checkout-index', '-a', '-f', '-u', '-q'], { index, tree: folder });
  await addFiles?.();
  // A repository of one commit and no files has no index.
  await copyIndex(`${own.dir}/${index}`, `${common_dir}/worktrees/${path.basename(folder)}/index`).catch(() => {});
  const tree_path = prefix === '' ? folder : path.join(folder, readableName(prefix.slice(0, -1)));
  await mkdir(tree_path, { recursive: true });
  const links = await linkFolders(root, tree_path, { names, clone });
  await writeOrigin(own.dir, { ...(await readOrigin(own.dir)), links });
  await copyIgnoredFiles(own, { patterns, index, tree: folder, links: names });
  return tree_path;
}
