// A worker's worktree: made with it, recorded and merged into the caller's workspace at its end, then removed (20 §2).
import { createMatcher } from '#core/policy/delegation/checks.ts';
import type { Write } from '#core/ports/journal-writer.ts';
import { type TreeChanges, WorktreeError, type Worktrees } from '#core/ports/worktrees.ts';
import type { DelegationRecord } from '#protocol/delegate.ts';
import { MAX_CHANGED_FILES, selectChanges, type WorktreeRecord } from '#protocol/file-change.ts';
import type { SessionId, ToolUseId } from '#protocol/ids.ts';
import type { SessionRecord } from '#protocol/session.ts';
import { compareText } from '#protocol/text/compare-text.ts';
import { getFilesRoot, isPathWritable } from '../definitions/session-files.ts';
import { resolveWorktreeSettings } from '../definitions/worktree-settings.ts';
import type { AppliedTree } from '../state/apply-groups.ts';
import type { Caller } from '../state/delegation-runs.ts';
import type { Delegations, Runtime, Storage, Toolbox, WorkspaceAccess } from '../state/engine.ts';

export type TreeEngine = Runtime & Storage & WorkspaceAccess;

/** How often a merge is made anew because files were saved while it was written. */
const MAX_MERGES = 4;

/** A worker's session with its place. */
export interface Placed {
  readonly session: SessionRecord;
  /** Null in a shared workspace. */
  readonly worktree: WorktreeRecord | null;
}

/** Makes the worktree of a new worker and runs its setup command. Throws `WorktreeError`, or the reason of the signal. */
export async function placeWorker(
  engine: TreeEngine & Pick<Toolbox, 'library'>,
  { session: caller, signal }: Pick<Caller, 'session' | 'signal'>,
  worker: SessionRecord,
  { request, created_at }: DelegationRecord,
): Promise<Placed> {
  if (request.isolation === 'shared') return { session: worker, worktree: null };
  return placeInWorktree(engine, { ...worker, created_at }, { caller_path: getFilesRoot(caller), signal });
}

/** The same for any new session, a fork too. */
export async function placeInWorktree(
  engine: TreeEngine & Pick<Toolbox, 'library'>,
  worker: SessionRecord,
  { caller_path, signal }: { readonly caller_path: string; readonly signal: AbortSignal },
): Promise<Placed & { readonly worktree: WorktreeRecord }> {
  const earlier = await findUnapplied(engine, worker, caller_path);
  const settings = await resolveWorktreeSettings(engine, worker.workspace_path);
  if (!settings.ok) throw new WorktreeError(settings.error);
  const made = await engine.worktrees.create(worker.id, caller_path, earlier, {
    ...settings.value,
    tree: worker.root_session_id,
  });
  const worktree: WorktreeRecord = {
    session_id: worker.id,
    caller_path,
    ...made,
    result_tree: null,
    merged_from: null,
    merged_tree: null,
    applied: null,
    created_at: worker.created_at,
  };
  const { worktree_setup: command } = settings.value;
  if (command !== null) {
    const run = { session_id: worker.id, root: made.tree_path, command, signal };
    const failure = await engine.setups.run(run).catch(async (thrown: unknown) => {
      await abandonTree(engine, worktree);
      throw thrown;
    });
    if (failure !== null) {
      await abandonTree(engine, worktree);
      throw new SetupError(`delegation.worktree_setup failed: ${failure}`);
    }
  }
  return { session: { ...worker, tree_path: made.tree_path }, worktree };
}

/** What the continued worker left, where it was not applied to the same folder. Throws `WorktreeError`. */
async function findUnapplied(engine: TreeEngine, { continues_session_id: id }: SessionRecord, caller_path: string) {
  const earlier = id === null ? null : await engine.store.worktrees.get(id);
  if (earlier === null || earlier.applied === true || earlier.caller_path !== caller_path) return null;
  // What is being written is in the workspace once the lock is free.
  if (earlier.merged_tree !== null) return null;
  const { session_id, base_tree } = earlier;
  const result_tree = earlier.result_tree ?? (await recordLate(engine, earlier));
  return { session_id, base_tree, result_tree };
}

/** Records what could not be recorded when the worker ended. Returns the id of the tree. */
async function recordLate(engine: TreeEngine, earlier: WorktreeRecord): Promise<string> {
  const { request } = (await engine.store.delegations.findByWorker(earlier.session_id))!;
  const found = await withClosedTree(engine, earlier, () => recordTree(engine, earlier, request.check?.protect));
  return found.worktree.result_tree!;
}

