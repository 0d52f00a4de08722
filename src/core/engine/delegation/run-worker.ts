// Spawns and runs a worker. Every tool uses this path: create the session, run it, close the delegation (04 §5, 13 §1).
import { listReferredFiles } from '#core/policy/delegation/delegate-tool.ts';
import { formatUnmarked } from '#core/policy/delegation/worker-changes.ts';
import {
  formatForPlanner,
  type PlannerView,
  type WorkerEnd,
  workerOutcome,
} from '#core/policy/delegation/worker-outcome.ts';
import { chooseWorkerModel, findModelTier } from '#core/policy/routing/worker-model.ts';
import { narrowWorkerTools } from '#core/policy/workers/worker-tools.ts';
import { WorktreeError } from '#core/ports/worktrees.ts';
import { Cancelled, createScope } from '#protocol/abort.ts';
import type { DelegateRequest, DelegationRecord } from '#protocol/delegate.ts';
import type { Isolation, WorktreeRecord } from '#protocol/file-change.ts';
import type { ToolUseId } from '#protocol/ids.ts';
import { type ContentBlock, joinText, textBlock } from '#protocol/message.ts';
import type { Pusd } from '#protocol/money.ts';
import { ok, type Result } from '#protocol/result.ts';
import type { SessionRecord } from '#protocol/session.ts';
import { type ToolOutput, toolTexts } from '#protocol/tool.ts';
import type { TurnRecord } from '#protocol/turn.ts';
import { loadToolset } from '../definitions/find-workers.ts';
import { getFilesRoot } from '../definitions/session-files.ts';
import { readDelegationPolicies } from '../routing/route-environment.ts';
import { cancelScope, createChildScope, FAULT, Interrupted, takeWhenFree, throwIfLost } from '../state/concurrency.ts';
import type { Caller } from '../state/delegation-runs.ts';
import type { DelegationEngine, Storage, Toolbox } from '../state/engine.ts';
import { noteStart } from '../state/memory.ts';
import {
  startWorkerClock,
  type ToolResults,
  type TurnRun,
  type WorkerRun,
  type WorkerShares,
} from '../state/turn-run.ts';
import { endOpenTurn, findContextRequest, rebuildRun } from '../turn/end-turn.ts';
import { announceResumed, failModelGone } from '../turn/planner-turn.ts';
import { workUntilChecked } from './check-worker.ts';
import { resolveWorkerTools } from './choose-isolation.ts';
import { closeDelegation } from './close-delegation.ts';
import { describeContinuation } from './continue-worker.ts';
import {
  createOpening,
  findStartedEvent,
  newDelegation,
  newWorkerSession,
  type SpawnedDelegation,
  storeOpening,
} from './open-delegation.ts';
import type { ResolvedRequest } from './resolve-request.ts';
import { discardTree, placeWorker, SetupError } from './worker-tree.ts';
import { type FinishedTurn, runWorkerTurn, type Work } from './worker-turns.ts';

/**
 * Runs one worker to its end and returns its result for the planner. A worker's failure is a result. Only the
 * cancellation of the calling turn is thrown, after the delegation is closed.
 */
