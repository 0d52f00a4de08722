// A folder as a tree of git, with an index of our own: what is tracked and what is not ignored, as it is now (20 §2.1).
import { copyFile, lstat, readdir, rm, stat, utimes } from 'node:fs/promises';
import { WorktreeError } from '#core/ports/worktrees.ts';
import type { FileChange } from '#protocol/file-change.ts';
import { isProtectedName } from '../workspace/confined-files.ts';
import { awaitAll, type Git, packNames, readableName, unpackNames } from './git.ts';
import { type Difference, isFile, type OwnGit, type Repository } from './repository.ts';
import { dropColliding } from './result-paths.ts';

/** Of the files that differ from the index. */
const MAX_FILES = 100_000;
const MAX_FILE_BYTES = 512 * 1024 * 1024;
const MAX_BYTES = 2 * 1024 * 1024 * 1024;
const AT_ONCE = 64;

/** Copies an index, no newer than it is: git compares its time with those of the files to find changes of the same moment. */
export async function copyIndex(from: string, to: string): Promise<void> {
  if (!(await isFile(from))) throw new WorktreeError(`${from} is no regular file`);
  await copyFile(from, to);
  const seconds = Number((await stat(from, { bigint: true })).mtimeNs / 1_000_000_000n);
  await utimes(to, seconds, seconds);
}

/** Copies the user's index; without one every file counts as new. */
export async function takeIndex(git: Git, repository: Repository, to: string): Promise<void> {
  const { git_dir } = repository;
  if ((await lstat(`${git_dir}/index`).catch(() => null)) === null) return;
  await copyIndex(`${git_dir}/index`, to);
  const isSplit = (await readdir(git_dir)).some((name) => name.startsWith('sharedindex.'));
  if (!isSplit) return;
  // The shared half is found beside the user's index alone.
  await git({
    args: [`--git-dir=${git_dir}`, `--work-tree=${repository.top}`, 'update-index', '--no-split-index'],
    cwd: repository.top,
    env: { GIT_INDEX_FILE: to },
  });
}

export interface SnapshotOptions {
  /** The folder with the files. */
  readonly tree: string;
  /** Index that the snapshot begins with, and that holds it afterwards. */
  readonly index: string;
  /** Paths below the work tree, with the workspace's prefix, that are left out with all below them. */
  readonly links: readonly string[];
  /** The part of the tree that counts, with a final slash; '' = all of it. */
  readonly within: string;
  /** Changes of these paths are left as the index has them; absent = none. */
  readonly isKept?: (name: string) => Promise<boolean>;
}

/** The id of the tree. Throws `WorktreeError`. */
export async function snapshot(own: OwnGit, options: SnapshotOptions): Promise<string> {
  const { tree, index, within } = options;
  const at = { tree, index };
  // Of a command that was killed: nothing else works on this index.
  await rm(`${own.dir}/${index}.lock`, { force: true });
  const scope = within === '' ? [] : ['--', readableName(within)];
  const [differing, untracked] = await awaitAll<[NameStatus[], string[]]>([
    prepareIndex(own, options).then(() => listDiffering(own, at, scope)),
    listUntracked(own, options, scope),
  ]);
  const isLinked = (name: string) => options.links.some((link) => name === link || name.startsWith(`${link}/`));
  const changed = { gone: [] as string[], added: [] as string[] };
  const refused = new Set<string>();
  for (const { name, status } of [...differing, ...untracked.map((name) => ({ name, status: 'A' }))]) {
    if (isLinked(name) || isProtectedBelow(name, own.repository.prefix)) continue;
    if (options.isKept && !(await options.isKept(name))) refused.add(name);
    else (status === 'D' ? changed.gone : changed.added).push(name);
  }
  const { gone, added } = refused.size === 0 ? changed : dropColliding(changed, refused);
  const kept = await selectKept(tree, added);
  if (gone.length > 0)
    await own.run(['update-index', '--force-remove', '-z', '--stdin'], { ...at, input: packNames(gone) });
  if (kept.length > 0)
    await own.run(['update-index', '--add', '--remove', '--replace', '-z', '--stdin'], {
      ...at,
      input: packNames(kept),
    });
  return (await own.run(['write-tree'], at)).out.toString('utf8').trim();
}

