// The one path that creates a child session, runs it and closes its delegation, whatever tool asked (04 §5, 13 §1).
import type { DelegationRecord } from '../domain/delegate.ts';
import { draft } from '../domain/event.ts';
import type { SessionRecord } from '../domain/session.ts';
import { type ToolOutput, toolText } from '../domain/tool.ts';
import { Cancelled } from '../kernel/abort.ts';
import type { EventId, ToolUseId } from '../kernel/ids.ts';
import { toPusd } from '../kernel/money.ts';
import { stablePrompt } from '../policy/context/system-prompt.ts';
import { workerTaskPrompt } from '../policy/context/worker-brief.ts';
import { taskSize } from '../policy/delegation/input.ts';
import { plannerText, type WorkerEnd, workerOutcome } from '../policy/delegation/outcome.ts';
import { type WorkerToolSet, workerTools } from '../policy/delegation/worker-tools.ts';
import { tierModel } from '../policy/routing/policy-file.ts';
import { closeDelegation } from './close-delegation.ts';
import type { Engine } from './context.ts';
import type { ResolvedRequest } from './delegate.ts';
import { endUnfinishedTurn } from './end-unfinished.ts';
import { Interrupted } from './interrupt.ts';
import { currentPolicies } from './route-environment.ts';
import { cancelScope, childScope } from './session-lock.ts';
import { createdEvent } from './sessions.ts';
import type { TurnRun, WorkerRun } from './turn-run.ts';
import { startWorkerClock } from './worker-clock.ts';
import { type Work, type WorkedTurn, workUntilDone } from './worker-turns.ts';

/** A delegation that exists: its record, its session and the event everything below hangs on. */
export interface Spawned {
  readonly delegation: DelegationRecord;
  readonly session: SessionRecord | null;
  /** `delegate.started`, or the planner's `llm.call_completed` when there is no session. */
  readonly parent_event: EventId | null;
}

/**
 * Runs one worker to its end and returns what the planner reads. A failure of the worker is a result;
 * only the cancellation of the calling turn is thrown, after the delegation was closed.
 */
export async function spawnWorker(
  engine: Engine,
  run: TurnRun,
  toolUseId: ToolUseId,
  { request, images }: ResolvedRequest,
): Promise<ToolOutput> {
  const depth = run.session.delegation_depth + 1;
  const tools = workerTools({
    plannerTools: run.turn.tools,
    allowed_tools: request.allowed_tools,
    mayDelegate: depth < engine.config.delegation.delegate_depth,
    registered: engine.tools.definitions(),
  });
  const { policies, version } = await currentPolicies(engine, run.session.workspace_path);
  const model = request.tier === null ? null : tierModel(policies, engine.registry, request.tier);
  const delegation = newDelegation(engine, run, toolUseId, request, tools, model);

  const refuse = (end: WorkerEnd) =>
    finish(engine, run, { delegation, session: null, parent_event: run.call_event_id }, null, end);
  // Counted before the next await, so that parallel calls cannot pass the cap together.
  if (run.tree.delegations >= engine.config.delegation.max_workers_per_turn)
    return refuse({ kind: 'not_spawned', message: 'too many delegations in this turn' });
  if (model === null) return refuse({ kind: 'no_model' });
  run.tree.delegations += 1;

  const session = await workerSession(engine, run, delegation, version);
  const spawned = await create(engine, run, { ...delegation, worker_session_id: session.id }, session);
  return runSpawned(engine, run, spawned, { images, outputTokensUsed: 0, begin: null });
}

/** Runs the worker of a delegation that exists, from its beginning or from where it was put down. */
export async function runSpawned(
  engine: Engine,
  run: TurnRun,
  spawned: Spawned,
  from: {
    readonly images: ResolvedRequest['images'];
    readonly outputTokensUsed: number;
    /** Runs the turn that was open; null starts with the first one. */
    readonly begin: ((work: Work) => Promise<WorkedTurn | null>) | null;
  },
): Promise<ToolOutput> {
  const { delegation } = spawned;
  const session = spawned.session!;
  const { scope, detach } = childScope(run.signal);
  const clock = startWorkerClock(engine.clock, delegation.timeout_seconds, delegation.active_seconds, () =>
    cancelScope(scope, new Cancelled('timeout')),
  );
  const worker: WorkerRun = {
    tool_use_id: delegation.tool_use_id,
    task: delegation.request.task,
    tier_model: delegation.resolved_model,
    tier_reason: 'delegate() tier resolution',
    output_schema: delegation.request.output_schema,
    output_tokens_left: delegation.max_tokens === null ? null : delegation.max_tokens - from.outputTokensUsed,
    clock,
  };
  const own = delegation.max_cost_usd;
  const caps =
    own === null
      ? run.caps
      : [...run.caps, { tool_use_id: delegation.tool_use_id, session_id: session.id, limit: toPusd(own) }];
  const work: Work = { spawned, session, worker, scope, images: from.images, caps };
  try {
    const begun = Promise.resolve(from.begin?.(work) ?? null);
    const end = await begun
      .then((turn) => workUntilDone(engine, run, work, turn))
      .catch((thrown: unknown): WorkerEnd => {
        if (thrown instanceof Interrupted) throw thrown;
        engine.log.error({ err: thrown, session_id: session.id }, 'a worker could not be run');
        return { kind: 'failed', message: 'internal error', text: '' };
      });
    // A fault of the journal may have kept the worker's turn from its end.
    const left = await engine.store.turns.open(session.id);
    if (left) await endUnfinishedTurn(engine, session, left, new Cancelled('shutdown'));
    return await finish(engine, run, spawned, worker, end);
  } catch (thrown) {
    if (thrown instanceof Interrupted)
      await engine.journal.commit({
        writes: [
          {
            kind: 'delegation.interrupt',
            tool_use_id: delegation.tool_use_id,
            active_seconds: clock.activeSeconds(),
          },
        ],
        emit: [],
      });
    throw thrown;
  } finally {
    clock.stop();
    detach();
  }
}