async function abandonTree(engine: Runtime & WorkspaceAccess, worktree: WorktreeRecord): Promise<void> {
  await discardTree(engine, worktree);
  await engine.workspaces.temporary.remove(worktree.session_id);
}

/** The setup command of a worktree failed: the worker runs nowhere else. */
export class SetupError extends WorktreeError {}

/** Removes a worktree with its refs. False where they stay, as in a repository that is locked or may not be written. */
export async function discardTree(
  engine: Runtime & WorkspaceAccess,
  worktree: WorktreeRecord | null,
): Promise<boolean> {
  if (worktree === null) return true;
  const isGone = await engine.worktrees.removeRefs(worktree).then(
    () => true,
    (err: unknown) => {
      logProblem(engine, worktree, err);
      return false;
    },
  );
  await removeFolder(engine, worktree);
  return isGone;
}

/** What became of a worktree. */
export interface TreeOutcome extends AppliedTree, Pick<TreeChanges, 'files'> {
  /** Why they could not be recorded or written; absent = no such failure. */
  readonly apply_error?: string;
}

/**
 * Records what the worker left and applies it where the worker succeeded. Null without a worktree. May be repeated after
 * a crash: what was recorded, merged or applied before is not done again. Throws `Interrupted` where a worker that it is to
 * be applied together with was interrupted.
 */
export async function settleTree(
  engine: TreeEngine & Pick<Delegations, 'applyGroups'>,
  delegation: DelegationRecord,
  success: boolean,
): Promise<TreeOutcome | null> {
  const { worker_session_id: id, isolation, request } = delegation;
  if (isolation === 'shared' || id === null) return null;
  const worktree = await engine.store.worktrees.get(id);
  if (worktree === null) return null;
  let files: TreeOutcome['files'] = [];
  try {
    const { worktree: recorded, ...found } = await recordTree(engine, worktree);
    files = found.files;
    if (worktree.applied === true) return { files, applied: true, conflicts: [] };
    // Of what was refused nothing was written: it is tried again, but for a merge that others were part of.
    if (worktree.applied === false && request.apply === 'together') {
      const stored = await engine.store.delegations.get(delegation.tool_use_id);
      return { files, applied: false, conflicts: stored?.conflicts ?? [] };
    }
    // Half a merge may be written already, whatever became of the worker since.
    const isHalfWritten = worktree.merged_tree !== null;
    if (!isHalfWritten && (!success || request.apply === 'never')) {
      await storeTrees(engine, [{ ...recorded, applied: false }]);
      return { files, applied: false, conflicts: [] };
    }
    if (request.apply === 'together')
      return { files, ...(await applyTogether(engine, delegation.tool_use_id, recorded)) };
    return { files, ...(await applyTree(engine, recorded)) };
  } catch (error) {
    if (!(error instanceof WorktreeError)) throw error;
    engine.log.warn({ session_id: id, problem: error.message }, 'the changes of a worker could not be applied');
    return { files, applied: false, conflicts: [], apply_error: error.message };
  }
}

/** Records what the worker left, once. Throws `WorktreeError`. */
export async function recordTree(
  engine: TreeEngine,
  worktree: WorktreeRecord,
  protect: readonly string[] = [],
): Promise<{ readonly worktree: WorktreeRecord } & Omit<TreeChanges, 'result_tree'>> {
  const { result_tree, ...found } = await readResult(engine, worktree, protect);
  const recorded = { ...worktree, result_tree };
  if (worktree.result_tree === null) await storeTrees(engine, [recorded]);
  return { ...found, worktree: recorded };
}

/**
 * What a worker left, but for paths that file tools may not write. Throws `WorktreeError`.
 * @param protect globs of files whose changes are dropped
 */
export function readResult(
  engine: Pick<WorkspaceAccess, 'workspaces' | 'worktrees'>,
  worktree: WorktreeRecord,
  protect: readonly string[],
): Promise<TreeChanges> {
  const isWritable = (path: string) => isPathWritable(engine, worktree.caller_path, path);
  return engine.worktrees.recordResult(worktree, isWritable, createMatcher(protect));
}

/** Merges and writes, again where files were saved meanwhile. Throws `WorktreeError`. */
export async function applyTree(engine: TreeEngine, worktree: WorktreeRecord): Promise<AppliedTree> {
  const applied = await applyTrees(engine, [worktree]);
  return applied.get(worktree.session_id)!;
}

/**
 * Merges the results of one caller's workers in this order and writes them at once, or none of them.
 * @param worktrees one or more, with their results
 */
