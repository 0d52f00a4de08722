// Which paths of a worker's tree are no part of its result (20 §2.3).
import { readlink } from 'node:fs/promises';
import path from 'node:path';
import { WorktreeError } from '#core/ports/worktrees.ts';
import type { WorktreeRecord } from '#protocol/file-change.ts';
import { isDefinitionFolder } from '../workspace/worker-files.ts';
import { byteName, readableName, unpackNames } from './git.ts';
import type { OwnGit } from './repository.ts';

interface ChangedPaths {
  readonly added: readonly string[];
  readonly gone: readonly string[];
}

/**
 * The paths that do not collide with a refused one, which git would replace by a path above or below it. What a path that is
 * not added was to take the place of stays, too.
 */
export function dropColliding({ added, gone }: ChangedPaths, refused: ReadonlySet<string>): ChangedPaths {
  const holding = new Set([...refused].flatMap((name) => listAncestry(name).slice(1)));
  const collides = (name: string) => holding.has(name) || listAncestry(name).some((one) => refused.has(one));
  const rejected = new Set([...refused, ...added.filter(collides)]);
  return {
    added: added.filter((name) => !rejected.has(name)),
    gone: gone.filter((name) => !listAncestry(name).some((one) => rejected.has(one))),
  };
}

/** A path and the folders above it, the deepest first. */
function listAncestry(name: string): readonly string[] {
  const parts = name.split('/');
  return parts.map((_, i) => parts.slice(0, parts.length - i).join('/'));
}

/**
 * Whether a path is a link that no result holds: one that leads out of the worker's tree, or that is named as a folder of
 * worker definitions.
 */
export async function isForbiddenLink({ folder, tree_path }: WorktreeRecord, name: string): Promise<boolean> {
  const file = `${byteName(folder)}/${name}`;
  const target = await readLinkAt(file);
  if (target === null) return false;
  const root = byteName(tree_path);
  if (isDefinitionFolder(readableName(file.slice(root.length + 1)))) return true;
  return !(await isInside(root, path.posix.dirname(file), target));
}

const NAMES_AT_ONCE = 100;
const LINK_MODE = '120000';

/**
 * Throws `WorktreeError` for changes that can neither be recorded nor be left out: a link in the caller's workspace leads out
 * in their place meanwhile. A link that the worker began with is no part of the workspace, nor is what it put there.
 * @param names as bytes, below the work tree
 */
export async function refuseMovedPaths(own: OwnGit, base_tree: string, names: readonly string[]): Promise<void> {
  for (let i = 0; i < names.length; i += NAMES_AT_ONCE) {
    const ways = names.slice(i, i + NAMES_AT_ONCE).map(listAncestry);
    const asked = [...new Set(ways.flat())].map(readableName);
    const { out } = await own.run(['ls-tree', '-z', '-t', '--full-tree', base_tree, '--', ...asked]);
    const modes = new Map(unpackNames(out).map((entry) => [entry.slice(entry.indexOf('\t') + 1), entry.split(' ')[0]]));
    const moved = ways.find((way) => modes.get(way.find((name) => modes.has(name)) ?? '') !== LINK_MODE)?.[0];
    if (moved !== undefined)
      throw new WorktreeError(
        `${readableName(moved.slice(own.repository.prefix.length))} cannot be recorded: a link in the workspace leads out of it meanwhile`,
      );
  }
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
