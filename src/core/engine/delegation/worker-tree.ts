// A worker's worktree: made with it, recorded and merged into the caller's workspace at its end, then removed (20 §2).
import { WorktreeError, type Worktrees } from '#core/ports/worktrees.ts';
import type { DelegationRecord } from '#protocol/delegate.ts';
import type { FileChange, WorkerChanges, WorktreeRecord } from '#protocol/file-change.ts';
import type { SessionRecord } from '#protocol/session.ts';
import { ToolError } from '#protocol/tool.ts';
import { getFilesRoot } from '../definitions/session-files.ts';
import type { Runtime, Storage, WorkspaceAccess } from '../state/engine.ts';

type TreeEngine = Runtime & Storage & WorkspaceAccess;

/** How often a merge is made anew because files were saved while it was written. */
const MAX_MERGES = 4;

/** A worker's session with its place. */
export interface Placed {
  readonly session: SessionRecord;
  /** Null in a shared workspace. */
  readonly worktree: WorktreeRecord | null;
}

/** Makes the worktree of a new worker. Throws `WorktreeError`. */
export async function placeWorker(
  engine: Runtime & WorkspaceAccess,
  caller: SessionRecord,
  worker: SessionRecord,
  { request, created_at }: DelegationRecord,
): Promise<Placed> {
  if (request.isolation === 'shared') return { session: worker, worktree: null };
  const caller_path = getFilesRoot(caller);
  const made = await engine.worktrees.create(worker.id, caller_path);
  const worktree: WorktreeRecord = {
    session_id: worker.id,
    caller_path,
    ...made,
    result_tree: null,
    merged_from: null,
    merged_tree: null,
    applied: null,
    created_at,
  };
  return { session: { ...worker, tree_path: made.tree_path }, worktree };
}

/** Removes the worktree of a worker that was never stored. */
export async function discardTree(engine: Runtime & WorkspaceAccess, worktree: WorktreeRecord | null): Promise<void> {
  if (worktree === null) return;
  await removeFolder(engine, worktree);
  await engine.worktrees.removeRefs(worktree).catch((err: unknown) => logProblem(engine, worktree, err));
}

/** What became of a worktree. */
export type TreeOutcome = Pick<WorkerChanges, 'applied' | 'conflicts'> & { readonly files: readonly FileChange[] };

/**
 * Records what the worker left and applies it where the worker succeeded. Null without a worktree. May be repeated after
 * a crash: what was recorded, merged or applied before is not done again.
 */
export async function settleTree(
  engine: TreeEngine,
  delegation: DelegationRecord,
  success: boolean,
): Promise<TreeOutcome | null> {
  const { worker_session_id: id, isolation, request } = delegation;
  if (isolation === 'shared' || id === null) return null;
  const worktree = await engine.store.worktrees.get(id);
  if (worktree === null) return null;
  const unrecorded: TreeOutcome = { files: [], applied: false, conflicts: [] };
  try {
    const { files, worktree: recorded } = await recordTree(engine, worktree);
    if (worktree.applied !== null) return { files, applied: worktree.applied, conflicts: [] };
    // Half a merge may be written already, whatever became of the worker since.
    const isHalfWritten = worktree.merged_tree !== null;
    if (!isHalfWritten && (!success || request.apply === 'never')) {
      await storeTree(engine, { ...recorded, applied: false });
      return { files, applied: false, conflicts: [] };
    }
    return { files, ...(await applyTree(engine, recorded)) };
  } catch (error) {
    if (!(error instanceof WorktreeError)) throw error;
    engine.log.warn({ session_id: id, problem: error.message }, 'the changes of a worker could not be applied');
    return unrecorded;
  }
}

/** Records what the worker left, once. Throws `WorktreeError`. */
export async function recordTree(
  engine: TreeEngine,
  worktree: WorktreeRecord,
): Promise<{ readonly worktree: WorktreeRecord; readonly files: readonly FileChange[] }> {
  const isWritable = (path: string) => isPathWritable(engine, worktree.caller_path, path);
  const { files, result_tree } = await engine.worktrees.recordResult(worktree, isWritable);
  const recorded = { ...worktree, result_tree };
  if (worktree.result_tree === null) await storeTree(engine, recorded);
  return { files, worktree: recorded };
}

/** Merges and writes, again where files were saved meanwhile. Throws `WorktreeError`. */
export function applyTree(
  engine: TreeEngine,
  worktree: WorktreeRecord,
): Promise<Pick<WorkerChanges, 'conflicts'> & { readonly applied: boolean }> {
  return engine.worktrees.exclusive(worktree.caller_path, async () => {
    // Another caller may have applied it meanwhile.
    const now = (await engine.store.worktrees.get(worktree.session_id)) ?? worktree;
    if (now.applied === true) return { applied: true, conflicts: [] };
    let merged = readStoredMerge(now);
    let conflicts: readonly string[] = [];
    for (let merges = 0; merges < MAX_MERGES; merges += 1) {
      if (merged === null) {
        const merge = await engine.worktrees.merge(worktree);
        if (merge.kind === 'conflict') return endUnapplied(engine, worktree, merge.paths);
        merged = merge;
        // From here on a restart finishes the writing.
        await storeTree(engine, { ...worktree, applied: null, merged_from: merge.from, merged_tree: merge.tree });
      }
      conflicts = (await engine.worktrees.write(worktree, merged)).changed_meanwhile;
      if (conflicts.length === 0) {
        await storeTree(engine, { ...worktree, merged_from: merged.from, merged_tree: merged.tree, applied: true });
        return { applied: true, conflicts: [] };
      }
      merged = null;
    }
    return endUnapplied(engine, worktree, conflicts);
  });
}

function readStoredMerge({ merged_from: from, merged_tree: tree }: WorktreeRecord) {
  if (from === null || tree === null) return null;
  return { from, tree };
}

async function endUnapplied(engine: TreeEngine, worktree: WorktreeRecord, paths: readonly string[]) {
  await storeTree(engine, { ...worktree, merged_from: null, merged_tree: null, applied: false });
  return { applied: false, conflicts: [...paths] };
}

async function storeTree({ journal }: Pick<Storage, 'journal'>, worktree: WorktreeRecord): Promise<void> {
  await journal.commit({ writes: [{ kind: 'worktree.put', worktree }], emit: [] });
}

/** Whether file tools might write a path of the caller's workspace (09 §8). */
async function isPathWritable(
  { workspaces }: Pick<WorkspaceAccess, 'workspaces'>,
  root: string,
  path: string,
): Promise<boolean> {
  try {
    await workspaces.files(root).resolve(path, 'write');
    return true;
  } catch (error) {
    if (error instanceof ToolError) return false;
    throw error;
  }
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
