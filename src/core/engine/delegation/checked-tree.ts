// The worktree of a worker with a check: what passed is written as it was checked, and never merged anew (20 §10).
import type { DelegateOutcome } from '#core/policy/delegation/worker-outcome.ts';
import type { Write } from '#core/ports/journal-writer.ts';
import { type MergeToWrite, WorktreeError } from '#core/ports/worktrees.ts';
import type { DelegationRecord } from '#protocol/delegate.ts';
import { type CheckReport, MAX_CHANGED_FILES, type WorktreeRecord } from '#protocol/file-change.ts';
import type { Runtime, Storage } from '../state/engine.ts';
import { applyTree, recordTree, storeTrees, type TreeEngine, type TreeOutcome } from './worker-tree.ts';

/** A merge that was checked. */
interface CheckedMerge {
  readonly from: string;
  readonly tree: string;
}

/**
 * Stores a merge with `writes`, then writes it: a restart finishes that. Returns null, or the paths that were changed
 * meanwhile; then nothing is written. The caller is alone on the workspace.
 */
export async function writeMerge(
  engine: TreeEngine,
  worktree: WorktreeRecord,
  { merge, writes }: { readonly merge: CheckedMerge; readonly writes: readonly Write[] },
): Promise<readonly string[] | null> {
  const merged = { ...worktree, applied: null, merged_from: merge.from, merged_tree: merge.tree };
  await engine.journal.commit({ writes: [{ kind: 'worktree.put', worktree: merged }, ...writes], emit: [] });
  return endWriting(engine, merged, merge);
}

/** Writes the stored merge of a worktree. False where there is none, or where files were changed meanwhile; then nothing of it is left. */
export async function finishWriting(engine: TreeEngine, worktree: WorktreeRecord): Promise<boolean> {
  const { merged_from: from, merged_tree: tree } = worktree;
  if (from === null || tree === null) return false;
  return engine.worktrees.mergeExclusive(
    worktree.caller_path,
    async () => (await endWriting(engine, worktree, { from, tree, is_resumed: true })) === null,
  );
}

async function endWriting(
  engine: TreeEngine,
  worktree: WorktreeRecord,
  merge: MergeToWrite,
): Promise<readonly string[] | null> {
  const { changed_meanwhile, obstacle } = await engine.worktrees.write(worktree, merge);
  if (obstacle !== null) {
    await storeTrees(engine, [{ ...worktree, merged_from: null, merged_tree: null, applied: false }]);
    throw new WorktreeError(obstacle);
  }
  if (changed_meanwhile.length > 0) {
    await storeTrees(engine, [{ ...worktree, merged_from: null, merged_tree: null }]);
    return changed_meanwhile;
  }
  await storeTrees(engine, [{ ...worktree, applied: true }]);
  return null;
}

/**
 * Records what the worker left, finishes a write that has begun, and applies what its check had no reason to look at. Null
 * without a worktree.
 */
export async function settleCheckedTree(
  engine: TreeEngine,
  { worker_session_id: id, request, tool_use_id }: DelegationRecord,
  { success, conflicts = [] }: Pick<DelegateOutcome, 'success' | 'conflicts'>,
): Promise<(TreeOutcome & { readonly protected_changes: readonly string[] }) | null> {
  const worktree = id === null ? null : await engine.store.worktrees.get(id);
  if (worktree === null) return null;
  let files: TreeOutcome['files'] = [];
  try {
    const { worktree: recorded, ...found } = await recordTree(engine, worktree, request.check?.protect);
    files = found.files;
    if (worktree.applied === true || (await finishWriting(engine, recorded)))
      return { ...found, applied: true, conflicts: [] };
    const runs = await engine.store.attempts.list(tool_use_id);
    const isSkipped = success && runs.length === 0 && conflicts.length === 0;
    if (isSkipped && request.apply !== 'never') return { ...found, ...(await applyTree(engine, recorded)) };
    await storeTrees(engine, [{ ...recorded, merged_from: null, merged_tree: null, applied: false }]);
    return { ...found, applied: false, conflicts };
  } catch (error) {
    if (!(error instanceof WorktreeError)) throw error;
    engine.log.warn({ session_id: id, problem: error.message }, 'the changes of a worker could not be recorded');
    return { files, applied: false, conflicts: [], protected_changes: [], apply_error: error.message };
  }
}

/** What the check of a delegation decided, by its stored runs. A run that was stopped with its worker is closed here. */
export async function readCheckReport(
  engine: Runtime & Storage,
  { request, tool_use_id }: DelegationRecord,
  found: readonly string[],
): Promise<CheckReport> {
  const runs = request.check === null ? [] : await engine.store.attempts.list(tool_use_id);
  const closed = { process_group: null, ended_at: engine.clock.now() };
  const writes = runs
    .filter(({ ended_at }) => ended_at === null)
    .map((run) => ({ kind: 'attempt.put' as const, attempt: { ...run, ...closed } }));
  if (writes.length > 0) await engine.journal.commit({ writes, emit: [] });
  const ended = runs.filter(({ passed, ended_at }) => passed !== null && ended_at !== null);
  return {
    check: request.check?.name ?? null,
    attempts: ended.length,
    verified: ended.at(-1)?.passed ?? null,
    protected_changes: (runs.at(-1)?.protected_changes ?? found).slice(0, MAX_CHANGED_FILES),
  };
}
