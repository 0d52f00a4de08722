// Closes a delegation: its worker's session ends, its record gets the outcome, one `delegate.*` event is published (04 §5.4).
import { reportTreeChanges, summariseChanges } from '#core/policy/delegation/worker-changes.ts';
import type { DelegateOutcome } from '#core/policy/delegation/worker-outcome.ts';
import { buildTreeCost } from '#core/policy/learning/forecast.ts';
import type { Write } from '#core/ports/journal-writer.ts';
import type { WorkerUsage } from '#core/ports/store-reader.ts';
import type { Cancelled } from '#protocol/abort.ts';
import type { DelegationRecord, UsageSummary } from '#protocol/delegate.ts';
import { draft, type EventDraft } from '#protocol/event.ts';
import { type CheckReport, NO_CHANGES, type WorkerChanges } from '#protocol/file-change.ts';
import type { ToolUseId, TurnId } from '#protocol/ids.ts';
import { fromPusd } from '#protocol/money.ts';
import type { SessionRecord } from '#protocol/session.ts';
import { forgetLimit } from '../money/budget-limits.ts';
import {
  type DelegationEngine,
  type ModelCatalog,
  type Runtime,
  type Storage,
  safeText,
  type WorkspaceAccess,
} from '../state/engine.ts';
import { secondsSince } from '../state/memory.ts';
import { endUnfinishedTurn } from '../turn/end-turn.ts';
import { readCheckReport, settleCheckedTree } from './checked-tree.ts';
import { findStartedEvent, type SpawnedDelegation } from './open-delegation.ts';
import { closeTree, settleTree, type TreeOutcome } from './worker-tree.ts';

/**
 * Returns the worker's usage and file changes, whether it succeeded or not. A delegation that has no worker yet is stored
 * here for the first time, together with its end.
 */
export async function closeDelegation(
  engine: DelegationEngine,
  spawned: SpawnedDelegation,
  outcome: DelegateOutcome,
  activeSeconds: number,
): Promise<{ readonly usage: UsageSummary; readonly changes: WorkerChanges }> {
  const { delegation, session } = spawned;
  const at = engine.clock.now();
  const seconds = secondsSince(engine, delegation.worker_session_id, delegation.created_at);
  const used = session ? await engine.store.delegations.usage(session.id) : null;
  const isChecked = delegation.request.check !== null;
  const checked = isChecked ? await settleCheckedTree(engine, delegation, outcome) : null;
  const tree = isChecked ? checked : await settleTree(engine, delegation, outcome.success);
  const report = await readCheckReport(engine, delegation, checked?.protected_changes ?? []);
  const changes = await readChanges(engine, { delegation, session, tree, report });
  let message: string | null = null;
  if (outcome.error_message !== null)
    message = safeText(engine, outcome.error_message, session?.workspace_path ?? null);
  const writes: Write[] = [];
  const emit: EventDraft[] = [];
  if (session) {
    writes.push({ kind: 'session.end', session_id: session.id, disposition: outcome.disposition, at });
    emit.push(
      draft({
        type: 'session.ended',
        session_id: session.id,
        turn_id: null,
        parent: null,
        payload: {
          disposition: outcome.disposition,
          turn_count: used?.completed_turn_count ?? 0,
          total_cost_usd: fromPusd(used?.cost_pusd ?? 0n),
          duration_seconds: seconds,
        },
      }),
    );
  }
  if (delegation.worker_session_id === null)
    writes.push({ kind: 'delegation.insert', delegation }, ...(spawned.opening?.writes ?? []));
  writes.push({
    kind: 'delegation.end',
    tool_use_id: delegation.tool_use_id,
    status: outcome.success ? 'completed' : 'failed',
    failure_mode: outcome.failure_mode,
    error_message: message,
    output: outcome.output,
    changes,
    active_seconds: activeSeconds,
    ended_at: at,
  });
  if (
    delegation.request.background === true &&
    delegation.worker_session_id !== null &&
    delegation.parent_turn_id !== null
  )
    writes.push({
      kind: 'delivery.insert',
      delivery: {
        id: engine.ids.next(),
        session_id: delegation.parent_session_id,
        turn_id: delegation.parent_turn_id,
        worker_session_id: delegation.worker_session_id,
        created_at: at,
      },
    });
  const cost = outcome.success && session ? await readWorkerCost(engine, session, at) : null;
  if (cost !== null) writes.push({ kind: 'tree_cost.insert', cost });
  emit.push(draftClosingEvent(engine, spawned, outcome, { message, used, seconds, changes }));
  await engine.journal.commit({ writes, emit });
  if (cost !== null) engine.forecasts?.add(cost);
  forgetLimit(engine, 'delegation', delegation.tool_use_id);
  if (session) {
    engine.starts.delete(session.id);
    await engine.workspaces.temporary.remove(session.id);
  }
  await closeTree(engine, delegation);
  const usage = {
    model: used?.model || (delegation.resolved_model ?? ''),
    turn_count: used?.turn_count ?? 0,
    input_tokens: used?.input_tokens ?? 0,
    output_tokens: used?.output_tokens ?? 0,
    cost_usd: fromPusd(used?.cost_pusd ?? 0n),
    wall_time_seconds: seconds,
    tool_call_count: used?.tool_call_count ?? 0,
  };
  return { usage, changes };
}

