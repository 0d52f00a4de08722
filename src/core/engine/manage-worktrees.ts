// Worktrees of workers that have ended: applying and reading what was kept, and removing what nothing claims (20 §2.5, §2.7).
import type {
  AppliedChanges,
  ChangedTexts,
  ChangesDiff,
  KeptWorktree,
  PrunedWorktrees,
  PruneWorktreesBody,
} from '#protocol/api/worker-bodies.ts';
import { isoTime } from '#protocol/clock.ts';
import type { DelegationRecord } from '#protocol/delegate.ts';
import { AppError, validationError } from '#protocol/errors.ts';
import { MAX_CHANGED_FILES, selectChanges, type WorktreeRecord } from '#protocol/file-change.ts';
import type { SessionId } from '#protocol/ids.ts';
import { WorktreeError } from '../ports/worktrees.ts';
import { applyTree, closeForkTree, discardTree, recordTree, withClosedTree } from './delegation/worker-tree.ts';
import type { AppliedTree } from './state/apply-groups.ts';
import type { Engine, Runtime, Storage, WorkspaceAccess } from './state/engine.ts';

const MAX_DIFF_BYTES = 1024 * 1024;
const TEXT_LIMITS = { files: MAX_CHANGED_FILES, bytes_per_text: 128 * 1024, bytes: 1024 * 1024 };

/**
 * Applies the changes of a closed delegation that were kept, by the rules of its end. Applied changes stay as they are.
 * Throws `not_found`, `turn_in_flight` (the worker runs), `validation_error`.
 */
export async function applyKeptChanges(engine: Engine, worker: SessionId): Promise<AppliedChanges> {
  const found = await requireClosed(engine, worker);
  return toCallerError(() =>
    withClosedTree(engine, found.worktree, async () => {
      // Another request may have applied or freed it while this one waited.
      const { delegation, worktree } = await requireClosed(engine, worker);
      const { applied, conflicts } =
        worktree.applied === true
          ? { applied: true, conflicts: [] }
          : await applyRecorded(engine, delegation, worktree);
      if (delegation !== null && (!applied || delegation.applied !== true)) {
        const changes = { ...selectChanges(delegation), applied, conflicts: [...conflicts], apply_error: null };
        const { tool_use_id } = delegation;
        await engine.journal.commit({ writes: [{ kind: 'delegation.applied', tool_use_id, changes }], emit: [] });
      }
      return { worker_session_id: worker, applied, conflicts: [...conflicts] };
    }),
  );
}

async function applyRecorded(
  engine: Engine,
  delegation: DelegationRecord | null,
  worktree: WorktreeRecord,
): Promise<AppliedTree> {
  const { worktree: recorded } = await recordTree(engine, worktree, delegation?.request.check?.protect ?? []);
  return applyTree(engine, recorded);
}

/**
 * Finishes what `applyKeptChanges` had begun to write when the process died, before `sweepWorktrees`.
 * @param tree of this session tree alone; absent = of all
 */
export async function finishKeptChanges(engine: Engine, tree?: SessionId): Promise<void> {
  for (const { session_id, applied, merged_tree } of await engine.store.worktrees.list(tree)) {
    if (applied !== null || merged_tree === null) continue;
    if (await isWorktreeInUse(engine, session_id)) continue;
    await applyKeptChanges(engine, session_id).catch((err: unknown) => {
      engine.log.warn({ err, session_id }, 'changes that were half written could not be finished');
    });
  }
}

/** The changes of a closed delegation as a unified diff, at most 1 MiB. Throws `not_found`, `turn_in_flight`, `validation_error`. */
export async function readChangesDiff(engine: Engine, worker: SessionId): Promise<ChangesDiff> {
  const { worktree } = await requireClosed(engine, worker);
  const { text, truncated } = await toCallerError(() =>
    withClosedTree(engine, worktree, () => engine.worktrees.diff(worktree, MAX_DIFF_BYTES)),
  );
  return { worker_session_id: worker, diff: text, truncated };
}

/** The old and new texts of what a closed delegation changed. Throws `not_found`, `turn_in_flight`, `validation_error`. */
export async function readChangedTexts(engine: Engine, worker: SessionId): Promise<ChangedTexts> {
  const { worktree } = await requireClosed(engine, worker);
  const { files, truncated } = await toCallerError(() =>
    withClosedTree(engine, worktree, () => engine.worktrees.readTexts(worktree, TEXT_LIMITS)),
  );
  return { worker_session_id: worker, files: [...files], truncated };
}

/** The worktree of a closed delegation, or of a fork that has ended, which has no delegation. */
async function requireClosed(
  engine: Pick<Storage, 'store'>,
  worker: SessionId,
): Promise<{ readonly delegation: DelegationRecord | null; readonly worktree: WorktreeRecord }> {
  const delegation = await engine.store.delegations.findByWorker(worker);
  const worktree = await engine.store.worktrees.get(worker);
  if (worktree === null)
    throw new AppError(
      'not_found',
      delegation?.isolation === 'worktree'
        ? `nothing is kept of the worktree of ${worker}: it was freed`
        : `no worker ${worker} that worked in a worktree`,
      { resource: 'worker' },
    );
  if (await isWorktreeInUse(engine, worker)) throw new AppError('turn_in_flight', 'the worker is still at work');
  return { delegation, worktree };
}

/** Whether its worker, or its fork, has not ended. */
async function isWorktreeInUse({ store }: Pick<Storage, 'store'>, id: SessionId): Promise<boolean> {
  const delegation = await store.delegations.findByWorker(id);
  if (delegation !== null) return delegation.ended_at === null;
  const session = await store.sessions.record(id);
  return session !== null && session.ended_at === null;
}

