// Merges what a worker left with a tree of its caller's workspace (20 §2.5).
import { type Merge, WorktreeError } from '#core/ports/worktrees.ts';
import type { WorktreeRecord } from '#protocol/file-change.ts';
import { commitTree } from './continued-tree.ts';
import { readableName, unpackNames } from './git.ts';
import type { OwnGit } from './repository.ts';
import { compareTrees } from './snapshot.ts';

const MODULE_MODE = '160000';

/** Merges a recorded result with a tree of the caller's workspace. Throws `WorktreeError`. */
export async function mergeResult(
  own: OwnGit,
  { base_tree, result_tree }: WorktreeRecord,
  from: string,
): Promise<Merge> {
  if (result_tree === null) throw new WorktreeError('the worker has left no result yet');
  const { prefix } = own.repository;
  const show = (name: string) => readableName(name.startsWith(prefix) ? name.slice(prefix.length) : name);
  const { tree, conflicts } = await mergeTrees(own, { base: base_tree, ours: from, theirs: result_tree });
  if (conflicts !== null) return { kind: 'conflict', paths: [...new Set(conflicts.map(show))].sort() };
  // A renamed file may take a change along to where this worker may not write.
  const outside = (await compareTrees(own, from, tree)).filter(
    ({ name, before, after }) =>
      !name.startsWith(prefix) || before?.mode === MODULE_MODE || after?.mode === MODULE_MODE,
  );
  if (outside.length > 0) return { kind: 'conflict', paths: outside.map(({ name }) => show(name)) };
  return { kind: 'clean', from, tree };
}

/** The merged tree. `conflicts` = their paths as bytes; null = none. */
async function mergeTrees(
  own: OwnGit,
  { base, ours, theirs }: { readonly base: string; readonly ours: string; readonly theirs: string },
): Promise<{ readonly tree: string; readonly conflicts: readonly string[] | null }> {
  // Where one side is as it was, the merge is the other one: four commands of git less.
  if (ours === base) return { tree: theirs, conflicts: null };
  if (theirs === base) return { tree: ours, conflicts: null };
  const parent = await commitTree(own, base, null, 'base');
  const commits = [await commitTree(own, ours, parent, 'ours'), await commitTree(own, theirs, parent, 'result')];
  const args = ['merge-tree', '--write-tree', '-z', '--name-only', '--no-messages', ...commits];
  const { code, out } = await own.run(args, { codes: [0, 1] });
  const [tree = '', ...conflicts] = unpackNames(out);
  return { tree, conflicts: code === 1 ? conflicts.map((name) => stripSide(name, commits)) : null };
}

/** A file in the place of the other side's folder is listed as `file~<commit>`, which is in neither tree. */
function stripSide(name: string, commits: readonly string[]): string {
  const side = commits.find((commit) => name.includes(`~${commit}`));
  return side === undefined ? name : name.slice(0, name.lastIndexOf(`~${side}`));
}