function newDelegation(
  engine: Engine,
  run: TurnRun,
  toolUseId: ToolUseId,
  request: ResolvedRequest['request'],
  tools: WorkerToolSet,
  model: string | null,
): DelegationRecord {
  return {
    tool_use_id: toolUseId,
    parent_session_id: run.session.id,
    parent_turn_id: run.turn.id,
    worker_session_id: null,
    entry: request.entry,
    worker_name: null,
    worker_digest: null,
    tier: request.tier,
    resolved_model: model,
    context_mode: request.context_mode,
    context_reference_count: request.context.length,
    task_size_tokens: taskSize(request.task, request.context),
    effective_tools: tools.effective,
    allowed_tool_count: tools.allowed_tool_count,
    dropped_tools: tools.dropped_tools,
    max_tokens: request.max_tokens,
    max_cost_usd: request.max_cost_usd,
    timeout_seconds: request.timeout_seconds ?? engine.config.delegation.worker_timeout_seconds,
    active_seconds: 0,
    status: 'running',
    failure_mode: null,
    error_message: null,
    output: null,
    request,
    created_at: engine.clock.now(),
    ended_at: null,
  };
}

async function workerSession(
  engine: Engine,
  run: TurnRun,
  delegation: DelegationRecord,
  policyVersion: string | null,
): Promise<SessionRecord> {
  const { session } = run;
  const { config, workspaces } = engine;
  return {
    ...session,
    id: engine.ids.session(),
    active_model: null,
    pending_active_model: null,
    routing_policy_version: policyVersion,
    system_prompt: stablePrompt({
      base: config.context.base_system_prompt,
      instructions: await workspaces.instructions(session.workspace_path, config.context.project_instruction_files),
      worker: true,
      memory: await workspaces.memoryText(session.workspace_path),
      skills: null,
    }),
    system_prompt_volatile: workerTaskPrompt(delegation.request),
    turn_count: 0,
    disposition: null,
    ended_at: null,
    parent_session_id: session.id,
    parent_tool_use_id: delegation.tool_use_id,
    is_worker: true,
    delegation_depth: session.delegation_depth + 1,
    delegated_by_model: run.model.id,
    worker_name: null,
    worker_digest: null,
    worker_origin: null,
    worker_definition: null,
    allow_workers: null,
    max_cost_usd: null,
    created_at: delegation.created_at,
    updated_at: delegation.created_at,
  };
}

/** Commit E: child session, delegation, `session.created`, `delegate.started`. */
async function create(
  engine: Engine,
  run: TurnRun,
  delegation: DelegationRecord,
  session: SessionRecord,
): Promise<Spawned> {
  const events = await engine.journal.commit({
    writes: [
      { kind: 'session.insert', session },
      { kind: 'delegation.insert', delegation },
    ],
    emit: [
      createdEvent(session),
      draft({
        type: 'delegate.started',
        session_id: run.session.id,
        turn_id: run.turn.id,
        parent: run.call_event_id,
        payload: {
          tool_use_id: delegation.tool_use_id,
          worker_session_id: session.id,
          tier: delegation.tier,
          resolved_model: delegation.resolved_model,
          context_mode: delegation.context_mode,
          context_reference_count: delegation.context_reference_count,
          task_size_tokens: delegation.task_size_tokens,
          allowed_tool_count: delegation.allowed_tool_count,
          dropped_tools: [...delegation.dropped_tools],
          worker_name: null,
          worker_digest: null,
          worker_origin: null,
          entry: delegation.entry,
          delegation_depth: session.delegation_depth,
          attachment_count: 0,
          attachment_total_bytes: 0,
          max_cost_usd: delegation.max_cost_usd,
        },
      }),
    ],
  });
  return { delegation, session, parent_event: events[1]!.id };
}

async function finish(
  engine: Engine,
  run: TurnRun,
  spawned: Spawned,
  worker: WorkerRun | null,
  end: WorkerEnd,
): Promise<ToolOutput> {
  const outcome = workerOutcome(end);
  const usage = await closeDelegation(engine, spawned, outcome, worker?.clock.activeSeconds() ?? 0);
  if (outcome.cancel_scope === 'planner') {
    cancelScope(run.scope, new Cancelled('shutdown'));
    throw run.signal.reason;
  }
  const { text, is_error } = plannerText({
    failure_mode: outcome.failure_mode,
    error_message: outcome.error_message,
    output: outcome.output,
    worker_session_id: spawned.delegation.worker_session_id,
  });
  return toolText(text, {
    success: !is_error,
    metadata: {
      success: outcome.success,
      usage_summary: usage,
      worker_session_id: spawned.delegation.worker_session_id,
    },
  });
}
