// Worktrees of workers by way of git: made, recorded, merged, written back and removed (20 §2).
import { mkdir, rm } from 'node:fs/promises';
import path from 'node:path';
import type { Logger } from '#core/ports/logger.ts';
import { PathEscape } from '#core/ports/workspace.ts';
import { type JoinedMerge, type WorkspaceLock, WorktreeError, type Worktrees } from '#core/ports/worktrees.ts';
import type { WorktreeRecord } from '#protocol/file-change.ts';
import type { SessionId } from '#protocol/ids.ts';
import { readErrorMessage } from '#protocol/text/error-message.ts';
import { runExclusive } from '../workspace/descriptors.ts';
import { hashFiles } from '../workspace/hash-files.ts';
import { removeTree } from '../workspace/remove-tree.ts';
import { readDiff, readTexts } from './changed-texts.ts';
import { commitStart, commitTree, type EarlierTree, mergeEarlier, readLeft, readUnmarked } from './continued-tree.ts';
import { addWorktree, fillWorktree } from './fill-worktree.ts';
import { awaitAll, byteName, createGit, explainErrors, readableName } from './git.ts';
import { measureFolder, measureRefs } from './measure.ts';
import { mergeResult } from './merge-result.ts';
import {
  endStrayCommands,
  findWorktreeId,
  nameCheck,
  openGitFolder,
  readOrigin,
  removeGitFolder,
  sweepFolders,
} from './origin.ts';
import { type CloneFile, cloneByReflink } from './provide-files.ts';
import {
  deleteRefs,
  describeStart,
  findPrefix,
  inspectObjects,
  inspectRepository,
  isFolder,
  type OwnGit,
  openOwnGit,
  type Repository,
  removeEntry,
  requireVersion,
  runShared,
  setRef,
  skipObstacle,
} from './repository.ts';
import { isForbiddenLink, refuseMovedPaths } from './result-paths.ts';
import { byPath, compareTrees, copyIndex, restoreEntries, snapshot, takeIndex, toFileChange } from './snapshot.ts';
import { createTarget, writeChanges, writeMerge } from './write-changes.ts';

/** No path lies in it. */
const NO_FOLDER = '/dev/null/worktrees';
/** A git command of a process that was killed may still write into its folder: 1.5 s of tries. */
const WHILE_WRITTEN = { maxRetries: 5, retryDelay: 100 };
/** The index that a worktree begins with, and that of its result. */
const BASE_INDEX = 'base.index';
const RESULT_INDEX = 'result.index';

interface WorktreeOptions {
  /** The folder that holds all worktrees; made when the first one is. Null = none can be made, for `obstacle`. */
  readonly folder: string | null;
  readonly obstacle?: string;
  /** Entries of a workspace that a worktree is given as links, where its call names no others; in no snapshot. */
  readonly links: readonly string[];
  /** Default: by reflink. */
  readonly clone?: CloneFile;
  /** Absent = no other process merges into the same workspaces. */
  readonly lock?: WorkspaceLock;
  /** The server's environment. */
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly log: Logger;
}

type Settings = Parameters<Worktrees['create']>[3];

