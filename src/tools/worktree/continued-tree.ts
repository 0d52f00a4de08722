// The worktree of a worker that continues another one whose changes were not applied: it starts from their merge (20 §3).
import type { WorktreeRecord } from '#protocol/file-change.ts';
import { unpackNames } from './git.ts';
import type { Difference, OwnGit } from './repository.ts';
import { compareTrees } from './snapshot.ts';

/** What an earlier worker left, as trees. */
export type EarlierTree = Pick<WorktreeRecord, 'session_id' | 'base_tree'> & { readonly result_tree: string };

/** A file of the merge and the kinds of marker lines that the merge put into it; none = a conflict without lines to mark. */
type Marked = readonly [name: string, kinds: readonly number[]];

/** The tree that a worker starts from. */
export interface StartTree {
  readonly tree: string;
  readonly marked: readonly Marked[];
}

/** The lines that git writes around the two sides of a conflict. */
const MARKERS = [/^<{7} /m, /^={7}\r?$/m, /^>{7} /m];
/** A heading may be underlined like this. */
const SEPARATOR = 1;
const MAX_FILE_BYTES = 16 * 1024 * 1024;
const OURS = 'workspace';
const THEIRS = 'worker';

/**
 * Merges what an earlier worker left into the caller's workspace as it is now, with markers around conflicts.
 * @param base_tree the caller's workspace
 * @param known files of the earlier worker in which markers are left
 */
export async function mergeEarlier(
  own: OwnGit,
  base_tree: string,
  earlier: EarlierTree,
  known: readonly Marked[],
): Promise<StartTree> {
  const base = await commitTree(own, earlier.base_tree, null, 'base');
  // The names of the two sides, as the markers have them.
  await own.run(['update-ref', `refs/heads/${OURS}`, await commitTree(own, base_tree, base, OURS)]);
  await own.run(['update-ref', `refs/heads/${THEIRS}`, await commitTree(own, earlier.result_tree, base, THEIRS)]);
  const args = ['merge-tree', '--write-tree', '-z', '--name-only', '--no-messages', OURS, THEIRS];
  const [tree = '', ...conflicts] = unpackNames((await own.run(args, { codes: [0, 1] })).out);
  const before = indexByName(await compareTrees(own, tree, base_tree));
  const theirs = indexByName(await compareTrees(own, tree, earlier.result_tree));
  const marked: Marked[] = [];
  const inConflict = new Set(conflicts);
  for (const name of new Set([...conflicts, ...known.map(([path]) => path)])) {
    const difference = before.get(name);
    if (difference?.before == null) {
      if (inConflict.has(name)) marked.push([name, []]);
      continue;
    }
    const own_kinds = await readKinds(own, difference.after?.oid);
    const their_kinds = await readKinds(own, theirs.get(name)?.after?.oid);
    const isNew = (kind: number) => !own_kinds.has(kind) && (kind !== SEPARATOR || !their_kinds.has(kind));
    const found = await readKinds(own, difference.before.oid);
    const kinds = [...found].filter(isNew);
    if (kinds.length > 0 || (found.size === 0 && inConflict.has(name))) marked.push([name, kinds]);
  }
  return { tree, marked };
}

/** Stores a start as a commit, so that the end of the worker finds which files had markers. */
export function commitStart(own: OwnGit, { tree, marked }: StartTree, base: string): Promise<string> {
  return commitTree(own, tree, base, JSON.stringify(marked));
}

/** The files of a start in which the worker left markers. @param start commit of `commitStart` */
export async function readLeft(
  own: OwnGit,
  start: string,
  { base_tree, result_tree }: Pick<WorktreeRecord, 'base_tree' | 'result_tree'>,
): Promise<readonly Marked[]> {
  if (result_tree === null) return [];
  const marked = await readMarked(own, start);
  const changes = indexByName(await compareTrees(own, base_tree, result_tree));
  const left: Marked[] = [];
  for (const [name, kinds] of marked) {
    const found = await readKinds(own, changes.get(name)?.after?.oid);
    if (kinds.some((kind) => found.has(kind))) left.push([name, kinds]);
  }
  return left;
}

/** The files of a start in which both sides conflict and no line could be marked. */
export async function readUnmarked(own: OwnGit, start: string): Promise<readonly string[]> {
  const marked = await readMarked(own, start);
  return marked.flatMap(([name, kinds]) => (kinds.length === 0 ? [name] : []));
}

async function readMarked(own: OwnGit, start: string): Promise<readonly Marked[]> {
  const { out } = await own.run(['cat-file', 'commit', start]);
  const text = out.toString('utf8');
  return JSON.parse(text.slice(text.indexOf('\n\n') + 2)) as readonly Marked[];
}

function indexByName(differences: readonly Difference[]): ReadonlyMap<string, Difference> {
  return new Map(differences.map((difference) => [difference.name, difference]));
}

/** The kinds of marker lines in a file. */
async function readKinds(own: OwnGit, oid: string | undefined): Promise<ReadonlySet<number>> {
  if (oid === undefined) return new Set();
  const { out } = await own.run(['cat-file', 'blob', oid], { maxBytes: MAX_FILE_BYTES, cut: true });
  const text = out.toString('latin1');
  return new Set(MARKERS.flatMap((marker, kind) => (marker.test(text) ? [kind] : [])));
}

/** The commit of a tree. */
export async function commitTree(own: OwnGit, tree: string, parent: string | null, message: string): Promise<string> {
  const parents = parent === null ? [] : ['-p', parent];
  const input = Buffer.from(message, 'utf8');
  const { out } = await own.run(['commit-tree', tree, ...parents, '-F', '-'], { input });
  return out.toString('utf8').trim();
}
