// Recovery and shutdown: before the server listens, closes work that was left open or keeps it for resumption (01 §11.5, 04 §13).
import { countActiveSeconds } from '#core/policy/delegation/active-time.ts';
import { Cancelled } from '#protocol/abort.ts';
import { getDrainSeconds } from '#protocol/config.ts';
import type { DelegationRecord } from '#protocol/delegate.ts';
import { AppError } from '#protocol/errors.ts';
import type { SessionId } from '#protocol/ids.ts';
import { StorageFault, TreeLost } from '#protocol/journal-batch.ts';
import type { TurnRecord } from '#protocol/turn.ts';
import type { TreeWork } from '../ports/tree-ownership.ts';
import { closeOpenApprovals } from './approval/approve-call.ts';
import { killLeftChecks } from './delegation/check-worker.ts';
import { endUnfinishedDelegation } from './delegation/close-delegation.ts';
import { resumeOutsideDelegations } from './delegation/outside-delegation.ts';
import { dropAnswers } from './gateway/relay-call.ts';
import { finishKeptChanges, sweepWorktrees } from './manage-worktrees.ts';
import { closeModelCallsInTree, closeOpenModelCalls, storeSettledMark } from './model-call/turn-end.ts';
import { pauseWaitingTrees } from './money/budget-limits.ts';
import { cancelScope } from './state/concurrency.ts';
import type { Budgets, Cluster, Engine, Runtime, Storage, TurnEngine } from './state/engine.ts';
import { hasCalls } from './state/gateway-memory.ts';
import { createSuspects, loseTree } from './tree/lost-trees.ts';
import { endUnfinishedTurn } from './turn/end-turn.ts';
import { resumeTopLevelTurn } from './turn/planner-turn.ts';

export interface Recovery {
  readonly ended: number;
  readonly interrupted: number;
}

/**
 * Prepares open work for resumption, or ends it, per `recovery.on_start`. Running it twice changes nothing.
 * @param root the tree that was just claimed; absent = everything, before the embedded server listens
 */
export async function recover(engine: Engine, root?: SessionId): Promise<Recovery> {
  const { store } = engine;
  await killLeftChecks(engine, root);
  // A worker's time ends with its last stored record, so it is read before any record is closed.
  for (const delegation of await store.delegations.allOpen(root)) await interruptDelegation(engine, delegation);
  if (root === undefined) await closeOpenModelCalls(engine);
  else await closeModelCallsInTree(engine, root);
  await closeOpenApprovals(engine, root);
  await endOrphans(engine, root);
  const open = await store.turns.allOpen(root);
  if (engine.config.recovery.on_start === 'cancel') {
    for (const turn of open) {
      const session = await store.sessions.record(turn.session_id);
      // Ending a planner's turn ends its workers too.
      const still = session && (await store.turns.open(session.id));
      if (session && still) await endUnfinishedTurn(engine, session, still, new Cancelled('shutdown'));
    }
    return { ended: open.length, interrupted: 0 };
  }
  await pauseWaitingTrees(engine, open);
  for (const turn of open) {
    if (turn.status === 'interrupted') continue;
    if (root === undefined || !(await hasProgressed(engine, root, turn))) engine.crashed.add(turn.id);
    await interruptOpenTurn(engine, turn);
  }
  return { ended: 0, interrupted: open.length };
}

/** Removes the temporary folders of workers that have ended: a process may die between a worker's end and that (20 §2). */
export async function removeTemporaryFolders({ workspaces, store }: Engine): Promise<void> {
  for (const id of await workspaces.temporary.list()) {
    const session = await store.sessions.record(id);
    if (session === null || session.ended_at !== null) await workspaces.temporary.remove(id);
  }
}

async function interruptOpenTurn(engine: Storage & Budgets, turn: TurnRecord): Promise<void> {
  const session = await engine.store.sessions.record(turn.session_id);
  const totals = await engine.store.turns.totals(turn.id);
  const calls = await engine.store.turns.toolCalls(turn.id);
  await engine.journal.commit({
    writes: [
      {
        kind: 'turn.interrupt',
        turn_id: turn.id,
        reason: session && engine.budget.paused.has(session.root_session_id) ? 'budget' : 'restart',
        llm_call_count: totals.calls,
        tool_call_count: calls.filter((c) => c.result !== null).length,
      },
    ],
    emit: [],
  });
}

/** Whether the turn, or a worker below it, made progress since its last resumption. Such a turn is not suspected of crashing its nodes (16 §4.3). */
async function hasProgressed({ store }: Pick<Storage, 'store'>, root: SessionId, turn: TurnRecord): Promise<boolean> {
  const begun = await store.events.findNewestOfTurn(turn.id, ['turn.started', 'turn.resumed']);
  const { rows } = await store.events.list({
    session_id: root,
    include_workers: true,
    types: ['llm.call_completed', 'tool.completed'],
    after: begun?.id ?? null,
    until: null,
    limit: 1,
  });
  return rows.length > 0;
}

/**
 * Resumes every interrupted top-level turn, once the server listens or a tree was claimed. No turn waits for another
 * whose workspace starts its tools slowly. A turn that waits for money keeps waiting.
 * @param root of this tree; absent = of all trees
 */
