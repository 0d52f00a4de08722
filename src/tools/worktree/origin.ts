// What is stored beside a worktree: the repository that it is of, and the folders of the caller that it links to (20 §2.2). A start removes by it what processes that have died left (20 §2.7).
import { readdir, readFile, readlink, rename, rm, rmdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import type { Logger } from '#core/ports/logger.ts';
import type { Worktrees } from '#core/ports/worktrees.ts';
import type { WorktreeRecord } from '#protocol/file-change.ts';
import type { SessionId } from '#protocol/ids.ts';
import { readErrorMessage } from '#protocol/text/error-message.ts';
import { removeTree } from '../workspace/remove-tree.ts';
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

/** Removes a git folder, its origin last: what a process that dies within leaves can be found and removed. */
export async function removeGitFolder(gitFolder: string): Promise<void> {
  const names = await readdir(gitFolder).catch(() => []);
  for (const name of names) if (name !== 'origin.json') await removeTree(`${gitFolder}/${name}`);
  await removeTree(gitFolder);
}

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
  const target = await readLinkAt(bytes.toString('latin1'));
  if (target === null) return false;
  return !(await isInside(byteName(tree_path), path.posix.dirname(bytes.toString('latin1')), target));
}

/** Links that are followed on one way. */
const MAX_LINKS = 40;

/**
 * Whether a link's way never leaves the tree, by whatever links it goes. An absolute one does: elsewhere the tree has another
 * place.
 */
async function isInside(root: string, folder: string, target: string): Promise<boolean> {
  let at = folder;
  let links = 0;
  if (target.startsWith('/')) return false;
  const ahead = target.split('/').reverse();
  for (let part = ahead.pop(); part !== undefined; part = ahead.pop()) {
    if (part === '' || part === '.') continue;
    at = part === '..' ? path.posix.dirname(at) : `${at}/${part}`;
    if (at !== root && !at.startsWith(`${root}/`)) return false;
    const next = part === '..' ? null : await readLinkAt(at);
    if (next === null) continue;
    links += 1;
    if (links > MAX_LINKS || next.startsWith('/')) return false;
    at = path.posix.dirname(at);
    ahead.push(...next.split('/').reverse());
  }
  return true;
}

/** Names as bytes. Null for what is no link. */
async function readLinkAt(name: string): Promise<string | null> {
  const target = await readlink(Buffer.from(name, 'latin1'), { encoding: 'buffer' }).catch(() => null);
  return target?.toString('latin1') ?? null;
}

/** The name of the folder in which the check of a worker runs. */
export function nameCheck(id: string): string {
  return `${id}-check`;
}

const OWN_FOLDER = /^(sess_[0-9A-Z]{26})(-check)?\.git$/;

interface Sweeper {
  /** The folder that holds all worktrees. */
  readonly home: string;
  readonly log: Logger;
  readonly removeRefs: Worktrees['removeRefs'];
  removeFolder(id: string, repository: string): Promise<void>;
}

/** Implements `Worktrees.sweep`. */
export async function sweepFolders(
  { home, log, removeRefs, removeFolder }: Sweeper,
  { tree, isInTree, isKept, hasRecord }: Parameters<Worktrees['sweep']>[0],
): Promise<readonly SessionId[]> {
  const removed: SessionId[] = [];
  for (const name of await readdir(home).catch(() => [])) {
    const found = OWN_FOLDER.exec(name);
    const id = found?.[1] as SessionId | undefined;
    if (found === null || id === undefined) continue;
    const origin = await readOrigin(`${home}/${name}`).catch(() => null);
    // One that was opened again for its refs, after its removal, names no tree.
    const isOwn = tree === undefined || origin?.tree === tree || (origin?.tree === undefined && (await isInTree(id)));
    if (!isOwn || (await isKept(id))) continue;
    try {
      if (origin === null) {
        if (await removeUnfinished(`${home}/${name}`)) removed.push(id);
        continue;
      }
      const isCheck = found[2] !== undefined;
      const { repository, root: caller_path } = origin;
      if (!isCheck && !(await hasRecord(id))) await removeRefs({ session_id: id, repository, caller_path });
      await removeFolder(isCheck ? nameCheck(id) : id, repository);
      if (!isCheck) removed.push(id);
    } catch (error) {
      log.warn({ session_id: id, problem: readErrorMessage(error) }, 'a worktree that is left cannot be removed');
    }
  }
  return removed;
}