export async function spawnWorker(
  engine: DelegationEngine,
  run: Caller,
  toolUseId: ToolUseId,
  { request, blocks, earlier, isolation_optional }: ResolvedRequest,
): Promise<ToolOutput> {
  // A missing sandbox fails the call before a worker exists.
  const sandboxes = Object.values((request.worker ?? earlier?.session.worker_definition)?.definition.sandboxes ?? {});
  await engine.workspaces.openSandboxes(getFilesRoot(run.session), sandboxes);
  const tools =
    earlier === null
      ? await resolveWorkerTools(engine, run, request)
      : narrowWorkerTools(earlier.delegation.effective_tools, request.allowed_tools);
  const { policies, version } = await readDelegationPolicies(engine, run.session);
  const { tier, effort } = request;
  const wanted = { model: request.worker?.definition.model ?? null, tier, effort };
  const found = chooseWorkerModel(wanted, policies, engine.registry);
  const model = found.ok ? found.value : null;
  const delegation = newDelegation(engine, run, toolUseId, { request, earlier, tools, model });

  const claimed = run.outside
    ? { writes: run.outside.claim(delegation), emit: [], onStored: () => run.outside?.onStored(delegation) }
    : null;
  const refuseSpawn = (end: WorkerEnd) =>
    finishDelegation(
      engine,
      run,
      { delegation, session: null, parent_event: run.call_event_id, opening: claimed },
      { worker: null, end },
    );
  // Counted before the next await, so that parallel calls cannot exceed the maximum together.
  if (run.tree.delegations >= engine.config.delegation.max_workers_per_turn)
    return refuseSpawn({ kind: 'not_spawned', message: 'too many delegations in this turn' });
  if (!found.ok) return refuseSpawn({ kind: 'not_spawned', message: found.error });
  if (model === null && tier !== null) return refuseSpawn({ kind: 'no_model' });
  run.tree.delegations += 1;

  const worker = await newWorkerSession(engine, run, delegation, { version, earlier: earlier?.session ?? null });
  const placed = await placeWorker(engine, run, worker, delegation).catch((error: unknown) => {
    if (!(error instanceof WorktreeError)) throw error;
    if (!isolation_optional || error instanceof SetupError) return error;
    engine.log.debug({ session_id: worker.id, problem: error.message }, 'a worker is shared: no worktree can be made');
    return { session: worker, worktree: null };
  });
  if (placed instanceof WorktreeError) return refuseSpawn({ kind: 'not_spawned', message: placed.message });
  const { session } = placed;
  await engine.workspaces.openSandboxes(getFilesRoot(session), sandboxes);
  noteStart(engine, session.id);
  const isolation: Isolation = placed.worktree === null ? 'shared' : 'worktree';
  const record = {
    ...delegation,
    worker_session_id: session.id,
    isolation,
    request: { ...request, isolation },
  };
  const opening = createOpening(run, record, placed);
  const spawned = { delegation: record, session, parent_event: null, opening };
  const first = ok([...(await describeUnmarked(engine, earlier && placed.worktree)), ...blocks]);
  const ran = runSpawned(engine, run, spawned, { blocks: first, outputTokensUsed: 0, resumeTurn: null });
  return ran.finally(() => (spawned.opening === null ? undefined : discardTree(engine, placed.worktree)));
}

/** Conflicts that a worker which continues another one cannot see in its worktree. */
async function describeUnmarked(
  { worktrees, log }: Pick<DelegationEngine, 'worktrees' | 'log'>,
  worktree: WorktreeRecord | null,
): Promise<readonly ContentBlock[]> {
  if (worktree === null) return [];
  const paths = await worktrees.findUnmarkedConflicts(worktree).catch((error: unknown) => {
    if (!(error instanceof WorktreeError)) throw error;
    log.warn({ session_id: worktree.session_id, problem: error.message }, 'conflicts of a worker could not be read');
    return [];
  });
  const notice = formatUnmarked(paths);
  return notice === null ? [] : [textBlock(notice)];
}

export function describeTierReason({ worker }: DelegateRequest): string {
  if (worker === null) return 'delegate() tier resolution';
  if (worker.definition.model === null) return 'worker definition tier';
  return 'worker definition model';
}

