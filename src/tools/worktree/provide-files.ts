// What a worktree gets beside its snapshot: folders of the caller as clones or links, and copies of ignored files (20 §2.2).
import { constants } from 'node:fs';
import {
  copyFile as copyWhole,
  lstat,
  mkdir,
  open,
  readdir,
  readlink,
  realpath,
  rm,
  stat,
  symlink,
} from 'node:fs/promises';
import path from 'node:path';
import { WorktreeError } from '#core/ports/worktrees.ts';
import { isProtectedName } from '../workspace/confined-files.ts';
import { byteName, readableName, unpackNames } from './git.ts';
import type { Origin } from './origin.ts';
import type { OwnGit } from './repository.ts';

const { O_RDONLY, O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW } = constants;
/** Folders with more entries are linked: cloning them would take longer than the worker's first call. */
const MAX_CLONED = 50_000;
const MAX_COPIED = 10_000;
const MAX_COPIED_BYTES = 256 * 1024 * 1024;
const AT_ONCE = 32;

/** Makes `to` share the blocks of `from`. Rejects where the file system cannot. */
export type CloneFile = (from: string, to: string) => Promise<void>;

/** Gives the tree the folders of the caller that it lacks. */
export async function linkFolders(
  caller: string,
  tree: string,
  { names, clone }: { readonly names: readonly string[]; readonly clone: CloneFile },
): Promise<Origin['links']> {
  const links: Record<string, string> = {};
  for (const name of names) {
    const target = await realpath(path.join(caller, name)).catch(() => null);
    if (target === null) continue;
    const isFolder = await stat(target).then(
      (found) => found.isDirectory(),
      () => false,
    );
    const place = path.join(tree, name);
    const taken = await lstat(place).catch(() => null);
    if (!isFolder || taken !== null || !(await makeParent(tree, place))) continue;
    if (await cloneFolder(target, place, clone)) links[name] = place;
    else if (await linkFolder(target, place)) links[name] = target;
  }
  return links;
}

/** Makes the folder above a path. False where a link or a file of the snapshot is in its place. */
async function makeParent(tree: string, place: string): Promise<boolean> {
  const parent = path.dirname(place);
  const real = await mkdir(parent, { recursive: true })
    .then(() => realpath(parent))
    .catch(() => null);
  return real !== null && (real === tree || real.startsWith(`${tree}/`)) && real === parent;
}

function linkFolder(target: string, place: string): Promise<boolean> {
  return symlink(target, place).then(
    () => true,
    () => false,
  );
}

/** False, and nothing is left, where the file system shares no blocks or the folder is too large. */
async function cloneFolder(from: string, to: string, clone: CloneFile): Promise<boolean> {
  let left = MAX_CLONED;
  const copyEntries = async (source: string, target: string): Promise<void> => {
    await mkdir(target);
    const entries = await readdir(source, { withFileTypes: true });
    left -= entries.length;
    if (left < 0) throw new Error('too many entries');
    const files = entries.filter((entry) => entry.isFile());
    for (let i = 0; i < files.length; i += AT_ONCE)
      await Promise.all(
        files.slice(i, i + AT_ONCE).map(({ name }) => clone(path.join(source, name), path.join(target, name))),
      );
    for (const entry of entries) {
      const [inner, place] = [path.join(source, entry.name), path.join(target, entry.name)];
      if (entry.isSymbolicLink()) await symlink(await readlink(inner), place);
      else if (entry.isDirectory()) await copyEntries(inner, place);
    }
  };
  try {
    await copyEntries(from, to);
    return true;
  } catch {
    await rm(to, { recursive: true, force: true });
    return false;
  }
}

export interface CopiedFiles {
  /** Patterns as in `.gitignore`, from the workspace on. */
  readonly patterns: readonly string[];
  /** Index of the snapshot: what it holds is in the tree already. */
  readonly index: string;
  /** The folder of the worktree. */
  readonly tree: string;
  /** Entries of the workspace that are linked. */
  readonly links: readonly string[];
}

/** Copies files of the caller that are in no snapshot. Throws `WorktreeError` where they are too many or too large. */
export async function copyIgnoredFiles(own: OwnGit, { patterns, index, tree, links }: CopiedFiles): Promise<void> {
  if (patterns.length === 0) return;
  const { prefix, top } = own.repository;
  const excludes = patterns.map((pattern) => `--exclude=${anchorPattern(pattern, readableName(prefix))}`);
  // Of these patterns alone: files that the index lacks are those that the repository ignores.
  const { out } = await own.run(['ls-files', '-o', '-i', '-z', ...excludes], { index });
  const names = unpackNames(out)
    .filter((name) => name.startsWith(prefix) && !name.endsWith('/'))
    .filter((name) => !links.some((link) => name.startsWith(`${prefix}${byteName(link)}/`)))
    .filter((name) => !isProtectedName(readableName(name.slice(prefix.length))));
  if (names.length > MAX_COPIED)
    throw new WorktreeError(`delegation.worktree_copy means ${names.length} files, at most ${MAX_COPIED} are allowed`);
  let left = MAX_COPIED_BYTES;
  for (const name of names) {
    left -= await copyFile(top, tree, { name, limit: left });
    if (left < 0)
      throw new WorktreeError(`delegation.worktree_copy means more than ${MAX_COPIED_BYTES} bytes; name fewer files`);
  }
}

function anchorPattern(pattern: string, prefix: string): string {
  const isAnchored = pattern.replace(/\/$/, '').includes('/');
  if (!isAnchored) return pattern;
  return `/${prefix.replace(/[\\*?[\]]/g, '\\$&')}${pattern.replace(/^\//, '')}`;
}

/** The bytes that were copied; links and other things than files are left out. */
async function copyFile(
  top: string,
  tree: string,
  { name, limit }: { readonly name: string; readonly limit: number },
): Promise<number> {
  const [from, to] = [joinBytes(top, name), joinBytes(tree, name)];
  const folder = path.posix.dirname(name);
  if (!(await isPlainFolder(top, folder))) return 0;
  const source = await open(from, O_RDONLY | O_NOFOLLOW).catch(() => null);
  if (source === null) return 0;
  try {
    const found = await source.stat();
    if (!found.isFile()) return 0;
    if (found.size > limit) return found.size;
    await mkdir(joinBytes(tree, folder), { recursive: true }).catch(() => {});
    if (!(await isPlainFolder(tree, folder))) return 0;
    const target = await open(to, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, found.mode & 0o777).catch(() => null);
    if (target === null) return 0;
    try {
      await target.writeFile(await source.readFile());
    } finally {
      await target.close();
    }
    return found.size;
  } finally {
    await source.close();
  }
}

function joinBytes(folder: string, name: string): Buffer {
  return Buffer.from(`${byteName(folder)}/${name}`, 'latin1');
}

/** Whether no part of the folder is a link. */
async function isPlainFolder(root: string, folder: string): Promise<boolean> {
  if (folder === '.') return true;
  const place = joinBytes(root, folder);
  const real = await realpath(place, { encoding: 'buffer' }).catch(() => null);
  return real !== null && Buffer.compare(real, place) === 0;
}

export function cloneByReflink(from: string, to: string): Promise<void> {
  return copyWhole(from, to, constants.COPYFILE_FICLONE_FORCE);
}
