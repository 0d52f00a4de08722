// The repository of a folder, and a git folder of our own on its objects: nothing that the repository configures runs (20 §2.1).
import { copyFile, lstat, mkdir, readdir, realpath, rm, rmdir, stat, writeFile } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import path from 'node:path';
import { WorktreeError } from '#core/ports/worktrees.ts';
import type { WorktreeRecord } from '#protocol/file-change.ts';
import { readErrorMessage } from '#protocol/text/error-message.ts';
import type { CaseStart } from '#protocol/what-if/case.ts';
import { awaitAll, byteName, type Git, type GitAnswer, readableName } from './git.ts';

/** `merge-tree --write-tree` came with it. */
const OLDEST_GIT = [2, 38] as const;
/** Settings that decide how files become objects and back; no other setting is taken over. */
const CARRIED = [
  'core.autocrlf',
  'core.eol',
  'core.filemode',
  'core.symlinks',
  'core.ignorecase',
  'core.precomposeunicode',
  'core.sharedrepository',
  'core.attributesfile',
];

/** Processes of one checkout; git starts them from 100 files on. */
const MAX_CHECKOUT_WORKERS = 8;

/** Far above any file of attributes that a person writes. */
const MAX_ATTRIBUTE_BYTES = 16 * 1024 * 1024;

export interface Repository {
  /** The folder of the work tree. */
  readonly top: string;
  /** The workspace's place below it, as bytes with a final slash; '' = the work tree itself. */
  readonly prefix: string;
  /** The git folder of this work tree: its index and HEAD. */
  readonly git_dir: string;
  /** The git folder that all work trees share: objects and refs. */
  readonly common_dir: string;
  readonly head: string | null;
  readonly object_format: string;
  readonly settings: ReadonlyMap<string, string>;
}

/**
 * Throws `WorktreeError` with the reason why no worktree can be made of this folder.
 * @param home the user's folder, for settings that begin with `~/`
 */
export async function inspectRepository(git: Git, root: string, home: string): Promise<Repository> {
  const places = git({
    args: [
      'rev-parse',
      '--is-inside-work-tree',
      '--show-object-format',
      '--path-format=absolute',
      '--show-toplevel',
      '--git-dir',
      '--git-common-dir',
      // Without a commit there is no line for it.
      '--verify',
      '-q',
      'HEAD^{commit}',
    ],
    cwd: root,
    codes: [0, 1],
  }).catch((error: unknown) => {
    throw new WorktreeError(`the workspace lies in no git work tree (${readErrorMessage(error)})`);
  });
  const [{ out }, settings] = await awaitAll<[GitAnswer, ReadonlyMap<string, string>]>([
    places,
    readSettings(git, root, home),
  ]);
  const [inside, object_format, top, git_dir, common_dir, head] = out.toString('utf8').split('\n');
  if (inside !== 'true' || !top || !git_dir || !common_dir || !object_format)
    throw new WorktreeError('the workspace lies in no git work tree');
  const real = await realpath(top);
  // True in a repository from a file system that takes `a` and `A` for the same: git would lose one of two files here.
  const isCaseIgnored = (await lstat(`${git_dir}/hEAD`).catch(() => null)) !== null;
  // `core.worktree` may name any folder: the work tree is the one around the workspace that holds `.git`.
  const holds = await lstat(`${real}/.git`).catch(() => null);
  if (holds === null || (root !== real && !root.startsWith(`${real}/`)))
    throw new WorktreeError('the workspace lies in no git work tree: the repository names another folder');
  if (isTrue(settings.get('core.sparsecheckout')))
    throw new WorktreeError('the workspace is a sparse checkout, of which no worktree can be made');
  return {
    top: real,
    prefix: findPrefix(real, root),
    git_dir,
    common_dir,
    head: head || null,
    object_format,
    settings: isCaseIgnored ? settings : new Map([...settings, ['core.ignorecase', 'false']]),
  };
}

/** Of a repository whose workspace is gone: enough to read objects. */
export async function inspectObjects(
  git: Git,
  { repository: common_dir, folder, tree_path }: Pick<WorktreeRecord, 'repository' | 'folder' | 'tree_path'>,
): Promise<Repository> {
  if (!(await isFolder(common_dir))) throw new WorktreeError(`the repository ${common_dir} does not exist`);
  const { out } = await runShared(git, { common_dir }, ['rev-parse', '--show-object-format']);
  return {
    top: common_dir,
    prefix: findPrefix(folder, tree_path),
    git_dir: common_dir,
    common_dir,
    head: null,
    object_format: out.toString('utf8').trim(),
    settings: new Map(),
  };
}

