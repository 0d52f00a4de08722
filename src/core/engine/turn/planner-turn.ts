// Runs a planner's turn under its session's lock: deadline, resumption after a restart or a raised limit.
import { Cancelled, createScope } from '#protocol/abort.ts';
import { draft } from '#protocol/event.ts';
import type { SessionId } from '#protocol/ids.ts';
import { StorageFault } from '#protocol/journal-batch.ts';
import type { SessionRecord } from '#protocol/session.ts';
import type { TurnRecord } from '#protocol/turn.ts';
import { loadToolset } from '../definitions/find-workers.ts';
import { isWaitingForMoney } from '../money/budget-limits.ts';
import { cancelScope } from '../state/concurrency.ts';
import type { CostHistories, Delegations, LiveSessions, Runtime, Storage, TurnEngine } from '../state/engine.ts';
import type { ToolResults, TurnBase, TurnCounts, TurnEnd, TurnPlan, TurnRun } from '../state/turn-run.ts';
import { endTurn, endUnfinishedTurn, rebuildRun } from './end-turn.ts';
import { runTurn } from './run-turn.ts';

// The first step of a resumed turn, and its end when its model is gone (04 §13).

/** Back to `in_flight`, with `turn.resumed`. A pause for money is no failed attempt. */
export async function announceResumed(engine: Storage & LiveSessions, run: TurnPlan & TurnCounts): Promise<void> {
  const reason = run.turn.interrupted_reason ?? 'restart';
  await engine.journal.commit({
    writes: [{ kind: 'turn.resume', turn_id: run.turn.id, count_attempt: engine.crashed.delete(run.turn.id) }],
    emit: [
      draft({
        type: 'turn.resumed',
        session_id: run.session.id,
        turn_id: run.turn.id,
        parent: run.started_event_id,
        payload: {
          resumed_at_call_index: run.tally.llm_calls + 1,
          reused_llm_calls: run.tally.llm_calls,
          reused_tool_calls: run.tally.tool_calls,
          interrupted_reason: reason,
        },
      }),
    ],
  });
}

/** Ends a turn whose model is gone, its workers first. */
export async function failModelGone(
  engine: Runtime & Storage & Delegations & CostHistories,
  run: TurnBase,
): Promise<TurnEnd> {
  await engine.workers.closeUnder(run.turn.id, new Cancelled('shutdown'));
  return endTurn(engine, run, {
    status: 'failed',
    error_code: 'model_not_configured',
    message: `the model of this turn is not configured any more: ${run.turn.chosen_model}`,
    error_class: null,
    retryable: false,
  });
}

/** Runs the turn. The caller holds the session's lock. */
export function startTopLevelTurn(engine: TurnEngine, run: TurnRun, known?: ToolResults): void {
  const { scope, session } = run;
  let end: TurnEnd | null = null;
  const leave = engine.places.enter();
  const started = { turn_id: run.turn.id, scope, conclusion: run.conclusion };
  const turn = engine.locks.start(session, started, async () => {
    const release = engine.tools.hold(session.workspace_path);
    const seconds = engine.config.turn.timeout_seconds;
    const timer =
      seconds === null ? null : engine.clock.after(seconds * 1000, () => cancelScope(scope, new Cancelled('timeout')));
    try {
      end = await runTurn(engine, run, known);
    } catch (thrown) {
      // Its end could not be stored: the turn would stay open for ever (16 §4.4).
      engine.trees.release(session.root_session_id);
      throw thrown;
    } finally {
      timer?.cancel();
      release();
      leave();
    }
  });
  // The limit may have been raised while the last part of the tree was still stopping.
  void turn.done.then(() => {
    if (end?.status === 'interrupted') return resumeIfPaid(engine, session.id);
  });
}

/** Resumes a turn that waits for money, unless its tree still has to wait. Never rejects. */
export async function resumeIfPaid(engine: TurnEngine, sessionId: SessionId): Promise<void> {
  if (engine.draining.value) return;
  try {
    if (await isWaitingForMoney(engine, sessionId)) return;
    await engine.workers.resumeOutside(sessionId);
    const turn = await engine.store.turns.open(sessionId);
    if (turn?.status !== 'interrupted' || turn.interrupted_reason !== 'budget') return;
    const session = await engine.store.sessions.record(sessionId);
    if (session) await resumeTopLevelTurn(engine, session, turn);
  } catch (err) {
    engine.log.error({ err, session_id: sessionId }, 'a turn that waited for money could not be resumed');
    if (err instanceof StorageFault) engine.trees.release(sessionId);
  }
}

/** A turn that crashed the server this often is ended instead of resumed. */
const MAX_ATTEMPTS = 3;

/**
 * Resumes a top-level turn at its last step; resolves when it runs. A turn whose lock is held is left alone, and while
 * the server drains every turn is.
 */
export async function resumeTopLevelTurn(engine: TurnEngine, session: SessionRecord, turn: TurnRecord): Promise<void> {
  if (engine.draining.value || engine.locks.tryTake(session.id, turn.id).held) return;
  try {
    if (turn.resume_attempts >= MAX_ATTEMPTS) {
      engine.log.warn({ session_id: session.id, turn_id: turn.id }, 'a turn was interrupted too often and is ended');
      await endUnfinishedTurn(engine, session, turn, new Cancelled('shutdown'));
      engine.locks.release(session.id);
      return;
    }
    const scope = createScope();
    const { run, served, known } = await rebuildRun(engine, session, turn, {
      scope,
      conclusion: createScope(),
      toolset: await loadToolset(engine, session),
      worker: null,
      clocks: [],
      tree: {
        delegations: await countWorkers(engine, turn),
        workers_pusd: await engine.store.turns.workersCost(session.id, turn.id),
      },
      caps: [],
    });
    if (served === null) {
      await failModelGone(engine, run);
      engine.locks.release(session.id);
      return;
    }
    await announceResumed(engine, run);
    startTopLevelTurn(engine, { ...run, ...served }, known);
  } catch (error) {
    engine.locks.release(session.id);
    throw error;
  }
}

/** Number of workers of the turn and of everything below it: a restart must not reset the maximum (04 §10). */
async function countWorkers(engine: Pick<Storage, 'store'>, turn: TurnRecord): Promise<number> {
  // No call of this turn has a smaller id than the turn itself; parents come before their children.
  const query = { recursive: true, after: `tu_${turn.id}`, limit: 1000 };
  const workers = new Set<string>();
  for (const d of (await engine.store.delegations.list(turn.session_id, query)).rows)
    if (d.worker_session_id && (d.parent_turn_id === turn.id || workers.has(d.parent_session_id)))
      workers.add(d.worker_session_id);
  return workers.size;
}