/** Below the workspace, whose protected files no model may write (09 §8). */
function isProtectedBelow(name: string, prefix: string): boolean {
  return name.startsWith(prefix) && isProtectedName(readableName(name.slice(prefix.length)));
}

/** Takes protected files out of the index, and the marks by which git would not look at files; ends conflicts as ours. */
async function prepareIndex(own: OwnGit, { tree, index }: SnapshotOptions): Promise<void> {
  const at = { tree, index };
  const { out } = await own.run(['ls-files', '-v', '-z'], at);
  const dropped: string[] = [];
  const assumed: string[] = [];
  let isMerging = false;
  for (const line of unpackNames(out)) {
    const [mark = '', name] = [line[0], line.slice(2)];
    if (mark === 'S' || mark === 's')
      throw new WorktreeError('the workspace is a sparse checkout, of which no worktree can be made');
    if (isProtectedBelow(name, own.repository.prefix)) dropped.push(name);
    else if (mark === 'h') assumed.push(name);
    else if (mark === 'M') isMerging = true;
  }
  if (dropped.length > 0)
    await own.run(['update-index', '--force-remove', '-z', '--stdin'], { ...at, input: packNames(dropped) });
  if (assumed.length > 0)
    await own.run(['update-index', '--no-assume-unchanged', '-z', '--stdin'], { ...at, input: packNames(assumed) });
  if (isMerging) await endConflicts(own, at);
}

/** What lies on the disk is taken afterwards; a submodule, or a FIFO in the place of a file, stays as this entry. */
async function endConflicts(own: OwnGit, at: { readonly tree: string; readonly index: string }): Promise<void> {
  const chosen = new Map<string, { readonly stage: string; readonly entry: string }>();
  for (const line of unpackNames((await own.run(['ls-files', '-u', '-z'], at)).out)) {
    const tab = line.indexOf('\t');
    const [mode = '', oid = '', stage = ''] = line.slice(0, tab).split(' ');
    const name = line.slice(tab + 1);
    // They come in the order base, ours, theirs.
    if (chosen.get(name)?.stage !== '2') chosen.set(name, { stage, entry: `${mode} ${oid}` });
  }
  const lines = [...chosen].map(([name, { entry }]) => {
    const none = entry.slice(7).replace(/./g, '0');
    return `0 ${none}\t${name}\0${entry}\t${name}\0`;
  });
  const input = Buffer.from(lines.join(''), 'latin1');
  await own.run(['update-index', '--replace', '-z', '--index-info'], { ...at, input });
}

interface NameStatus {
  readonly name: string;
  readonly status: string;
}

async function listDiffering(
  own: OwnGit,
  at: { readonly tree: string; readonly index: string },
  scope: string[],
): Promise<NameStatus[]> {
  // Unlike `diff-files`, it compares the content of a file that is newer than its entry, and so needs no refreshed index.
  const args = ['diff', '-z', '--name-status', '--no-renames', '--no-ext-diff', '--ignore-submodules=all', ...scope];
  const fields = unpackNames((await own.run(args, at)).out);
  const found: NameStatus[] = [];
  for (let i = 0; i + 1 < fields.length; i += 2) found.push({ name: fields[i + 1]!, status: fields[i]! });
  return found;
}

async function listUntracked(own: OwnGit, { tree, index, links }: SnapshotOptions, scope: string[]) {
  const { common_dir, settings } = own.repository;
  const files = [`${common_dir}/info/exclude`, settings.get('core.excludesfile') ?? ''];
  const excludes: string[] = [];
  for (const file of files) if (file !== '' && (await isFile(file))) excludes.push(`--exclude-from=${file}`);
  for (const link of links) excludes.push(`--exclude=/${readableName(link).replace(/[\\*?[\]!#]/g, '\\$&')}`);
  const args = ['ls-files', '-o', '-z', ...excludes, '--exclude-per-directory=.gitignore', ...scope];
  // A folder that is a repository of its own is listed with a final slash.
  return unpackNames((await own.run(args, { tree, index })).out).filter((name) => !name.endsWith('/'));
}