async function applyTrees(
  engine: TreeEngine,
  worktrees: readonly WorktreeRecord[],
): Promise<ReadonlyMap<SessionId, AppliedTree>> {
  const reportAll = (applied: boolean, find: (id: SessionId) => readonly string[]) =>
    new Map(worktrees.map(({ session_id: id }) => [id, { applied, conflicts: applied ? [] : find(id) }]));
  return engine.worktrees.mergeExclusive(worktrees[0]!.caller_path, async () => {
    // Another caller may have applied them meanwhile.
    const stored = await readTrees(engine, worktrees);
    const open = stored.filter(({ applied }) => applied !== true);
    if (open.length === 0) return reportAll(true, () => []);
    const storeAll = (over: Partial<WorktreeRecord>) =>
      storeTrees(
        engine,
        open.map((worktree) => ({ ...worktree, ...over })),
      );
    const endUnapplied = async (find: (id: SessionId) => readonly string[]) => {
      const refused = open.map((worktree) => ({ ...worktree, merged_from: null, merged_tree: null, applied: false }));
      await storeTrees(engine, refused, await draftRefusals(engine, refused, find));
      return reportAll(false, find);
    };
    const refuse = async (error: unknown): Promise<never> => {
      if (error instanceof WorktreeError) await endUnapplied(() => []);
      throw error;
    };
    let merged = readStoredMerge(open[0]!);
    let is_resumed = merged !== null;
    const left = is_resumed ? new Map() : await collectLeftMarkers(engine, open).catch(refuse);
    if (left.size > 0) return endUnapplied((id) => left.get(id) ?? []);
    let changed: readonly string[] = [];
    for (let merges = 0; merges < MAX_MERGES; merges += 1) {
      if (merged === null) {
        const merge = await engine.worktrees.mergeAll(open).catch(refuse);
        if (merge.kind === 'conflict') return endUnapplied((id) => merge.paths.get(id) ?? []);
        merged = { merged_from: merge.from, merged_tree: merge.tree };
        // From here on a restart finishes the writing.
        await storeAll({ ...merged, applied: null });
      }
      const { merged_from: from, merged_tree: tree } = merged;
      const written = await engine.worktrees.write(open[0]!, { from, tree, is_resumed });
      if (written.obstacle !== null) return refuse(new WorktreeError(written.obstacle));
      changed = written.changed_meanwhile;
      if (changed.length === 0) {
        await storeAll({ ...merged, applied: true });
        return reportAll(true, () => []);
      }
      merged = null;
      is_resumed = false;
    }
    return endUnapplied(() => changed);
  });
}

async function readTrees(
  { store }: Pick<Storage, 'store'>,
  worktrees: readonly WorktreeRecord[],
): Promise<readonly WorktreeRecord[]> {
  const result_trees = new Map(worktrees.map(({ session_id, result_tree }) => [session_id, result_tree]));
  const stored = await Promise.all(worktrees.map(({ session_id }) => store.worktrees.get(session_id)));
  return stored.flatMap((worktree, i) => {
    const known = worktree ?? worktrees[i]!;
    return [{ ...known, result_tree: result_trees.get(known.session_id) ?? known.result_tree }];
  });
}

/** Workers in whose files conflict markers are left, with these files (20 §3). */
async function collectLeftMarkers(
  { worktrees }: Pick<WorkspaceAccess, 'worktrees'>,
  results: readonly WorktreeRecord[],
): Promise<ReadonlyMap<SessionId, readonly string[]>> {
  const left = new Map<SessionId, readonly string[]>();
  for (const worktree of results) {
    const paths = await worktrees.findLeftMarkers(worktree);
    if (paths.length > 0) left.set(worktree.session_id, paths);
  }
  return left;
}

function readStoredMerge({ merged_from, merged_tree }: WorktreeRecord) {
  if (merged_from === null || merged_tree === null) return null;
  return { merged_from, merged_tree };
}

/** Applies the results of all successful workers of one message that are to be applied together. */
async function applyTogether(
  engine: TreeEngine & Pick<Delegations, 'applyGroups'>,
  call: ToolUseId,
  worktree: WorktreeRecord,
): Promise<AppliedTree> {
  const group = engine.applyGroups.get(call);
  const shared = worktree.merged_tree === null ? null : await listJoined(engine, worktree);
  if (group === undefined || shared !== null) {
    const applied = await applyTrees(engine, shared ?? [worktree]);
    return applied.get(worktree.session_id)!;
  }
  const outcomes = await group.arrive(call, async (calls) => {
    const arrived = await Promise.all(calls.map((id) => readTreeOfCall(engine, id)));
    const applied = await applyTrees(engine, arrived);
    return new Map(calls.map((id, i) => [id, applied.get(arrived[i]!.session_id)!]));
  });
  return outcomes.get(call)!;
}