/** Runs the worker of a delegation, from its start or from its interruption. */
async function runSpawned(
  engine: DelegationEngine,
  run: Caller,
  spawned: SpawnedDelegation,
  from: {
    readonly blocks: Work['blocks'];
    readonly outputTokensUsed: number;
    /** Resumes the turn that was open; null = the worker starts with its first turn. */
    readonly resumeTurn: ((work: Work) => Promise<FinishedTurn | null>) | null;
  },
): Promise<ToolOutput> {
  const { delegation } = spawned;
  const { request } = delegation;
  const session = spawned.session!;
  const { scope, detach } = createChildScope(run.signal);
  const conclusion = run.background?.conclusion ?? createScope();
  const { timeout_seconds: seconds } = delegation;
  const share = engine.config.delegation.conclude_at;
  const limits = [];
  if (seconds !== null) limits.push({ seconds, onReached: () => cancelScope(scope, new Cancelled('timeout')) });
  if (seconds !== null && share !== null)
    limits.push({ seconds: seconds * share, onReached: () => conclusion.abort() });
  const clock = startWorkerClock(engine.clock, delegation.active_seconds, limits);
  const worker: WorkerRun = {
    tool_use_id: delegation.tool_use_id,
    task: request.task,
    files: listReferredFiles(request.context),
    tier_model: delegation.resolved_model,
    tier_reason: describeTierReason(request),
    tier: findModelTier({ model: request.worker?.definition.model ?? null, tier: request.tier }),
    effort: request.effort,
    output_schema: request.output_schema,
    starts_with_summary: request.history === 'summary',
    output_tokens_left: delegation.max_tokens === null ? null : delegation.max_tokens - from.outputTokensUsed,
    clock,
    conclude_at: share === null ? null : computeShares(delegation, share),
  };
  const own = delegation.max_cost_pusd;
  const caps = [...run.caps];
  if (own !== null) caps.push({ tool_use_id: delegation.tool_use_id, session_id: session.id, limit: own });
  engine.files.open(delegation, session.id);
  const work: Work = { spawned, session, worker, scope, conclusion, blocks: from.blocks, caps };
  try {
    const begun = Promise.resolve(from.resumeTurn?.(work) ?? null);
    const end = await begun
      .then((turn) => workUntilChecked(engine, run, work, turn))
      .catch((thrown: unknown): WorkerEnd => {
        if (thrown instanceof Interrupted) throw thrown;
        throwIfLost(scope.signal, thrown);
        engine.log.error({ err: thrown, session_id: session.id }, 'a worker could not be run');
        return { kind: 'failed', message: 'internal error', text: '' };
      });
    // A fault of the journal may have prevented the end of the worker's turn.
    await endOpenTurn(engine, session, FAULT);
    // What follows may wait for other workers, which does not count on its clock.
    clock.stop();
    return await finishDelegation(engine, run, spawned, { worker, end });
  } catch (thrown) {
    if (thrown instanceof Interrupted) {
      const { tool_use_id } = delegation;
      const active_seconds = clock.activeSeconds();
      await storeOpening(engine, spawned, [{ kind: 'delegation.interrupt', tool_use_id, active_seconds }]);
    }
    throw thrown;
  } finally {
    engine.files.forget(session.id);
    clock.stop();
    detach();
  }
}

/** The parts of a delegation's own limits at which its worker is concluded. */
function computeShares({ max_tokens, max_cost_pusd }: DelegationRecord, share: number): WorkerShares {
  // In integers, so that tokens and money are exact.
  const millionths = Math.round(share * 1_000_000);
  return {
    output_tokens_left: max_tokens === null ? null : max_tokens - Math.ceil((max_tokens * millionths) / 1_000_000),
    spent: max_cost_pusd === null ? null : (((max_cost_pusd * BigInt(millionths)) / 1_000_000n) as Pusd),
  };
}

async function finishDelegation(
  engine: DelegationEngine,
  run: Caller,
  spawned: SpawnedDelegation,
  { worker, end }: { readonly worker: WorkerRun | null; readonly end: WorkerEnd },
): Promise<ToolOutput> {
  const outcome = workerOutcome(end);
  if (spawned.session) await storeOpening(engine, spawned, []);
  const { usage, changes } = await closeDelegation(engine, spawned, outcome, worker?.clock.activeSeconds() ?? 0);
  if (spawned.session === null) spawned.opening?.onStored();
  if (outcome.cancel_scope === 'planner') {
    cancelScope(run.scope, new Cancelled('shutdown'));
    throw run.signal.reason;
  }
  const { failure_mode, error_message, output } = outcome;
  const { worker_session_id, request } = spawned.delegation;
  const result = { failure_mode, error_message, output, worker_session_id, request, ...changes };
  // What runs in the background is read by its delivery.
  const isDelivered = run.background !== undefined && spawned.session !== null;
  return {
    ...(isDelivered ? toolTexts([]) : await answerPlanner(engine, result, spawned.session)),
    metadata: {
      success: outcome.success,
      usage_summary: usage,
      worker_session_id,
      ...changes,
    },
  };
}

/** The result of the call, as the planner's model reads it. */
async function answerPlanner(
  engine: DelegationEngine,
  result: Parameters<typeof formatForPlanner>[0],
  worker: SessionRecord | null,
): Promise<ToolOutput> {
  const { texts, notes, is_error } = await viewResult(engine, result, worker);
  return toolTexts(texts, { notes, success: !is_error });
}

async function viewResult(
  engine: DelegationEngine,
  result: Parameters<typeof formatForPlanner>[0],
  worker: SessionRecord | null,
): Promise<PlannerView> {
  return formatForPlanner(result, worker === null ? null : await describeContinuation(engine, worker));
}

/** The result of a closed delegation, as the planner's model reads it. */
export async function describeResult(engine: DelegationEngine, delegation: DelegationRecord): Promise<PlannerView> {
  const { worker_session_id: id } = delegation;
  return viewResult(engine, delegation, id === null ? null : await engine.store.sessions.record(id));
}