export function createWorktrees(options: WorktreeOptions): Worktrees {
  const { log, clone = cloneByReflink, lock = (_folder, work) => work() } = options;
  const home = options.folder ?? NO_FOLDER;
  const git = createGit(options.env, home);
  const buildPath = (id: string) => path.join(home, id);
  const buildGitPath = (id: string) => path.join(home, `${id}.git`);

  let isChecked = false;
  const userHome = options.env.HOME ?? '/';
  /** Git folders of worktrees in use, so that each repository is inspected once. */
  const opened = new Map<string, OwnGit>();
  /** Entries that are in no snapshot, by git folder. */
  const excluded = new Map<string, readonly string[]>();

  /** The repository of a workspace; of a worker's own tree that of its worktree, whatever its `.git` names by now. */
  async function inspect(root: string): Promise<Repository> {
    if (options.folder === null) throw new WorktreeError(options.obstacle ?? 'there is no folder for worktrees');
    const inside = findWorktreeId(home, root);
    if (!isChecked) await requireVersion(git, root);
    isChecked = true;
    if (inside === null) return inspectRepository(git, root, userHome);
    const origin = await readOrigin(buildGitPath(inside)).catch(() => {
      throw new WorktreeError(`the worktree ${inside} of the caller is gone`);
    });
    const top = buildPath(inside);
    const known = await inspectRepository(git, origin.root, userHome);
    const head = await runShared(git, known, ['rev-parse', `refs/metis/${inside}/base`]);
    return {
      ...known,
      top,
      prefix: findPrefix(top, root),
      git_dir: `${known.common_dir}/worktrees/${inside}`,
      head: head.out.toString('utf8').trim(),
    };
  }
  /** Written before anything else is made: what comes after it can be found and removed, whenever the process dies. */
  async function openFolder(id: string, root: string, repository: Repository, settings?: Settings): Promise<OwnGit> {
    const folder = buildGitPath(id);
    const inside = findWorktreeId(home, root);
    const above = inside === null ? root : (await readOrigin(buildGitPath(inside))).root;
    const known = await readOrigin(folder).catch(() => null);
    const links = known?.links ?? {};
    const names = known?.names ?? settings?.worktree_links ?? options.links;
    const tree = known?.tree ?? settings?.tree;
    await openGitFolder(folder, { repository: repository.common_dir, root: above, links, names, tree });
    const own = await openOwnGit(git, repository, folder);
    excluded.set(folder, names);
    opened.set(id, own);
    return own;
  }

  async function openRecorded(worktree: Pick<WorktreeRecord, 'session_id' | 'caller_path'>): Promise<OwnGit> {
    const { session_id, caller_path } = worktree;
    const known = opened.get(session_id);
    if (known !== undefined) {
      const { common_dir } = known.repository;
      if (await isFolder(common_dir)) return known;
      throw new WorktreeError(`the repository ${common_dir} does not exist`);
    }
    return openFolder(session_id, caller_path, await inspect(caller_path));
  }
  /** For reading: where the workspace is gone, the objects are still there. */
  async function openReadable(worktree: WorktreeRecord): Promise<OwnGit> {
    return openRecorded(worktree).catch(async (error: unknown) => {
      if (!(error instanceof WorktreeError)) throw error;
      const { session_id, repository, caller_path: root } = worktree;
      const folder = buildGitPath(session_id);
      const objects = await inspectObjects(git, worktree);
      await openGitFolder(folder, { repository, root, links: {} });
      return openOwnGit(git, objects, folder);
    });
  }
  const listLinks = ({ dir, repository: { prefix } }: OwnGit) =>
    (excluded.get(dir) ?? options.links).map((link) => `${prefix}${byteName(link)}`);
  /** Null where there is none. */
  const readRef = async ({ repository: { common_dir: cwd } }: OwnGit, name: string) => {
    const args = [`--git-dir=${cwd}`, 'rev-parse', '--verify', '-q', `refs/metis/${name}`];
    const { code, out } = await git({ args, cwd, codes: [0, 1] });
    return code === 0 ? out.toString('utf8').trim() : null;
  };

  async function snapshotCaller(own: OwnGit, index: string): Promise<string> {
    const { repository } = own;
    await rm(`${own.dir}/${index}`, { force: true });
    await takeIndex(git, repository, `${own.dir}/${index}`);
    return snapshot(own, { tree: repository.top, index, links: listLinks(own), within: '' });
  }

  const lockFolder: Worktrees['exclusive'] = (root, fn) => runExclusive(`${root}\0merge`, fn);
  // First the turn in this process: a lock of all nodes is awaited once for each workspace.
  const lockMerges: Worktrees['mergeExclusive'] = (root, fn) => lockFolder(root, () => lock(root, fn));

  async function createTree(id: SessionId, root: string, earlier: EarlierTree | null, settings: Settings) {
    const repository = await inspect(root);
    const { common_dir } = repository;
    const own = await openFolder(id, root, repository, settings);
    // Not while changes of another worker are written: the base would hold half of them.
    const base_tree = await lockMerges(root, () => snapshotCaller(own, BASE_INDEX));
    const base = await commitTree(own, base_tree, repository.head, 'base');
    const folder = buildPath(id);
    await awaitAll([setRef(git, common_dir, `${id}/base`, base), addWorktree(git, repository, folder, base)]);
    const tree_path = await fillWorktree(own, {
      folder,
      root,
      clone,
      index: BASE_INDEX,
      links: excluded.get(own.dir) ?? [],
      patterns: settings?.worktree_copy ?? [],
      addFiles: async () => {
        if (earlier !== null) await startFrom(own, { id, folder, base, base_tree }, earlier);
      },
    });
    return { repository: common_dir, folder, tree_path, base_tree };
  }

  /** Puts the merge of what an earlier worker left into a new worktree. */
  async function startFrom(
    own: OwnGit,
    made: { readonly id: string; readonly folder: string; readonly base: string; readonly base_tree: string },
    earlier: EarlierTree,
  ): Promise<void> {
    const start = await mergeEarlier(own, made.base_tree, earlier, await readLeftMarkers(own, earlier));
    await setRef(git, own.repository.common_dir, `${made.id}/start`, await commitStart(own, start, made.base));
    const changes = await compareTrees(own, made.base_tree, start.tree);
    const target = await createTarget(own, start.tree, changes, made.folder);
    const { changed, obstacle } = await writeChanges(target, changes);
    await rm(`${own.dir}/content`, { recursive: true, force: true });
    const problem = obstacle ?? changed[0];
    if (problem !== undefined) throw new WorktreeError(`what the earlier worker left cannot be written: ${problem}`);
  }
  async function readLeftMarkers(
    own: OwnGit,
    worktree: Parameters<typeof readLeft>[2] & Pick<WorktreeRecord, 'session_id'>,
  ) {
    const start = await readRef(own, `${worktree.session_id}/start`);
    if (start === null) return [];
    return readLeft(own, start, worktree);
  }

  /** Their refs could not be removed: the git folder stays and leads to them, so that the next start tries again. */
  const unremoved = new Set<string>();
  const removeRefs: Worktrees['removeRefs'] = async ({ session_id, repository, caller_path: root }) => {
    unremoved.delete(session_id);
    if (!(await isFolder(repository))) return;
    try {
      await deleteRefs(git, repository, session_id);
    } catch (error) {
      unremoved.add(session_id);
      const folder = buildGitPath(session_id);
      await openGitFolder(folder, await readOrigin(folder).catch(() => ({ repository, root, links: {} })));
      throw error;
    }
  };

  async function removeFolder(id: string, repository: string): Promise<void> {
    opened.delete(id);
    excluded.delete(buildGitPath(id));
    await removeTree(buildPath(id), WHILE_WRITTEN);
    await runExclusive(`${repository}\0worktree add`, () => removeEntry(repository, id));
    if (!unremoved.has(id)) await removeGitFolder(buildGitPath(id));
  }

  async function mergeAll(worktrees: readonly WorktreeRecord[]): Promise<JoinedMerge> {
    const [first] = worktrees;
    if (first === undefined) throw new WorktreeError('there is no result to merge');
    const own = await openRecorded(first);
    const from = await snapshotCaller(own, 'caller.index');
    const paths = new Map<SessionId, readonly string[]>();
    let tree = from;
    for (const worktree of worktrees) {
      const merged = await mergeResult(await openRecorded(worktree), worktree, tree);
      if (merged.kind === 'conflict') paths.set(worktree.session_id, merged.paths);
      else tree = merged.tree;
    }
    if (paths.size > 0) return { kind: 'conflict', paths };
    return { kind: 'clean', from, tree };
  }

  return explainErrors({
    findObstacle: (root) =>
      inspect(root).then(
        () => null,
        (error: unknown) => {
          if (error instanceof WorktreeError) return error.message;
          throw error;
        },
      ),

    async create(id, root, earlier = null, settings) {
      try {
        return await createTree(id, root, earlier, settings);
      } catch (error) {
        const origin = await readOrigin(buildGitPath(id)).catch(() => null);
        if (origin !== null) {
          // The folder leads to the refs: it goes after them, so that the next start finds what is left.
          await removeRefs({ session_id: id, repository: origin.repository, caller_path: root }).catch(() => {});
          await removeFolder(id, origin.repository).catch(() => {});
        }
        if (error instanceof WorktreeError) throw error;
        throw new WorktreeError(`a worktree cannot be made: ${readErrorMessage(error)}`);
      }
    },

    async recordStart(id, root) {
      const repository = await inspect(root).catch(skipObstacle);
      if (repository === null) return { kind: 'listing', files: await hashFiles(root) };
      const own = await openFolder(id, root, repository);
      try {
        const tree = await lockMerges(root, () => snapshotCaller(own, BASE_INDEX));
        await setRef(git, repository.common_dir, `${id}/base`, await commitTree(own, tree, null, 'start'));
        return describeStart(repository, `refs/metis/${id}/base`);
      } finally {
        await removeFolder(id, repository.common_dir);
      }
    },

    async recordResult(worktree, isWritable, isProtected = () => false) {
      const own = await openRecorded(worktree);
      const { prefix } = own.repository;
      const known = worktree.result_tree;
      const { tree: result_tree, dropped } = known === null ? await snapshotResult() : { tree: known, dropped: [] };
      const changes = await compareTrees(own, worktree.base_tree, result_tree);
      const files = changes.map((change) => toFileChange(change, prefix)).sort(byPath);
      return {
        result_tree,
        files,
        protected_changes: dropped.map((change) => toFileChange(change, prefix).path).sort(),
      };

      async function snapshotResult() {
        await copyIndex(`${own.dir}/${BASE_INDEX}`, `${own.dir}/${RESULT_INDEX}`).catch(() => {});
        const escaped: string[] = [];
        const isAllowed = (name: string) =>
          isWritable(readableName(name.slice(prefix.length))).catch((error: unknown) => {
            if (!(error instanceof PathEscape)) throw error;
            escaped.push(name);
            return false;
          });
        const left = await snapshot(own, {
          tree: worktree.folder,
          index: RESULT_INDEX,
          links: listLinks(own),
          within: prefix,
          isKept: async (name) => (await isAllowed(name)) && !(await isForbiddenLink(worktree, name)),
        });
        await refuseMovedPaths(own, worktree.base_tree, escaped);
        const changed = await compareTrees(own, worktree.base_tree, left);
        const dropped = changed.filter((change) => isProtected(toFileChange(change, prefix).path));
        const tree = await restoreEntries(own, RESULT_INDEX, { tree: left, changes: dropped });
        const base = await readRef(own, `${worktree.session_id}/base`);
        const result = await commitTree(own, tree, base, 'result');
        await setRef(git, own.repository.common_dir, `${worktree.session_id}/result`, result);
        return { tree, dropped };
      }
    },

    async findLeftMarkers(worktree) {
      const own = await openRecorded(worktree);
      const { prefix } = own.repository;
      const left = await readLeftMarkers(own, worktree);
      return left.map(([name]) => readableName(name.startsWith(prefix) ? name.slice(prefix.length) : name)).sort();
    },

    async findUnmarkedConflicts(worktree) {
      const own = await openRecorded(worktree);
      const { prefix } = own.repository;
      const start = await readRef(own, `${worktree.session_id}/start`);
      const names = start === null ? [] : await readUnmarked(own, start);
      return names.map((name) => readableName(name.startsWith(prefix) ? name.slice(prefix.length) : name)).sort();
    },

    async openCheckFolder(worktree, tree, patterns) {
      const id = nameCheck(worktree.session_id);
      const { caller_path, session_id, repository: common_dir } = worktree;
      await removeFolder(id, common_dir);
      const { repository, dir } = await openRecorded(worktree);
      const links = excluded.get(dir) ?? [];
      const { tree: root_id } = await readOrigin(dir);
      const settings = { worktree_copy: [], worktree_links: [...links], ...(root_id && { tree: root_id }) };
      const own = await openFolder(id, caller_path, repository, settings);
      const folder = buildPath(id);
      const base = await readRef(own, `${session_id}/base`);
      await addWorktree(git, repository, folder, await commitTree(own, tree, base, 'check'));
      await own.run(['read-tree', tree], { index: BASE_INDEX, tree: folder });
      const filled = { folder, root: caller_path, clone, index: BASE_INDEX, links, patterns };
      const root = await fillWorktree(own, filled);
      const temporary = `${own.dir}/tmp`;
      await mkdir(temporary, { mode: 0o700 });
      return { root, temporary };
    },
    removeCheckFolder: ({ session_id, repository }) => removeFolder(nameCheck(session_id), repository),

    async merge(worktree) {
      const merged = await mergeAll([worktree]);
      if (merged.kind === 'clean') return merged;
      return { kind: 'conflict', paths: merged.paths.get(worktree.session_id) ?? [] };
    },
    mergeAll,

    write: async (worktree, merge) => writeMerge(await openRecorded(worktree), merge, log),

    async comparePaths(worktree, from, to) {
      const own = await openRecorded(worktree);
      const { prefix } = own.repository;
      return (await compareTrees(own, from, to)).map((change) => toFileChange(change, prefix).path);
    },

    diff: async (worktree, limitBytes) => readDiff(await openReadable(worktree), worktree, limitBytes),
    readTexts: async (worktree, limits) => readTexts(await openReadable(worktree), worktree, limits),

    mergeExclusive: lockMerges,
    exclusive: lockFolder,
    async measure({ session_id, repository, folder }) {
      return { folder_bytes: await measureFolder(folder), ref_bytes: await measureRefs(git, repository, session_id) };
    },
    removeFolder: ({ session_id, repository }) => removeFolder(session_id, repository),
    removeRefs,

    endStray: (tree) => endStrayCommands(home, tree),
    sweep: (owner) => sweepFolders({ home, log, removeRefs, removeFolder }, owner),
  });
}