export function findPrefix(top: string, root: string): string {
  if (root === top) return '';
  return byteName(`${root.slice(top.length + 1)}/`);
}

/** The version of git. Throws `WorktreeError` for one that is missing or too old. */
export async function requireVersion(git: Git, cwd: string): Promise<string> {
  const text = (await git({ args: ['version'], cwd })).out.toString('utf8').trim();
  const [version, major, minor] = /(\d+)\.(\d+)(\.\d+)*/.exec(text) ?? [];
  const isOld = Number(major) < OLDEST_GIT[0] || (Number(major) === OLDEST_GIT[0] && Number(minor) < OLDEST_GIT[1]);
  if (version === undefined || isOld)
    throw new WorktreeError(`git ${OLDEST_GIT.join('.')} or newer is needed, this is ${text.slice(0, 60)}`);
  return version;
}

async function readSettings(git: Git, cwd: string, home: string): Promise<ReadonlyMap<string, string>> {
  const { out } = await git({ args: ['config', '--null', '--list'], cwd, codes: [0, 1], maxBytes: 1024 * 1024 });
  const wanted = new Set([...CARRIED, 'core.sparsecheckout', 'core.excludesfile', 'core.splitindex']);
  const found = new Map<string, string>();
  for (const entry of out.toString('utf8').split('\0')) {
    const end = entry.indexOf('\n');
    const name = end < 0 ? entry : entry.slice(0, end);
    // A name without a value means true.
    if (wanted.has(name)) found.set(name, end < 0 ? 'true' : entry.slice(end + 1));
  }
  for (const [name, standard] of [
    ['core.excludesfile', '~/.config/git/ignore'],
    ['core.attributesfile', '~/.config/git/attributes'],
  ] as const)
    found.set(name, (found.get(name) ?? standard).replace(/^~(?=\/)/, home));
  return found;
}

function isTrue(value: string | undefined): boolean {
  return value !== undefined && /^(true|yes|on|1)$/i.test(value);
}

/** An entry of a tree; null = the tree has none there. */
export interface Entry {
  readonly mode: string;
  readonly oid: string;
}

export interface Difference {
  /** As bytes. */
  readonly name: string;
  readonly before: Entry | null;
  readonly after: Entry | null;
}

/** A git folder of our own: commands run in it see the repository's objects, and none of its configuration. */
export interface OwnGit {
  readonly repository: Repository;
  readonly dir: string;
  /** Of trees that were compared, by their two ids: neither ever changes. */
  readonly comparisons: Map<string, readonly Difference[]>;
  /** @param index file of the index; relative to this git folder */
  run(
    args: readonly string[],
    rest?: {
      readonly index?: string;
      readonly tree?: string;
      readonly input?: Buffer;
      readonly codes?: readonly number[];
      readonly maxBytes?: number;
      readonly cut?: boolean;
    },
  ): ReturnType<Git>;
}

export async function openOwnGit(git: Git, repository: Repository, dir: string): Promise<OwnGit> {
  const { common_dir, object_format, settings } = repository;
  await mkdir(`${dir}/refs`, { recursive: true });
  await mkdir(`${dir}/objects`, { recursive: true });
  await mkdir(`${dir}/info`, { recursive: true });
  await writeFile(`${dir}/HEAD`, 'ref: refs/heads/none\n');
  const carried = new Map(settings);
  if (!(await isFile(settings.get('core.attributesfile') ?? ''))) carried.delete('core.attributesfile');
  await writeFile(`${dir}/config`, formatConfig(object_format, carried));
  const attributes = `${common_dir}/info/attributes`;
  if (await isFile(attributes, MAX_ATTRIBUTE_BYTES))
    await copyFile(attributes, `${dir}/info/attributes`).catch(() => {});
  const shallow = await lstat(`${common_dir}/shallow`).catch(() => null);
  return {
    repository,
    dir,
    comparisons: new Map(),
    run: (args, { index, tree = repository.top, ...rest } = {}) =>
      git({
        args,
        cwd: tree,
        env: {
          GIT_DIR: dir,
          GIT_WORK_TREE: tree,
          GIT_OBJECT_DIRECTORY: `${common_dir}/objects`,
          GIT_CONFIG_NOSYSTEM: '1',
          GIT_CONFIG_GLOBAL: '/dev/null',
          GIT_ATTR_NOSYSTEM: '1',
          ...(index === undefined ? {} : { GIT_INDEX_FILE: path.resolve(dir, index) }),
          ...(shallow === null ? {} : { GIT_SHALLOW_FILE: `${common_dir}/shallow` }),
          GIT_AUTHOR_NAME: 'metis',
          GIT_AUTHOR_EMAIL: 'metis@localhost',
          GIT_COMMITTER_NAME: 'metis',
          GIT_COMMITTER_EMAIL: 'metis@localhost',
        },
        ...rest,
      }),
  };
}

