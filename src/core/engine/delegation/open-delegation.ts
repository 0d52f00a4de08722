// Builds the records of a new delegation: its row, the worker's session, and the two events about them (04 §5.1).
import { workerTaskPrompt } from '#core/policy/context/worker-brief.ts';
import { estimateTaskSize } from '#core/policy/delegation/delegate-tool.ts';
import type { WorkerToolSet } from '#core/policy/workers/worker-tools.ts';
import type { Write } from '#core/ports/journal-writer.ts';
import type { DelegationRecord } from '#protocol/delegate.ts';
import { draft, type Event, type EventDraft } from '#protocol/event.ts';
import { NO_CHANGES } from '#protocol/file-change.ts';
import type { EventId, ToolUseId } from '#protocol/ids.ts';
import { fromPusdOrNull, toPusdOrNull } from '#protocol/money.ts';
import type { SessionRecord } from '#protocol/session.ts';
import { buildNamedPrompt, buildStablePrompt } from '../prompt/model-input.ts';
import { sessionCreatedEvent } from '../session/session-records.ts';
import type { Caller } from '../state/delegation-runs.ts';
import type { Runtime, Storage, Toolbox, WorkspaceAccess } from '../state/engine.ts';
import type { ResolvedRequest } from './resolve-request.ts';
import type { Placed } from './worker-tree.ts';

/** The batch that opens a delegation, stored with the worker's first turn: session, delegation, `session.created` and, last, `delegate.started`. */
export interface Opening {
  readonly writes: readonly Write[];
  readonly emit: readonly EventDraft[];
  /** Called once they are stored. */
  readonly onStored: () => void;
}

/** A delegation: its record, its session and the event that is the parent of everything below. */
export interface SpawnedDelegation {
  readonly delegation: DelegationRecord;
  readonly session: SessionRecord | null;
  /** `delegate.started`, or the planner's `llm.call_completed` when there is no session; null before it is opened. */
  parent_event: EventId | null;
  /** The opening, until it is stored with the worker's first turn; null once stored. */
  opening: Opening | null;
}

export function newDelegation(
  engine: Runtime,
  run: Caller,
  toolUseId: ToolUseId,
  {
    request,
    earlier,
    tools,
    model,
  }: {
    readonly request: ResolvedRequest['request'];
    readonly earlier: ResolvedRequest['earlier'];
    readonly tools: WorkerToolSet;
    readonly model: string | null;
  },
): DelegationRecord {
  return {
    tool_use_id: toolUseId,
    parent_session_id: run.session.id,
    parent_turn_id: run.turn?.id ?? null,
    worker_session_id: null,
    entry: request.entry,
    worker_name: request.worker?.name ?? earlier?.session.worker_name ?? null,
    worker_digest: request.worker?.digest ?? earlier?.session.worker_digest ?? null,
    tier: request.tier,
    resolved_model: model,
    context_mode: request.context_mode,
    context_reference_count: request.context.length,
    task_size_tokens: estimateTaskSize(request.task, request.context),
    effective_tools: tools.effective,
    allowed_tool_count: tools.allowed_tool_count,
    dropped_tools: tools.dropped_tools,
    max_tokens: request.max_tokens,
    max_cost_pusd: toPusdOrNull(request.max_cost_usd),
    timeout_seconds: request.timeout_seconds ?? engine.config.delegation.worker_timeout_seconds,
    active_seconds: 0,
    status: 'running',
    failure_mode: null,
    error_message: null,
    output: null,
    ...NO_CHANGES,
    isolation: request.isolation,
    request,
    created_at: engine.clock.now(),
    ended_at: null,
  };
}

export async function newWorkerSession(
  engine: Runtime & Toolbox & WorkspaceAccess,
  run: Caller,
  delegation: DelegationRecord,
  { version, earlier }: { readonly version: string | null; readonly earlier: SessionRecord | null },
): Promise<SessionRecord> {
  const { session } = run;
  const prompts = earlier ?? (await buildWorkerPrompts(engine, run, delegation));
  const named = earlier ?? snapshotWorker(delegation.request);
  return {
    ...session,
    id: engine.ids.session(),
    active_model: null,
    pending_active_model: null,
    routing_policy_version: version,
    system_prompt: prompts.system_prompt,
    system_prompt_volatile: prompts.system_prompt_volatile,
    turn_count: 0,
    disposition: null,
    ended_at: null,
    parent_session_id: session.id,
    parent_tool_use_id: delegation.tool_use_id,
    is_worker: true,
    delegation_depth: session.delegation_depth + 1,
    delegated_by_model: run.model?.id ?? null,
    continues_session_id: earlier?.id ?? null,
    forked_from_session_id: null,
    forked_from_message_id: null,
    worker_name: named.worker_name,
    worker_digest: named.worker_digest,
    worker_origin: named.worker_origin,
    worker_definition: named.worker_definition,
    allow_workers: null,
    max_cost_pusd: null,
    // The worker's turns run here, whichever client drives the session above.
    door: session.door === 'gateway' ? 'api' : session.door,
    client_ref: null,
    created_at: delegation.created_at,
    updated_at: delegation.created_at,
  };
}

