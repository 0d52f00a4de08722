// What a delegation is made of: its record, its worker's session, and the two events that tell of them (04 §5.1).
import type { DelegationRecord } from '../../domain/delegate.ts';
import { draft, type Event, type EventDraft } from '../../domain/event.ts';
import { NO_CHANGES } from '../../domain/file-change.ts';
import type { SessionRecord } from '../../domain/session.ts';
import type { EventId, ToolUseId } from '../../kernel/ids.ts';
import { workerTaskPrompt } from '../../policy/context/worker-brief.ts';
import { taskSize } from '../../policy/delegation/input.ts';
import type { WorkerToolSet } from '../../policy/delegation/worker-tools.ts';
import type { Write } from '../../ports/journal.ts';
import { newStablePrompt } from '../prompt/stable-prompt.ts';
import { createdEvent } from '../session/new-session.ts';
import type { Engine } from '../state/engine.ts';
import type { TurnRun } from '../state/turn-run.ts';
import type { ResolvedRequest } from './delegate-input.ts';

/** Child session, delegation, `session.created` and, last, `delegate.started`: stored with the worker's first turn. */
export interface Opening {
  readonly writes: readonly Write[];
  readonly emit: readonly EventDraft[];
}

/** A delegation: its record, its session and the event everything below hangs on. */
export interface Spawned {
  readonly delegation: DelegationRecord;
  readonly session: SessionRecord | null;
  /** `delegate.started`, or the planner's `llm.call_completed` when there is no session; null before it is opened. */
  parent_event: EventId | null;
  /** Waits for the worker's first turn, to be stored with it; null once it is. */
  opening: Opening | null;
}

export function newDelegation(
  engine: Engine,
  run: TurnRun,
  toolUseId: ToolUseId,
  {
    request,
    tools,
    model,
  }: {
    readonly request: ResolvedRequest['request'];
    readonly tools: WorkerToolSet;
    readonly model: string | null;
  },
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
    ...NO_CHANGES,
    request,
    created_at: engine.clock.now(),
    ended_at: null,
  };
}

export async function workerSession(
  engine: Engine,
  run: TurnRun,
  delegation: DelegationRecord,
  policyVersion: string | null,
): Promise<SessionRecord> {
  const { session } = run;
  return {
    ...session,
    id: engine.ids.session(),
    active_model: null,
    pending_active_model: null,
    routing_policy_version: policyVersion,
    system_prompt: await newStablePrompt(engine, { ...session, is_worker: true }, delegation.effective_tools),
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

export function openingOf(run: TurnRun, delegation: DelegationRecord, session: SessionRecord): Opening {
  return {
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
  };
}

/** Stores what no turn has taken along, and `writes` with it: the delegation of a worker that never began has its end too. */
export async function openWith(engine: Engine, spawned: Spawned, writes: readonly Write[]): Promise<void> {
  const { opening } = spawned;
  if (opening === null && writes.length === 0) return;
  const batch = { writes: [...(opening?.writes ?? []), ...writes], emit: opening?.emit ?? [] };
  opened(spawned, await engine.journal.commit(batch));
}

/** @param events of the batch that began with the opening */
export function opened(spawned: Spawned, events: readonly Event[]): void {
  if (spawned.opening === null) return;
  spawned.parent_event = events[spawned.opening.emit.length - 1]!.id;
  spawned.opening = null;
}