/** What git can store. FIFOs, sockets and devices stay as the index has them. Throws `WorktreeError` where it is too much. */
async function selectKept(tree: string, names: readonly string[]): Promise<readonly string[]> {
  if (names.length > MAX_FILES)
    throw new WorktreeError(`${names.length} files are new or changed, at most ${MAX_FILES} are allowed`);
  let bytes = 0;
  const kept: string[] = [];
  for (let i = 0; i < names.length; i += AT_ONCE) {
    const sizes = await Promise.all(names.slice(i, i + AT_ONCE).map((name) => readSize(tree, name)));
    sizes.forEach((size, n) => {
      if (size === null) return;
      kept.push(names[i + n]!);
      if (size > MAX_FILE_BYTES)
        throw new WorktreeError(`${readableName(names[i + n]!)} is too large: ${size} bytes; let git ignore it`);
      bytes += size;
    });
    if (bytes > MAX_BYTES)
      throw new WorktreeError(`new and changed files have more than ${MAX_BYTES} bytes; let git ignore some`);
  }
  return kept;
}

/** Null for what is neither file, link nor folder. */
async function readSize(tree: string, name: string): Promise<number | null> {
  const found = await lstat(Buffer.from(`${Buffer.from(tree, 'utf8').toString('latin1')}/${name}`, 'latin1')).catch(
    () => null,
  );
  if (found !== null && !found.isFile() && !found.isSymbolicLink() && !found.isDirectory()) return null;
  return found?.size ?? 0;
}

/** What is kept of the comparisons of one worktree: a worker's are its base with its result, over and over. */
const MAX_COMPARISONS = 8;
const MAX_KEPT_DIFFERENCES = 10_000;

/** The paths in which two trees differ, in the order of their bytes. */
export async function compareTrees(own: OwnGit, from: string, to: string): Promise<readonly Difference[]> {
  const key = `${from} ${to}`;
  const known = own.comparisons.get(key);
  if (known !== undefined) return known;
  const found = await findDifferences(own, from, to);
  if (own.comparisons.size >= MAX_COMPARISONS) own.comparisons.clear();
  if (found.length <= MAX_KEPT_DIFFERENCES) own.comparisons.set(key, found);
  return found;
}

async function findDifferences(own: OwnGit, from: string, to: string): Promise<readonly Difference[]> {
  const { out } = await own.run(['diff-tree', '-r', '-z', '--no-renames', from, to]);
  const fields = unpackNames(out);
  const found: Difference[] = [];
  for (let i = 0; i + 1 < fields.length; i += 2) {
    const [oldMode = '', mode = '', oldOid = '', oid = ''] = fields[i]!.slice(1).split(' ');
    found.push({
      name: fields[i + 1]!,
      before: /^0+$/.test(oldMode) ? null : { mode: oldMode, oid: oldOid },
      after: /^0+$/.test(mode) ? null : { mode, oid },
    });
  }
  return found;
}

/** The tree with these paths as they were before; whatever has taken the place of one of them goes. */
export async function restoreEntries(
  own: OwnGit,
  index: string,
  { tree, changes }: { readonly tree: string; readonly changes: readonly Difference[] },
): Promise<string> {
  if (changes.length === 0) return tree;
  const gone = changes.filter(({ before }) => before === null);
  const kept = changes.filter(({ before }) => before !== null);
  const lines = [
    ...gone.map(({ name, after }) => `0 ${'0'.repeat(after!.oid.length)}\t${name}\0`),
    ...kept.map(({ name, before }) => `${before!.mode} ${before!.oid}\t${name}\0`),
  ];
  const input = Buffer.from(lines.join(''), 'latin1');
  await own.run(['update-index', '-z', '--index-info'], { index, input });
  return (await own.run(['write-tree'], { index })).out.toString('utf8').trim();
}

/** The change of a file, relative to the workspace at this prefix. */
export function toFileChange({ name, before, after }: Difference, prefix: string): FileChange {
  const shown = readableName(name.startsWith(prefix) ? name.slice(prefix.length) : name);
  if (before === null) return { path: shown, change: 'created' };
  return { path: shown, change: after === null ? 'deleted' : 'edited' };
}

export function byPath(a: FileChange, b: FileChange): number {
  if (a.path === b.path) return 0;
  return a.path < b.path ? -1 : 1;
}