async function toCallerError<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof WorktreeError) throw validationError([{ path: 'worker_session_id', message: error.message }]);
    throw error;
  }
}

// What is kept of worktrees, for a person who wants the room back (20 §2.7).

/** All worktrees with their sizes, newest first. */
export async function listKeptWorktrees(
  engine: Storage & WorkspaceAccess,
): Promise<readonly (KeptWorktree & { readonly record: WorktreeRecord })[]> {
  const kept: (KeptWorktree & { readonly record: WorktreeRecord })[] = [];
  for (const record of await engine.store.worktrees.list()) {
    kept.push({
      worker_session_id: record.session_id,
      workspace_path: record.caller_path,
      open: await isWorktreeInUse(engine, record.session_id),
      applied: record.applied,
      changed: record.result_tree !== record.base_tree,
      ...(await engine.worktrees.measure(record)),
      created_at: isoTime(record.created_at),
      record,
    });
  }
  return kept;
}

/**
 * Frees what is kept of workers that have ended: without `all` of those whose changes were applied, or that changed
 * nothing. Trees of other nodes are left to them.
 */
export async function pruneWorktrees(engine: Engine, { all }: PruneWorktreesBody): Promise<PrunedWorktrees> {
  const worker_session_ids: SessionId[] = [];
  let freed_bytes = 0;
  for (const { record, ...kept } of await listKeptWorktrees(engine)) {
    if (kept.open || !(all || kept.applied === true || !kept.changed)) continue;
    const session = await engine.store.sessions.record(record.session_id);
    const hold = session === null ? null : await engine.trees.hold(session.root_session_id);
    if (hold === null || !hold.own) continue;
    try {
      if (!(await freeTree(engine, record))) continue;
    } finally {
      hold.release();
    }
    worker_session_ids.push(record.session_id);
    freed_bytes += kept.folder_bytes + kept.ref_bytes;
  }
  return { worker_session_ids, freed_bytes };
}

/** False where another request has freed it, or its refs cannot be removed: then it is still listed. */
function freeTree(engine: Engine, record: WorktreeRecord): Promise<boolean> {
  return withClosedTree(engine, record, async () => {
    const { session_id } = record;
    if ((await engine.store.worktrees.get(session_id)) === null) return false;
    if (!(await discardTree(engine, record))) return false;
    await engine.journal.commit({ writes: [{ kind: 'worktree.remove', session_id }], emit: [] });
    return true;
  });
}

/** Records what forks and runs of experiments left whose session ended right before the process did. */
async function closeEndedRoots(engine: Runtime & Storage & WorkspaceAccess, tree?: SessionId): Promise<void> {
  for (const { session_id, result_tree } of await engine.store.worktrees.list(tree)) {
    if (result_tree !== null) continue;
    const session = await engine.store.sessions.record(session_id);
    if (session !== null && !session.is_worker && session.ended_at !== null) await closeForkTree(engine, session_id);
  }
}

/**
 * Removes the folders of worktrees that no open delegation claims, once at the start; of several nodes the
 * owner of a tree removes those of the tree when it takes it up. A folder whose content was never
 * recorded stays.
 */
export async function sweepWorktrees(
  engine: Runtime & Storage & WorkspaceAccess,
  tree?: SessionId,
): Promise<readonly SessionId[]> {
  await closeEndedRoots(engine, tree);
  const open = new Set((await engine.store.delegations.allOpen(tree)).map(({ worker_session_id: id }) => id));
  return engine.worktrees.sweep({
    ...(tree !== undefined && {
      isOwn: async ({ id, tree: noted }) =>
        (noted ?? (await engine.store.sessions.record(id))?.root_session_id) === tree,
    }),
    async isKept(id) {
      if (open.has(id)) return true;
      const worktree = await engine.store.worktrees.get(id);
      return worktree !== null && worktree.result_tree === null;
    },
    hasRecord: (id) => hasRefs(engine, id),
  });
}

/** Whether a session is stored that refs in a repository belong to. */
async function hasRefs({ store }: Pick<Storage, 'store'>, id: SessionId): Promise<boolean> {
  return (await store.worktrees.get(id)) !== null || (await store.cases.start(id)) !== null;
}

/** Longer than any worktree takes until its session is stored. */
const UNOWNED_MS = 15 * 60_000;

/**
 * Removes what is left of session trees that are not stored, with its refs: purged ones, whose refs could not be removed,
 * and those whose node died before it stored them. No node takes them up, so each node does it at its start.
 */
function sweepUnowned(engine: Runtime & Storage & WorkspaceAccess): Promise<readonly SessionId[]> {
  const isGone = async (id: SessionId) => (await engine.store.sessions.record(id)) === null;
  const newest = engine.clock.now() - UNOWNED_MS;
  return engine.worktrees.sweep({
    isOwn: async ({ id, tree, modified_at }) =>
      modified_at < newest && (await isGone(id)) && (await isGone(tree ?? id)),
    isKept: async () => false,
    hasRecord: (id) => hasRefs(engine, id),
  });
}

/** Finishes and removes, at a start, what processes that have died left of worktrees. */
export async function clearWorktrees(engine: Engine): Promise<void> {
  // Of several nodes each does so for a session tree that it takes up.
  if (!engine.trees.several) await finishKeptChanges(engine);
  const removed = await (engine.trees.several ? sweepUnowned(engine) : sweepWorktrees(engine));
  if (removed.length > 0) engine.log.info({ sessions: removed }, 'worktrees removed that no delegation claims');
}