/** What the worker cost with everything below it, by the shape of its first turn; null where nothing is learned of it (21 §1). */
async function readWorkerCost(
  { store }: Pick<Storage, 'store'>,
  { id, workspace_path }: SessionRecord,
  ended_at: number,
): Promise<ReturnType<typeof buildTreeCost> | null> {
  const { shape_sig = null, chosen_model = null, chosen_effort = null } = (await store.turns.first(id)) ?? {};
  if (shape_sig === null || chosen_model === null) return null;
  const cost_pusd = await store.spend.sumSubtree(id);
  const place = { id, workspace_path, is_worker: true, shape_sig, chosen_model, chosen_effort };
  return buildTreeCost({ ...place, cost_pusd, forecast: null, ended_at });
}

async function readChanges(
  engine: Storage & WorkspaceAccess & Pick<Runtime, 'secrets'>,
  {
    delegation,
    session,
    tree,
    report,
  }: {
    readonly delegation: DelegationRecord;
    readonly session: Pick<SessionRecord, 'id' | 'workspace_path'> | null;
    readonly tree: TreeOutcome | null;
    readonly report: CheckReport;
  },
): Promise<WorkerChanges> {
  const worker = session?.id ?? (tree === null ? null : delegation.worker_session_id);
  if (worker === null) return { ...NO_CHANGES, ...report, isolation: delegation.isolation };
  const calls = await engine.store.delegations.changes(worker);
  const findOverlaps = (paths: readonly string[]) => engine.files.overlaps(worker, paths);
  if (tree !== null) {
    const apply_error =
      tree.apply_error === undefined ? null : safeText(engine, tree.apply_error, session?.workspace_path ?? null);
    return reportTreeChanges(calls, { ...tree, apply_error, report }, findOverlaps);
  }
  return summariseChanges(calls, findOverlaps);
}

function draftClosingEvent(
  engine: Pick<ModelCatalog, 'prices'>,
  { delegation, session, parent_event }: SpawnedDelegation,
  outcome: DelegateOutcome,
  {
    message,
    used,
    seconds,
    changes,
  }: {
    readonly message: string | null;
    readonly used: WorkerUsage | null;
    readonly seconds: number;
    readonly changes: WorkerChanges;
  },
): EventDraft {
  const common = {
    session_id: delegation.parent_session_id,
    turn_id: delegation.parent_turn_id,
    parent: parent_event,
  };
  const spent = {
    worker_total_cost_usd: fromPusd(used?.cost_pusd ?? 0n),
    pricing_version: used?.pricing_version || engine.prices.version,
    turn_count: used?.turn_count ?? 0,
    llm_call_count: used?.llm_call_count ?? 0,
    tool_call_count: used?.tool_call_count ?? 0,
    input_tokens: used?.input_tokens ?? 0,
    output_tokens: used?.output_tokens ?? 0,
    wall_time_seconds: seconds,
  };
  const model = used?.model || delegation.resolved_model;
  if (outcome.success && session)
    return draft({
      ...common,
      type: 'delegate.completed',
      payload: {
        tool_use_id: delegation.tool_use_id,
        worker_session_id: session.id,
        success: true,
        output_size_bytes: countOutputBytes(outcome.output),
        ...spent,
        model: model ?? '',
        ...changes,
      },
    });
  return draft({
    ...common,
    type: 'delegate.failed',
    payload: {
      tool_use_id: delegation.tool_use_id,
      worker_session_id: session?.id ?? null,
      failure_mode: outcome.failure_mode ?? 'worker_error',
      error_message: message ?? '',
      ...spent,
      model,
      insufficient_context_request: outcome.insufficient_context_request,
      cancel_scope: outcome.cancel_scope,
      tier: delegation.tier,
      worker_name: delegation.worker_name,
      ...changes,
    },
  });
}

// Closes delegations whose workers no longer have a running loop (04 §13).

/** @param only closes this tool call's delegation; the others stay open */
export async function closeOpenDelegations(
  engine: DelegationEngine,
  turnId: TurnId,
  { reason, only }: { readonly reason: Cancelled; readonly only: ToolUseId | null },
): Promise<void> {
  for (const delegation of await engine.store.delegations.open(turnId))
    if (only === null || delegation.tool_use_id === only) await endUnfinishedDelegation(engine, delegation, reason);
}

/** Closes the worker's open turn, its session, then the delegation. Its planner's turn may have ended before (04 §13). */
export async function endUnfinishedDelegation(
  engine: DelegationEngine,
  delegation: DelegationRecord,
  reason: Cancelled,
): Promise<void> {
  const { worker_session_id: workerId } = delegation;
  const session = workerId && (await engine.store.sessions.record(workerId));
  if (session) {
    const turn = await engine.store.turns.open(session.id);
    if (turn) await endUnfinishedTurn(engine, session, turn, reason);
  }
  await closeDelegation(
    engine,
    {
      delegation,
      session: session?.ended_at === null ? session : null,
      parent_event: await findStartedEvent(engine, delegation),
      opening: null,
    },
    unfinishedOutcome(reason),
    delegation.active_seconds,
  );
}

function countOutputBytes(output: DelegateOutcome['output']): number {
  if (typeof output === 'string') return Buffer.byteLength(output);
  return Buffer.byteLength(JSON.stringify(output));
}

function unfinishedOutcome(reason: Cancelled): DelegateOutcome {
  const outcome = { success: false, output: '', insufficient_context_request: null } as const;
  if (reason.reason === 'shutdown')
    return {
      ...outcome,
      failure_mode: 'worker_error',
      error_message: `worker_error: ${reason.detail ?? 'server restarted'}`,
      cancel_scope: null,
      disposition: 'failed',
    };
  return {
    ...outcome,
    failure_mode: 'cancelled_by_user',
    error_message: 'cancelled_by_user',
    cancel_scope: 'planner',
    disposition: 'cancelled',
  };
}