async function buildWorkerPrompts(
  engine: Runtime & Toolbox & WorkspaceAccess,
  run: Caller,
  delegation: DelegationRecord,
): Promise<Pick<SessionRecord, 'system_prompt' | 'system_prompt_volatile'>> {
  const { session } = run;
  const { worker } = delegation.request;
  if (worker !== null) {
    const about = { worker: true, readsSkills: canReadSkills(run, delegation) };
    const named = await buildNamedPrompt(engine, session.workspace_path, worker, about);
    return { system_prompt: named, system_prompt_volatile: null };
  }
  const unnamed = { ...session, is_worker: true, worker_definition: null };
  const stable = await buildStablePrompt(engine, unnamed, delegation.effective_tools);
  return { system_prompt: stable, system_prompt_volatile: workerTaskPrompt(delegation.request) };
}

/** The fields of a worker's session that come from its definition. */
function snapshotWorker({
  worker,
  output_schema,
}: DelegationRecord['request']): Pick<
  SessionRecord,
  'worker_name' | 'worker_digest' | 'worker_origin' | 'worker_definition'
> {
  if (worker === null) return { worker_name: null, worker_digest: null, worker_origin: null, worker_definition: null };
  const { name, digest, origin, definition } = worker;
  return {
    worker_name: name,
    worker_digest: digest,
    worker_origin: origin,
    worker_definition: { definition, output_schema },
  };
}

function canReadSkills({ toolset }: Caller, { effective_tools }: DelegationRecord): boolean {
  return effective_tools.some((name) => toolset.definition(name)?.loads_skills);
}

export function createOpening(run: Caller, delegation: DelegationRecord, { session, worktree }: Placed): Opening {
  return {
    onStored: () => {
      run.outside?.onStored(delegation);
      run.background?.onStored(delegation);
    },
    writes: [
      { kind: 'session.insert', session },
      { kind: 'delegation.insert', delegation },
      ...(worktree === null ? [] : [{ kind: 'worktree.put' as const, worktree }]),
      ...(run.outside?.claim(delegation) ?? []),
    ],
    emit: [
      sessionCreatedEvent(session),
      draft({
        type: 'delegate.started',
        session_id: run.session.id,
        turn_id: run.turn?.id ?? null,
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
          worker_name: session.worker_name,
          worker_digest: session.worker_digest,
          worker_origin: session.worker_origin,
          entry: delegation.entry,
          delegation_depth: session.delegation_depth,
          attachment_count: delegation.request.attachments.length,
          attachment_total_bytes: delegation.request.attachments.reduce((sum, { bytes }) => sum + bytes, 0),
          max_cost_usd: fromPusdOrNull(delegation.max_cost_pusd),
          isolation: delegation.isolation,
        },
      }),
    ],
  };
}

/** Stores an opening that was not stored with a turn, together with `writes`: a delegation whose worker never began needs an end too. */
export async function storeOpening(
  engine: Pick<Storage, 'journal'>,
  spawned: SpawnedDelegation,
  writes: readonly Write[],
): Promise<void> {
  const { opening } = spawned;
  if (opening === null && writes.length === 0) return;
  const batch = { writes: [...(opening?.writes ?? []), ...writes], emit: opening?.emit ?? [] };
  markOpened(spawned, await engine.journal.commit(batch));
}

/** @param events of the batch that starts with the opening */
export function markOpened(spawned: SpawnedDelegation, events: readonly Event[]): void {
  if (spawned.opening === null) return;
  spawned.parent_event = events[spawned.opening.emit.length - 1]!.id;
  spawned.opening.onStored();
  spawned.opening = null;
}

/** The `delegate.started` of a delegation; null where the log has none. */
export async function findStartedEvent(
  engine: Pick<Storage, 'store'>,
  delegation: DelegationRecord,
): Promise<EventId | null> {
  const started = await listStartedEvents(engine, delegation);
  return started.find((event) => event.payload.tool_use_id === delegation.tool_use_id)?.id ?? null;
}

async function listStartedEvents({ store }: Pick<Storage, 'store'>, delegation: DelegationRecord) {
  const { parent_turn_id: turn, parent_session_id: session_id, tool_use_id } = delegation;
  const types = ['delegate.started'] as const;
  if (turn !== null) return store.events.listOfTurn(turn, types);
  // The delegation's id is older than its event; between the two are only events of other delegations.
  const after = tool_use_id.slice('tu_'.length);
  const page = await store.events.list({ session_id, include_workers: false, types, after, until: null, limit: 1000 });
  return page.rows;
}