export async function resumeAll(engine: Engine, root?: SessionId): Promise<void> {
  if (engine.config.recovery.on_start !== 'resume') return;
  const resume = async (turn: TurnRecord) => {
    if (turn.status !== 'interrupted') return;
    const session = await engine.store.sessions.record(turn.session_id);
    if (!session || session.is_worker) return;
    if (turn.interrupted_reason === 'budget' && engine.budget.paused.has(session.id)) return;
    await resumeTopLevelTurn(engine, session, turn);
  };
  const open = await engine.store.turns.allOpen(root);
  await resumeOutsideDelegations(engine, root);
  await Promise.all(
    open.map((turn) =>
      resume(turn).catch((err: unknown) => {
        if (err instanceof TreeLost) return;
        engine.log.error({ err, session_id: turn.session_id, turn_id: turn.id }, 'a turn could not be resumed');
        if (root !== undefined) giveUpUnstorableTree(engine, root, err);
      }),
    ),
  );
}

/** Stores a worker's used time: until its last stored record, without open approvals. */
async function interruptDelegation(engine: Storage, delegation: DelegationRecord): Promise<void> {
  if (delegation.status === 'interrupted' || delegation.worker_session_id === null) return;
  const { rows } = await engine.store.events.list({
    session_id: delegation.worker_session_id,
    include_workers: false,
    types: null,
    after: null,
    until: null,
    limit: 10_000,
  });
  // An orderly interruption stored what its clock had measured, which ends later than the newest event.
  const active_seconds = Math.max(delegation.active_seconds, countActiveSeconds(rows));
  await engine.journal.commit({
    writes: [{ kind: 'delegation.interrupt', tool_use_id: delegation.tool_use_id, active_seconds }],
    emit: [],
  });
}

/** A worker is ended when its planner's turn has ended (04 §13). */
async function endOrphans(engine: TurnEngine, root?: SessionId): Promise<void> {
  for (const delegation of await engine.store.delegations.allOpen(root)) {
    if (await isOrphan(engine, delegation))
      await endUnfinishedDelegation(engine, delegation, new Cancelled('shutdown'));
  }
}

async function isOrphan(
  engine: Runtime & Storage,
  { parent_session_id, parent_turn_id }: DelegationRecord,
): Promise<boolean> {
  if (parent_turn_id !== null)
    return (await engine.store.turns.record(parent_session_id, parent_turn_id))?.ended_at != null;
  if (engine.config.recovery.on_start === 'cancel') return true;
  return (await engine.store.sessions.record(parent_session_id))?.ended_at != null;
}

/** A fault of the database passes, so the tree is tried again; a fault of the tree would repeat at each attempt. */
function giveUpUnstorableTree(engine: Pick<Cluster, 'trees'>, root: SessionId, error: unknown): void {
  if (error instanceof StorageFault) engine.trees.release(root);
}

/** Callbacks of a node for the trees that it holds. */
export function createTreeWork(engine: Engine): TreeWork {
  const suspects = createSuspects(engine);
  return {
    running: () => engine.places.countTaken(),
    inUse: (root) =>
      engine.locks.isHeld(root) ||
      engine.outside.listSessions().includes(root) ||
      // Open calls keep a tree without a request: calls that opened it themselves, and background answers.
      hasCalls(engine.gateway, root),
    watched: (root) => engine.bus.isWatched(root),
    async takeUp(root) {
      await engine.worktrees.endStray(root);
      await recover(engine, root);
      await finishKeptChanges(engine, root);
      // What is left of worktrees obstructs nothing.
      await sweepWorktrees(engine, root).catch((err: unknown) => {
        engine.log.warn({ err, session_id: root }, 'worktrees that are left could not be removed');
      });
      const resume = () => resumeAll(engine, root);
      // Not awaited: a request for the tree meanwhile finds its turn being resumed.
      const resumed = (await suspects.includes(root)) ? suspects.resumeInTurn(root, resume) : resume();
      void resumed.catch((err: unknown) => {
        if (err instanceof TreeLost) return;
        engine.log.error({ err, session_id: root }, 'a tree could not be resumed');
        giveUpUnstorableTree(engine, root, err);
      });
    },
    abandonTree: (root, patienceMs) => loseTree(engine, root, patienceMs),
  };
}

// Graceful shutdown: running calls and tools may finish, nothing new starts, the rest is cancelled (04 §13).

/**
 * Resolves when no turn and no gateway call runs any more, turns in admission included. Each turn then has its terminal
 * event, or is interrupted and resumes at the next start.
 */
export async function drain(engine: Engine): Promise<void> {
  engine.draining.value = true;
  dropAnswers(engine);
  engine.background.wakeAll();
  for (const approval of [...engine.approvals.values()]) approval.interrupt();
  const timer = engine.clock.after(getDrainSeconds(engine.config) * 1000, () => {
    for (const turn of engine.locks.activeTurns()) cancelScope(turn.scope, new Cancelled('shutdown'));
    for (const call of engine.gateway.calls) cancelScope(call.scope, new Cancelled('shutdown'));
  });
  await Promise.all([engine.locks.whenIdle(), engine.outside.whenIdle()]);
  await engine.locks.whenIdle();
  while (engine.gateway.calls.size > 0) await Promise.all([...engine.gateway.calls].map(({ done }) => done));
  timer.cancel();
  if (engine.trees.several) return;
  await storeSettledMark(engine).catch((err: unknown) =>
    engine.log.warn({ err }, 'the next start looks through more events'),
  );
}

export function shuttingDownError(): AppError {
  return new AppError('service_shutting_down', 'the server is going down; try again soon');
}
