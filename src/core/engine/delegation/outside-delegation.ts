// A delegation requested over the API: the same worker, without a turn above it (19 §3.1).
import { shownName } from '#core/policy/cut.ts';
import { decideApproval, findToolRule, resolveToolMode } from '#core/policy/tools/approval.ts';
import { Cancelled, createScope } from '#protocol/abort.ts';
import type { DelegationRecord } from '#protocol/delegate.ts';
import { AppError, type Issue, validationError } from '#protocol/errors.ts';
import type { SessionId, ToolUseId } from '#protocol/ids.ts';
import { JournalConflict } from '#protocol/journal-batch.ts';
import { ok } from '#protocol/result.ts';
import type { SessionRecord } from '#protocol/session.ts';
import { ToolError } from '#protocol/tool.ts';
import { loadToolset } from '../definitions/find-workers.ts';
import { rereadAttachments } from '../definitions/session-files.ts';
import { selectBaseTools, selectWorkerCallers } from '../prompt/model-input.ts';
import { readHistory } from '../session/read-history.ts';
import { sessionEndedError } from '../session/session-records.ts';
import { FAULT, Interrupted, throwIfLost } from '../state/concurrency.ts';
import type { Caller, OutsideCall } from '../state/delegation-runs.ts';
import type { DelegationEngine, Runtime, WorkspaceAccess } from '../state/engine.ts';
import { newDelegationTree } from '../state/turn-run.ts';
import { endUnfinishedDelegation } from './close-delegation.ts';
import { isWorkerRunning } from './continue-worker.ts';
import { InvalidOptions, resolveNamedRequest } from './resolve-named-request.ts';
import { type ResolvedRequest, resolveRequest } from './resolve-request.ts';
import { resumeWorker, spawnWorker } from './run-worker.ts';

/** The requested work: the input of `delegate`, or a named worker with its own input. */
export type OutsideInput =
  | { readonly worker: null; readonly input: Readonly<Record<string, unknown>> }
  | { readonly worker: string; readonly input: Readonly<Record<string, unknown>> };

/** The session's current state as a caller of workers. */
export async function createOutsideCaller(
  engine: DelegationEngine,
  session: SessionRecord,
  call: Omit<OutsideCall, 'tools'>,
): Promise<Caller> {
  const toolset = await loadToolset(engine, session);
  const tools = [
    ...selectBaseTools(session, { toolset, granted: null }),
    ...selectWorkerCallers(engine, session, toolset),
  ];
  const scope = createScope();
  return {
    session,
    toolset,
    scope,
    signal: scope.signal,
    clocks: [],
    tree: newDelegationTree(),
    caps: [],
    call_event_id: null,
    turn: null,
    model: null,
    history: await readHistory(engine, session),
    outside: { ...call, tools: tools.map(({ name }) => name) },
  };
}

/** Throws `validation_error`, or `not_found` for a worker that this session may not call. */
export async function resolveOutsideRequest(
  engine: DelegationEngine,
  caller: Caller,
  { worker, input }: OutsideInput,
): Promise<ResolvedRequest> {
  await requireAllowed(engine, caller, worker);
  if (worker === null) {
    const resolved = await resolveRequest(engine, caller, input);
    if (!resolved.ok) throw validationError(resolved.error.map(clearRootPath));
    return requireEnded(resolved.value);
  }
  if (caller.toolset.definition(worker)?.spawns !== 'worker_tool')
    throw new AppError('not_found', `no worker ${shownName(worker)} that this session may call`, {
      resource: 'worker',
    });
  const issues = caller.toolset.validate(worker, input);
  if (issues.length > 0) throw validationError(issues.map(clearRootPath));
  try {
    const named = { entry: 'worker_tool', name: worker } as const;
    return requireEnded(await resolveNamedRequest(engine, caller, named, input));
  } catch (error) {
    if (error instanceof InvalidOptions) throw validationError(error.issues);
    if (!(error instanceof ToolError)) throw error;
    const path = input.attachments === undefined ? 'worker' : 'attachments';
    throw validationError([{ path, message: error.message }]);
  }
}

/** From outside there is no answer to give in place of a delegation: a worker that still runs is not continued. */
function requireEnded(resolved: ResolvedRequest): ResolvedRequest {
  const { earlier } = resolved;
  if (earlier === null || !isWorkerRunning(earlier)) return resolved;
  const message = `the worker ${earlier.session.id} still runs; steer its turn`;
  throw validationError([{ path: 'continue', message }]);
}

/** The call itself needs no approval here, but a call that is never allowed stays rejected. */
async function requireAllowed(
  engine: Runtime & WorkspaceAccess,
  { session, toolset }: Caller,
  worker: string | null,
): Promise<void> {
  const name = worker ?? 'delegate';
  const covered = toolset.definition(name);
  if (covered === null) return;
  const decision = decideApproval({
    inEffectiveSet: true,
    rule: findToolRule(session.worker_definition?.definition.tool_rules ?? {}, covered),
    mode: resolveToolMode(engine.config.tool_confirmation, covered),
    trust: await engine.workspaces.readTrust(session.workspace_path),
    toolName: name,
    approvalMode: 'interactive',
    granted: true,
  });
  if (decision !== 'deny_policy') return;
  const where = 'tool_confirmation of the configuration, or .metis/trust.yaml of the workspace';
  throw validationError([{ path: worker === null ? '' : 'worker', message: `${name} is denied by policy: ${where}` }]);
}

