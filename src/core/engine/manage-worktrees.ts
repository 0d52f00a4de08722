// Worktrees of workers that have ended: applying and reading what was kept, and removing what nothing claims (20 §2.5, §2.7).
import type { AppliedChanges, ChangesDiff } from '#protocol/api/worker-bodies.ts';
import type { DelegationRecord } from '#protocol/delegate.ts';
import { AppError, validationError } from '#protocol/errors.ts';
import { selectChanges, type WorktreeRecord } from '#protocol/file-change.ts';
import type { SessionId } from '#protocol/ids.ts';
import { WorktreeError } from '../ports/worktrees.ts';
import { applyTree, recordTree, withClosedTree } from './delegation/worker-tree.ts';
import type { Engine, Runtime, Storage, WorkspaceAccess } from './state/engine.ts';

const MAX_DIFF_BYTES = 1024 * 1024;

/**
 * Applies the changes of a closed delegation that were kept, by the rules of its end. Applied changes stay as they are.
 * Throws `not_found`, `turn_in_flight` (the worker runs), `validation_error`.
 */
export async function applyKeptChanges(engine: Engine, worker: SessionId): Promise<AppliedChanges> {
  const { delegation, worktree } = await requireClosed(engine, worker);
  if (worktree.applied === true) return { worker_session_id: worker, applied: true, conflicts: [] };
  const { applied, conflicts } = await toCallerError(() =>
    withClosedTree(engine, worktree, async () => applyTree(engine, (await recordTree(engine, worktree)).worktree)),
  );
  const changes = { ...selectChanges(delegation), applied, conflicts: [...conflicts] };
  const { tool_use_id } = delegation;
  await engine.journal.commit({ writes: [{ kind: 'delegation.applied', tool_use_id, changes }], emit: [] });
  return { worker_session_id: worker, applied, conflicts: [...conflicts] };
}

/** The changes of a closed delegation as a unified diff, at most 1 MiB. Throws `not_found`, `turn_in_flight`, `validation_error`. */
export async function readChangesDiff(engine: Engine, worker: SessionId): Promise<ChangesDiff> {
  const { worktree } = await requireClosed(engine, worker);
  const { text, truncated } = await toCallerError(() =>
    withClosedTree(engine, worktree, () => engine.worktrees.diff(worktree, MAX_DIFF_BYTES)),
  );
  return { worker_session_id: worker, diff: text, truncated };
}

async function requireClosed(
  engine: Storage,
  worker: SessionId,
): Promise<{ readonly delegation: DelegationRecord; readonly worktree: WorktreeRecord }> {
  const delegation = await engine.store.delegations.findByWorker(worker);
  const worktree = await engine.store.worktrees.get(worker);
  if (delegation === null || worktree === null)
    throw new AppError('not_found', `no worker ${worker} that worked in a worktree`, { resource: 'worker' });
  if (delegation.ended_at === null) throw new AppError('turn_in_flight', 'the worker is still at work');
  return { delegation, worktree };
}

async function toCallerError<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof WorktreeError) throw validationError([{ path: 'worker_session_id', message: error.message }]);
    throw error;
  }
}

/**
 * Removes the folders of worktrees that no open delegation claims, once at the start. A folder whose content was never
 * recorded stays.
 */
export async function sweepWorktrees(engine: Runtime & Storage & WorkspaceAccess): Promise<readonly SessionId[]> {
  const open = new Set((await engine.store.delegations.allOpen()).map(({ worker_session_id: id }) => id));
  return engine.worktrees.sweep({
    async isKept(id) {
      if (open.has(id)) return true;
      const worktree = await engine.store.worktrees.get(id);
      return worktree !== null && worktree.result_tree === null;
    },
    hasRecord: async (id) => (await engine.store.worktrees.get(id)) !== null,
  });
}