function formatConfig(objectFormat: string, settings: ReadonlyMap<string, string>): string {
  const lines = ['[core]', 'repositoryformatversion = 1', 'bare = false', 'safecrlf = false'];
  for (const name of CARRIED) {
    const value = settings.get(name);
    if (value !== undefined) lines.push(`${name.slice('core.'.length)} = ${quoteValue(value)}`);
  }
  lines.push('[extensions]', `objectformat = ${quoteValue(objectFormat)}`);
  // Most of a checkout is the kernel's time for new files.
  lines.push('[checkout]', `workers = ${Math.min(availableParallelism(), MAX_CHECKOUT_WORKERS)}`);
  lines.push('[index]', 'threads = true', '[merge]', 'directoryRenames = false', '');
  return lines.join('\n');
}

function quoteValue(value: string): string {
  return `"${value.replace(/[\\"]/g, '\\$&').replace(/\n/g, '\\n').replace(/\t/g, '\\t')}"`;
}

/** Runs a command on the repository itself, for refs and entries of worktrees. */
export function runShared(
  git: Git,
  repository: Pick<Repository, 'common_dir'>,
  args: readonly string[],
  input?: Buffer,
) {
  const cwd = repository.common_dir;
  return git({ args: [`--git-dir=${repository.common_dir}`, ...args], cwd, ...(input && { input }) });
}

// Refs of a worker: refs/metis/<session>/base and result, and start where it continues another one.

const REF_NAMES = ['base', 'start', 'result'] as const;

export async function setRef(git: Git, common_dir: string, name: string, commit: string): Promise<void> {
  await removeRefLocks(common_dir, name.split('/')[0]!);
  await runShared(git, { common_dir }, ['update-ref', `refs/metis/${name}`, commit]);
}

/** Of a command that was killed: nothing else writes the refs of a worker. */
async function removeRefLocks(common_dir: string, session: string): Promise<void> {
  for (const name of REF_NAMES)
    await rm(`${common_dir}/refs/metis/${session}/${name}.lock`, { force: true }).catch(() => {});
}

export async function deleteRefs(git: Git, common_dir: string, session: string): Promise<void> {
  await removeRefLocks(common_dir, session);
  const lines = REF_NAMES.map((name) => `delete refs/metis/${session}/${name}\n`).join('');
  await runShared(git, { common_dir }, ['update-ref', '--stdin'], Buffer.from(lines));
}

/** Removes git's entry of a worktree: that of this name alone, whatever others are missing. */
export async function removeEntry(common_dir: string, session: string): Promise<void> {
  await rm(`${common_dir}/worktrees/${session}`, { recursive: true, force: true });
  const rest = await readdir(`${common_dir}/worktrees`).catch(() => null);
  // Another node may add an entry at this moment: then the folder is not empty, and stays.
  if (rest?.length === 0) await rmdir(`${common_dir}/worktrees`).catch(() => {});
}

/** Whether it is a regular file, or a link to one. */
export function isFile(file: string, maxBytes = Infinity): Promise<boolean> {
  return stat(file).then(
    (found) => found.isFile() && found.size <= maxBytes,
    () => false,
  );
}

export function isFolder(folder: string): Promise<boolean> {
  return lstat(folder).then(
    (found) => found.isDirectory(),
    () => false,
  );
}

/** The start of a recorded session, whose snapshot is at this ref (21 §3). */
export function describeStart({ common_dir, prefix }: Repository, ref: string): CaseStart {
  return { kind: 'snapshot', repository: common_dir, ref, prefix: readableName(prefix) };
}

/** Null where no worktree can be made of a folder; any other error is thrown. */
export function skipObstacle(error: unknown): null {
  if (error instanceof WorktreeError) return null;
  throw error;
}