/** The worktrees of the merge that was stored with this one. */
async function listJoined(
  { store }: Pick<Storage, 'store'>,
  { session_id, caller_path, merged_from, merged_tree }: WorktreeRecord,
): Promise<readonly WorktreeRecord[]> {
  const session = await store.sessions.record(session_id);
  const all = session === null ? [] : await store.worktrees.list(session.root_session_id);
  return all
    .filter((one) => one.caller_path === caller_path && one.merged_from === merged_from)
    .filter((one) => one.merged_tree === merged_tree)
    .sort((a, b) => compareText(a.session_id, b.session_id));
}

async function readTreeOfCall({ store }: Pick<Storage, 'store'>, call: ToolUseId): Promise<WorktreeRecord> {
  const worker = (await store.delegations.get(call))?.worker_session_id ?? null;
  const worktree = worker === null ? null : await store.worktrees.get(worker);
  if (worktree === null) throw new Error(`the delegation ${call} has no worktree`);
  return worktree;
}

/** Of open delegations in a joint merge, which is not made again: a restart before their ends reports these conflicts. */
async function draftRefusals(
  { store }: Pick<Storage, 'store'>,
  refused: readonly WorktreeRecord[],
  findConflicts: (id: SessionId) => readonly string[],
): Promise<Write[]> {
  const writes: Write[] = [];
  for (const { session_id } of refused) {
    const conflicts = findConflicts(session_id).slice(0, MAX_CHANGED_FILES);
    const delegation = conflicts.length === 0 ? null : await store.delegations.findByWorker(session_id);
    if (delegation === null || delegation.ended_at !== null || delegation.request.apply !== 'together') continue;
    const changes = { ...selectChanges(delegation), applied: false, conflicts };
    writes.push({ kind: 'delegation.applied', tool_use_id: delegation.tool_use_id, changes });
  }
  return writes;
}

export async function storeTrees(
  engine: Pick<Storage, 'journal'>,
  worktrees: readonly WorktreeRecord[],
  rest: readonly Write[] = [],
): Promise<void> {
  const writes = worktrees.map((worktree) => ({ kind: 'worktree.put' as const, worktree }));
  await engine.journal.commit({ writes: [...writes, ...rest], emit: [] });
}

/** Removes the folder of a delegation that has closed; one whose content could not be recorded stays. */
export async function closeTree(
  engine: TreeEngine,
  { worker_session_id: id, isolation }: DelegationRecord,
): Promise<void> {
  if (isolation === 'shared' || id === null) return;
  const worktree = await engine.store.worktrees.get(id);
  if (worktree !== null) await withClosedTree(engine, worktree, async () => {});
}

/** Records what a fork left in its worktree, once it has ended, and removes the folder. Its changes are kept, not applied. */
export async function closeForkTree(engine: TreeEngine, id: SessionId): Promise<void> {
  const worktree = await engine.store.worktrees.get(id);
  if (worktree === null) return;
  await withClosedTree(engine, worktree, async () => {
    const { worktree: recorded } = await recordTree(engine, worktree);
    await storeTrees(engine, [{ ...recorded, applied: false }]);
  }).catch((thrown: unknown) => {
    if (!(thrown instanceof WorktreeError)) throw thrown;
    engine.log.warn({ session_id: id, problem: thrown.message }, 'the changes of a fork could not be recorded');
  });
}

/** Runs `work` on a worktree alone, and removes its folder afterwards, once its content is recorded. */
export function withClosedTree<T>(engine: TreeEngine, worktree: WorktreeRecord, work: () => Promise<T>): Promise<T> {
  return engine.worktrees.exclusive(worktree.folder, async () => {
    try {
      return await work();
    } finally {
      const now = await engine.store.worktrees.get(worktree.session_id);
      if (now === null || now.result_tree !== null) await removeFolder(engine, worktree);
    }
  });
}

async function removeFolder(
  engine: Pick<Runtime, 'log'> & { readonly worktrees: Worktrees },
  worktree: WorktreeRecord,
): Promise<void> {
  await engine.worktrees.removeFolder(worktree).catch((err: unknown) => logProblem(engine, worktree, err));
}

function logProblem({ log }: Pick<Runtime, 'log'>, { session_id }: WorktreeRecord, err: unknown): void {
  log.warn({ err, session_id }, 'a worktree could not be removed');
}
