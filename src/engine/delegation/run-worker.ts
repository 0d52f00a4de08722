// The one path that creates a child session, runs it and closes its delegation, whatever tool asked (04 §5, 13 §1).
import { type ToolOutput, toolText } from '../../domain/tool.ts';
import { Cancelled } from '../../kernel/abort.ts';
import type { ToolUseId } from '../../kernel/ids.ts';
import { toPusd } from '../../kernel/money.ts';
import { plannerText, type WorkerEnd, workerOutcome } from '../../policy/delegation/outcome.ts';
import { workerTools } from '../../policy/delegation/worker-tools.ts';
import { tierModel } from '../../policy/routing/policy-file.ts';
import { currentPolicies } from '../routing/route-environment.ts';
import type { Engine } from '../state/engine.ts';
import { FAULT, Interrupted } from '../state/interrupt.ts';
import { cancelScope, childScope } from '../state/session-lock.ts';
import { noteStart } from '../state/session-starts.ts';
import type { TurnRun, WorkerRun } from '../state/turn-run.ts';
import { startWorkerClock } from '../state/worker-clock.ts';
import { endOpenTurn } from '../turn/end-unfinished.ts';
import { closeDelegation } from './close.ts';
import type { ResolvedRequest } from './delegate-input.ts';
import { newDelegation, openingOf, openWith, type Spawned, workerSession } from './open.ts';
import { type Work, type WorkedTurn, workUntilDone } from './worker-turns.ts';

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
    registered: run.toolset.definitions(),
  });
  const { policies, version } = await currentPolicies(engine, run.session.workspace_path);
  const model = request.tier === null ? null : tierModel(policies, engine.registry, request.tier);
  const delegation = newDelegation(engine, run, toolUseId, { request, tools, model });

  const refuse = (end: WorkerEnd) =>
    finish(
      engine,
      run,
      { delegation, session: null, parent_event: run.call_event_id, opening: null },
      { worker: null, end },
    );
  // Counted before the next await, so that parallel calls cannot pass the cap together.
  if (run.tree.delegations >= engine.config.delegation.max_workers_per_turn)
    return refuse({ kind: 'not_spawned', message: 'too many delegations in this turn' });
  if (model === null) return refuse({ kind: 'no_model' });
  run.tree.delegations += 1;

  const session = await workerSession(engine, run, delegation, version);
  noteStart(engine, session.id);
  const record = { ...delegation, worker_session_id: session.id };
  const opening = openingOf(run, record, session);
  const spawned = { delegation: record, session, parent_event: null, opening };
  return runSpawned(engine, run, spawned, { images, outputTokensUsed: 0, begin: null });
}

/** Runs the worker of a delegation, from its beginning or from where it was interrupted. */
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
  engine.files.open(delegation, session.id);
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
    await endOpenTurn(engine, session, FAULT);
    return await finish(engine, run, spawned, { worker, end });
  } catch (thrown) {
    if (thrown instanceof Interrupted) {
      const { tool_use_id } = delegation;
      const active_seconds = clock.activeSeconds();
      await openWith(engine, spawned, [{ kind: 'delegation.interrupt', tool_use_id, active_seconds }]);
    }
    throw thrown;
  } finally {
    engine.files.forget(session.id);
    clock.stop();
    detach();
  }
}

async function finish(
  engine: Engine,
  run: TurnRun,
  spawned: Spawned,
  { worker, end }: { readonly worker: WorkerRun | null; readonly end: WorkerEnd },
): Promise<ToolOutput> {
  const outcome = workerOutcome(end);
  await openWith(engine, spawned, []);
  const { usage, changes } = await closeDelegation(engine, spawned, outcome, worker?.clock.activeSeconds() ?? 0);
  if (outcome.cancel_scope === 'planner') {
    cancelScope(run.scope, new Cancelled('shutdown'));
    throw run.signal.reason;
  }
  const { text, is_error } = plannerText({
    failure_mode: outcome.failure_mode,
    error_message: outcome.error_message,
    output: outcome.output,
    worker_session_id: spawned.delegation.worker_session_id,
    ...changes,
  });
  return toolText(text, {
    success: !is_error,
    metadata: {
      success: outcome.success,
      usage_summary: usage,
      worker_session_id: spawned.delegation.worker_session_id,
      ...changes,
    },
  });
}
