// What is stored beside a worktree: the repository that it is of, and the folders of the caller that it links to (20 §2.2). A start removes by it what processes that have died left (20 §2.7).
import { lstat, mkdir, readdir, readFile, rename, rm, rmdir, writeFile } from 'node:fs/promises';
import type { Logger } from '#core/ports/logger.ts';
import type { Worktrees } from '#core/ports/worktrees.ts';
import type { SessionId } from '#protocol/ids.ts';
import { readErrorMessage } from '#protocol/text/error-message.ts';
import { errorCode, runExclusive } from '../workspace/descriptors.ts';
import { removeTree } from '../workspace/remove-tree.ts';
import { killStray } from './git.ts';

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

/** A git folder while it is made or removed: its name leads to its session tree, whatever it holds. */
function namePart(gitFolder: string, tree: SessionId | undefined): string {
  return `${gitFolder}~${tree ?? ''}`;
}

/** Makes a git folder with its origin, in one step; one that is there gets the origin. */
export function openGitFolder(gitFolder: string, origin: Origin): Promise<void> {
  return runExclusive(gitFolder, async () => {
    const isThere = await lstat(gitFolder).then(
      () => true,
      () => false,
    );
    if (isThere) return writeOrigin(gitFolder, origin);
    const part = namePart(gitFolder, origin.tree);
    await removeTree(part);
    await mkdir(part, { recursive: true, mode: 0o700 });
    await writeFile(`${part}/origin.json`, JSON.stringify(origin));
    await rename(part, gitFolder);
  });
}

/** Removes a git folder. Nothing happens where it is missing. */
export function removeGitFolder(gitFolder: string): Promise<void> {
  return runExclusive(gitFolder, async () => {
    const origin = await readOrigin(gitFolder).catch(() => null);
    const part = namePart(gitFolder, origin?.tree);
    await removeTree(part);
    await rename(gitFolder, part).catch((error: unknown) => {
      if (errorCode(error) !== 'ENOENT') throw error;
    });
    await removeTree(part);
  });
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

/** The name of the folder in which the check of a worker runs. */
export function nameCheck(id: string): string {
  return `${id}-check`;
}

/** The session, whether it is of a check, and the session tree of one that was being made or removed. */
const OWN_FOLDER = /^(sess_[0-9A-Z]{26})(-check)?\.git(?:(~)(sess_[0-9A-Z]{26})?)?$/;

/** Implements `Worktrees.endStray`. */
export async function endStrayCommands(home: string, tree: SessionId | undefined): Promise<number> {
  for (const name of await readdir(home).catch(() => [])) {
    const [, id, , part, named] = OWN_FOLDER.exec(name) ?? [];
    if (id === undefined) continue;
    const owner = part === undefined ? (await readOrigin(`${home}/${name}`).catch(() => null))?.tree : named;
    if (tree === undefined || owner === tree) return killStray(home);
  }
  return 0;
}

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
  { isOwn, isKept, hasRecord }: Parameters<Worktrees['sweep']>[0],
): Promise<readonly SessionId[]> {
  const removed: SessionId[] = [];
  for (const name of await readdir(home).catch(() => [])) {
    const [, id, check, part, named] = (OWN_FOLDER.exec(name) ?? []) as (SessionId | undefined)[];
    if (id === undefined) continue;
    try {
      const origin = await readOrigin(`${home}/${name}`).catch(() => null);
      const { mtimeMs: modified_at } = await lstat(`${home}/${name}`);
      if (isOwn && !(await isOwn({ id, tree: origin?.tree ?? named ?? null, modified_at }))) continue;
      if (part !== undefined) {
        await removeTree(`${home}/${name}`);
        if (check === undefined) removed.push(id);
        continue;
      }
      if (await isKept(id)) continue;
      if (origin === null) {
        if (await removeUnfinished(`${home}/${name}`)) removed.push(id);
        continue;
      }
      const isCheck = check !== undefined;
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