// Finds the worker of a delegation call again after a restart or a pause: never a second worker (04 §13 step 5).

/**
 * Null when the call created no delegation.
 * @param blocksFor blocks of the first message for a worker that was created and never ran; an error is why it cannot run
 */
export async function resumeWorker(
  engine: DelegationEngine,
  run: Caller,
  toolUseId: string,
  blocksFor: (delegation: DelegationRecord) => Promise<Result<readonly ContentBlock[], string>>,
): Promise<ToolOutput | null> {
  const delegation = await engine.store.delegations.get(toolUseId);
  if (!delegation) return null;
  const session = delegation.worker_session_id
    ? await engine.store.sessions.record(delegation.worker_session_id)
    : null;
  if (delegation.status === 'completed' || delegation.status === 'failed')
    return answerPlanner(engine, delegation, session);
  if (!session) throw new Error(`delegation ${toolUseId} is open without a worker`);
  const started = await findStartedEvent(engine, delegation);
  const used = await engine.store.delegations.usage(session.id);
  await engine.journal.commit({
    writes: [{ kind: 'delegation.resume', tool_use_id: delegation.tool_use_id }],
    emit: [],
  });
  const spawned: SpawnedDelegation = { delegation, session, parent_event: started, opening: null };
  return runSpawned(engine, run, spawned, {
    blocks: await blocksFor(delegation),
    outputTokensUsed: used.output_tokens,
    resumeTurn: (work) => resumeNewestTurn(engine, run, work),
  });
}

/** Resumes the worker's newest turn; null when it has none yet. */
async function resumeNewestTurn(engine: DelegationEngine, planner: Caller, work: Work): Promise<FinishedTurn | null> {
  const { id } = work.session;
  // Another caller may be cancelling that very turn: its state counts once the lock is free.
  await takeWhenFree(engine.locks, id, null);
  let taken: { readonly run: TurnRun; readonly known: ToolResults } | FinishedTurn | null = null;
  try {
    taken = await rebuildOpenTurn(engine, planner, work);
  } finally {
    if (taken === null || !('run' in taken)) engine.locks.release(id);
  }
  if (taken !== null && 'run' in taken) return runWorkerTurn(engine, taken.run, taken.known);
  return taken;
}

/** The turn to resume, or the outcome it already has. The caller holds the lock. */
async function rebuildOpenTurn(engine: DelegationEngine, planner: Caller, work: Work) {
  const turn = await engine.store.turns.newest(work.session.id);
  if (turn === null) return null;
  if (turn.ended_at !== null) return readEndedTurn(engine, work.session, turn, work.worker.output_tokens_left);
  const { run, served, known } = await rebuildRun(engine, work.session, turn, {
    scope: work.scope,
    conclusion: work.conclusion,
    toolset: await loadToolset(engine, work.session),
    worker: work.worker,
    clocks: [work.worker.clock, ...planner.clocks],
    tree: planner.tree,
    caps: work.caps,
  });
  if (served === null) {
    const end = await failModelGone(engine, run);
    return { ...(await readEndedTurn(engine, work.session, turn, null)), end };
  }
  await announceResumed(engine, run);
  return { run: { ...run, ...served }, known };
}

function readStoredEnd(turn: TurnRecord): FinishedTurn['end'] {
  if (turn.status === 'completed') return { status: 'completed', stop_reason: turn.stop_reason ?? 'end_turn' };
  if (turn.status === 'cancelled') return { status: 'cancelled', reason: turn.cancel_reason ?? 'shutdown' };
  return { status: 'failed', message: turn.error_message ?? 'the turn failed' };
}

/** Reads a turn that had ended before the delegation was closed. */
async function readEndedTurn(
  engine: Storage & Toolbox,
  session: SessionRecord,
  turn: TurnRecord,
  tokensLeft: number | null,
): Promise<FinishedTurn> {
  const history = await engine.store.messages.history(session.id);
  const last = history.findLast((m) => m.role === 'assistant' && m.turn_id === turn.id);
  return {
    turn_id: turn.id,
    end: readStoredEnd(turn),
    text: last ? joinText(last.content) : '',
    llm_calls: turn.llm_call_count,
    tokens_exhausted: tokensLeft !== null && tokensLeft <= 0,
    concluded: turn.conclusion_message_id !== null,
    refusal: null,
    context_request: findContextRequest(
      engine.tools.knownTools(session.workspace_path),
      last,
      await engine.store.turns.toolCalls(turn.id),
    ),
  };
}