/** An issue of the whole input has no path. */
function clearRootPath({ path, message }: Issue): Issue {
  return { path: path === '$' ? '' : path, message };
}

/**
 * Runs the delegation in the session's next free slot and stores its outcome. Registered at once, so that the session's
 * end finds it. Rejects when the delegation could not be stored.
 */
export function startOutsideDelegation(
  engine: DelegationEngine,
  caller: Caller,
  toolUseId: ToolUseId,
  resolved: ResolvedRequest,
): Promise<void> {
  return runDelegation(engine, caller, toolUseId, () => spawnWorker(engine, caller, toolUseId, resolved));
}

function runDelegation(
  engine: DelegationEngine,
  caller: Caller,
  toolUseId: ToolUseId,
  work: () => Promise<unknown>,
): Promise<void> {
  const { session, scope } = caller;
  if (engine.ending.has(session.id)) throw sessionEndedError();
  const worked = runInSlot(engine, caller, toolUseId, work);
  const done = worked.catch(() => {});
  const { id: session_id, root_session_id } = session;
  engine.outside.add({ session_id, root_session_id, tool_use_id: toolUseId, scope, done });
  return worked;
}

async function runInSlot(
  engine: DelegationEngine,
  { session, signal }: Caller,
  id: ToolUseId,
  work: () => Promise<unknown>,
) {
  const release = await engine.outside.getSlots(session.id).take(signal);
  try {
    if (engine.draining.value) throw new Interrupted('restart');
    await work();
  } catch (thrown) {
    throwIfLost(signal, thrown);
    const wasStored = await endFailedDelegation(engine, session, { id, thrown }).catch((error: unknown) => {
      // Its end could not be stored: the delegation would stay open for ever (16 §4.4).
      engine.trees.release(session.root_session_id);
      throw error;
    });
    if (!wasStored) throw thrown;
  } finally {
    release();
  }
}

/** Ends a delegation whose work threw, unless it is to be resumed. False when the delegation was never stored. */
async function endFailedDelegation(
  engine: DelegationEngine,
  session: SessionRecord,
  { id, thrown }: { readonly id: ToolUseId; readonly thrown: unknown },
): Promise<boolean> {
  const delegation = await engine.store.delegations.get(id);
  if (delegation === null) return false;
  if (thrown instanceof Interrupted || delegation.ended_at !== null) return true;
  if (!(thrown instanceof Cancelled)) engine.log.error({ err: thrown, session_id: session.id }, 'a delegation failed');
  await endUnfinishedDelegation(engine, delegation, thrown instanceof Cancelled ? thrown : FAULT);
  return true;
}

/** The error for the caller of a delegation that was never stored. */
export function toOutsideError(engine: Pick<Runtime, 'draining'>, thrown: unknown): unknown {
  if (thrown instanceof JournalConflict && thrown.code === 'session_ended') return sessionEndedError();
  if (thrown instanceof Interrupted || (engine.draining.value && thrown instanceof Cancelled))
    return new AppError('service_shutting_down', 'the server is going down; try again soon');
  if (thrown instanceof Cancelled) return sessionEndedError();
  if (thrown instanceof ToolError) return validationError([{ path: '', message: thrown.message }]);
  return thrown;
}

/**
 * Resumes the interrupted delegations that no turn will resume: of this tree, or of all trees. A delegation that waits
 * for money or already runs is left alone.
 */
export async function resumeOutsideDelegations(
  engine: DelegationEngine,
  root?: SessionId,
  only?: ToolUseId,
): Promise<void> {
  if (engine.draining.value) return;
  for (const delegation of await engine.store.delegations.allOpen(root)) {
    if (delegation.parent_turn_id !== null || engine.outside.get(delegation.tool_use_id)) continue;
    if (only !== undefined && delegation.tool_use_id !== only) continue;
    const session = await engine.store.sessions.record(delegation.parent_session_id);
    if (session === null || engine.budget.paused.has(session.root_session_id)) continue;
    await resumeDelegation(engine, session, delegation);
  }
}

/** Starts the delegation again; resolves when it runs. */
async function resumeDelegation(
  engine: DelegationEngine,
  session: SessionRecord,
  delegation: DelegationRecord,
): Promise<void> {
  const { worker_session_id: worker } = delegation;
  const newest = worker === null ? null : await engine.store.turns.newest(worker);
  const submitted_by = newest?.submitted_by ?? null;
  const caller = await createOutsideCaller(engine, session, { submitted_by, claim: () => [], onStored: () => {} });
  // Another caller may have resumed it meanwhile.
  if (engine.outside.get(delegation.tool_use_id)) return;
  const readBlocks = async ({ request }: DelegationRecord) => {
    if (request.worker === null) return ok([]);
    return rereadAttachments(engine, session, request.attachments);
  };
  const resumed = runDelegation(engine, caller, delegation.tool_use_id, () =>
    resumeWorker(engine, caller, delegation.tool_use_id, readBlocks),
  );
  void resumed.catch((err: unknown) =>
    engine.log.error({ err, session_id: session.id }, 'a delegation could not be resumed'),
  );
}

/** Ends the delegations of a session that have no turn: running and interrupted ones. */
export async function endOutsideDelegations(
  engine: DelegationEngine,
  session: SessionRecord,
  reason: Cancelled,
): Promise<void> {
  await engine.outside.stop(session.id, reason);
  for (const delegation of await engine.store.delegations.allOpen(session.root_session_id))
    if (delegation.parent_turn_id === null && delegation.parent_session_id === session.id)
      await endUnfinishedDelegation(engine, delegation, reason);
}
