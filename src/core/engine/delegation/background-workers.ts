// Workers that run beside their turn: started, resumed, and supervised to the end of their delegation (20 §9).
import { Cancelled } from '#protocol/abort.ts';
import type { DelegationRecord } from '#protocol/delegate.ts';
import type { SessionId, ToolUseId } from '#protocol/ids.ts';
import { TreeLost } from '#protocol/journal-batch.ts';
import { type ContentBlock, toolUses } from '#protocol/message.ts';
import { ok, type Result } from '#protocol/result.ts';
import { ToolError, type ToolOutput, toolText } from '#protocol/tool.ts';
import { rereadAttachments } from '../definitions/session-files.ts';
import type { BackgroundGroup, BackgroundRun, RunEnd } from '../state/background-groups.ts';
import { FAULT, Interrupted, isHandOver } from '../state/concurrency.ts';
import type { Caller } from '../state/delegation-runs.ts';
import type { DelegationEngine } from '../state/engine.ts';
import type { TurnRun } from '../state/turn-run.ts';
import { endUnfinishedDelegation } from './close-delegation.ts';
import { type ResolvedRequest, resolveRequest } from './resolve-request.ts';
import { resumeWorker, spawnWorker } from './run-worker.ts';

/** The result of a call whose worker runs in the background. */
export function describeStarted(worker: SessionId): ToolOutput {
  return toolText(`[worker ${worker} runs in the background]`, {
    metadata: { worker_session_id: worker, state: 'running' },
  });
}

/**
 * Starts a worker and returns as soon as it is stored. A call that opens no worker has the result of any such call.
 * Throws `ToolError` when as many workers of the turn are open as may be.
 */
export function startBackground(
  engine: DelegationEngine,
  run: TurnRun,
  toolUseId: ToolUseId,
  resolved: ResolvedRequest,
): Promise<ToolOutput> {
  const group = openGroup(engine, run);
  const { max_background: most } = engine.config.delegation;
  // No await before the worker is added: parallel calls must not exceed the maximum together.
  if (group.countOpen() >= most)
    throw new ToolError(
      'execution_error',
      `${most} workers of this turn run in the background already (delegation.max_background); wait for one of them, or call without background`,
    );
  return new Promise((resolve, reject) => {
    const spawn = (caller: Caller) => spawnWorker(engine, caller, toolUseId, resolved).then(resolve);
    superviseWorker(engine, run, { group, toolUseId, worker: null, onStored: resolve, onRefused: reject }, spawn);
  });
}

/** Resumes the background workers of a resumed turn. A turn with results to read gets a group too. */
export async function resumeBackground(engine: DelegationEngine, run: TurnRun): Promise<void> {
  const open = (await engine.store.delegations.open(run.turn.id)).filter(({ request }) => request.background === true);
  const waiting = await engine.store.delegations.deliveries(run.turn.id);
  if (open.length === 0 && waiting.length === 0) return;
  const group = openGroup(engine, run);
  const ignore = () => {};
  for (const { tool_use_id: toolUseId, worker_session_id: worker } of open)
    superviseWorker(engine, run, { group, toolUseId, worker, onStored: ignore, onRefused: ignore }, (caller) =>
      resumeWorker(engine, caller, toolUseId, (delegation) => readFirstBlocks(engine, caller, run, delegation)),
    );
}

function openGroup(engine: DelegationEngine, run: TurnRun): BackgroundGroup {
  return engine.background.open(run, () => isHandOver(engine, run.signal));
}

/** The blocks of the first message of a worker that was stored and never ran. */
async function readFirstBlocks(
  engine: DelegationEngine,
  caller: Caller,
  run: TurnRun,
  { tool_use_id, request }: DelegationRecord,
): Promise<Result<readonly ContentBlock[], string>> {
  if (request.worker !== null) return rereadAttachments(engine, caller.session, request.attachments);
  const calls = run.history.flatMap(({ role, content }) => (role === 'assistant' ? toolUses(content) : []));
  const call = calls.find(({ id }) => id === tool_use_id);
  const resolved = call && (await resolveRequest(engine, caller, call.input));
  return ok(resolved?.ok ? resolved.value.blocks : []);
}

/** Runs the work with a caller of its own, and settles the run however the work ends. Never rejects. */
function superviseWorker(
  engine: DelegationEngine,
  run: TurnRun,
  {
    group,
    toolUseId,
    worker,
    onStored,
    onRefused,
  }: {
    readonly group: BackgroundGroup;
    readonly toolUseId: ToolUseId;
    /** Null for a worker that is to be stored. */
    readonly worker: SessionId | null;
    readonly onStored: (started: ToolOutput) => void;
    /** The work ended before the delegation was stored. */
    readonly onRefused: (error: unknown) => void;
  },
  work: (caller: Caller) => Promise<unknown>,
): void {
  const added = group.add(toolUseId, worker);
  const caller = createBackgroundCaller(run, added.run, (delegation) => {
    added.run.worker_session_id = delegation.worker_session_id;
    if (delegation.worker_session_id !== null) onStored(describeStarted(delegation.worker_session_id));
    group.wake();
  });
  void work(caller)
    .then((): RunEnd => null)
    .catch(async (thrown: unknown): Promise<RunEnd> => {
      if (thrown instanceof TreeLost || caller.signal.reason instanceof TreeLost) {
        onRefused(thrown);
        return 'lost';
      }
      const isStored = await endFailedWorker(engine, run, toolUseId, thrown);
      if (!isStored) onRefused(thrown);
      return thrown instanceof Interrupted && isStored ? { interrupted: thrown.reason } : null;
    })
    .catch((error: unknown): RunEnd => {
      onRefused(error);
      if (error instanceof TreeLost) return 'lost';
      engine.log.error({ err: error, session_id: run.session.id }, 'the end of a background worker was not stored');
      return { error };
    })
    .then(added.settle);
}

/** The turn as the caller of one background worker: cancelled and concluded by itself. */
function createBackgroundCaller(
  run: TurnRun,
  { scope, conclusion }: BackgroundRun,
  onStored: (delegation: DelegationRecord) => void,
): Caller {
  const { session, toolset, clocks, tree, caps, call_event_id, turn, model, history } = run;
  return {
    session,
    toolset,
    clocks,
    tree,
    caps,
    call_event_id,
    turn,
    model,
    history,
    scope,
    signal: scope.signal,
    background: { conclusion, onStored },
  };
}

/** Ends a delegation whose work threw, unless it is to be resumed. False when the delegation was never stored. */
async function endFailedWorker(
  engine: DelegationEngine,
  { session }: TurnRun,
  toolUseId: ToolUseId,
  thrown: unknown,
): Promise<boolean> {
  const delegation = await engine.store.delegations.get(toolUseId);
  if (delegation === null) return false;
  if (thrown instanceof Interrupted || delegation.ended_at !== null) return true;
  if (!(thrown instanceof Cancelled))
    engine.log.error({ err: thrown, session_id: session.id }, 'a background worker failed');
  await endUnfinishedDelegation(engine, delegation, thrown instanceof Cancelled ? thrown : FAULT);
  return true;
}
