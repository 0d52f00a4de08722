// Valid records and drafts, made with the ids of a world; every field can be overridden.
import type { DelegationRecord } from '../../src/domain/delegate.ts';
import type { Transient } from '../../src/domain/delta.ts';
import type { LlmCallCompleted } from '../../src/domain/event/llm.ts';
import { draft, type EventDraft, type PayloadOf } from '../../src/domain/event.ts';
import { type ContentBlock, plainMetadata, type StoredMessage, textBlock } from '../../src/domain/message.ts';
import type { SessionRecord } from '../../src/domain/session.ts';
import type { TurnRecord } from '../../src/domain/turn.ts';
import { NO_TOKENS } from '../../src/domain/usage.ts';
import { sha256Hex } from '../../src/kernel/canonical-json.ts';
import { isoTime } from '../../src/kernel/clock.ts';
import type { SessionId, ToolUseId } from '../../src/kernel/ids.ts';
import type { ConfirmationRow, ToolCallRow, TurnOutcome } from '../../src/ports/journal.ts';
import type { World } from './world.ts';

export const MODEL = 'anthropic:claude-sonnet-4-6';

export function sessionRecord(world: World, over: Partial<SessionRecord> = {}): SessionRecord {
  const id = world.ids.session();
  return {
    id,
    workspace_path: '/work/project',
    workspace_hash: sha256Hex('/work/project'),
    active_model: null,
    pending_active_model: null,
    routing_policy_version: null,
    system_prompt: null,
    system_prompt_volatile: null,
    turn_count: 0,
    disposition: null,
    ended_at: null,
    parent_session_id: null,
    parent_tool_use_id: null,
    is_worker: false,
    root_session_id: id,
    delegation_depth: 0,
    delegated_by_model: null,
    worker_name: null,
    worker_digest: null,
    worker_origin: null,
    worker_definition: null,
    allow_workers: null,
    approval_mode: 'interactive',
    max_cost_usd: null,
    on_reached: 'pause',
    created_at: world.time.now,
    updated_at: world.time.now,
    ...over,
  };
}

export function workerRecord(
  world: World,
  parent: SessionRecord,
  call: ToolUseId,
  over: Partial<SessionRecord> = {},
): SessionRecord {
  return sessionRecord(world, {
    is_worker: true,
    parent_session_id: parent.id,
    parent_tool_use_id: call,
    root_session_id: parent.root_session_id,
    delegation_depth: parent.delegation_depth + 1,
    delegated_by_model: MODEL,
    ...over,
  });
}

export function turnRecord(world: World, session: SessionRecord, over: Partial<TurnRecord> = {}): TurnRecord {
  return {
    id: world.ids.turn(),
    session_id: session.id,
    user_message_id: world.ids.message(),
    status: 'in_flight',
    per_message_override: null,
    chosen_model: MODEL,
    provider: 'anthropic',
    routing_mode: 'default',
    stop_reason: null,
    cancel_reason: null,
    interrupted_reason: null,
    error_code: null,
    error_class: null,
    error_message: null,
    retryable: null,
    llm_call_count: 0,
    tool_call_count: 0,
    started_at: world.time.now,
    ended_at: null,
    wall_time_seconds: null,
    final_message_id: null,
    tools: ['read_file'],
    resume_attempts: 0,
    ...over,
  };
}

export function outcome(world: World, over: Partial<TurnOutcome> = {}): TurnOutcome {
  return {
    status: 'completed',
    stop_reason: 'end_turn',
    cancel_reason: null,
    error_code: null,
    error_class: null,
    error_message: null,
    retryable: null,
    llm_call_count: 1,
    tool_call_count: 0,
    wall_time_seconds: 1.5,
    final_message_id: null,
    ended_at: world.time.now,
    ...over,
  };
}

export function userMessage(world: World, turn: TurnRecord, content: string | ContentBlock[] = 'hello'): StoredMessage {
  return {
    id: turn.user_message_id,
    session_id: turn.session_id,
    turn_id: turn.id,
    role: 'user',
    content: typeof content === 'string' ? [textBlock(content)] : content,
    metadata: plainMetadata(),
    created_at: isoTime(world.time.now),
    provider_raw: null,
  };
}

export function assistantMessage(
  world: World,
  turn: TurnRecord,
  content: ContentBlock[] = [textBlock('hi')],
  over: Partial<StoredMessage> = {},
): StoredMessage {
  return {
    ...userMessage(world, turn, content),
    id: world.ids.message(),
    role: 'assistant',
    metadata: {
      ...plainMetadata(),
      model: MODEL,
      provider: 'anthropic',
      routing: {
        mode: 'default',
        chosen_model: MODEL,
        reason: 'global default',
        rule_name: null,
        confidence: null,
        alternatives_considered: [],
      },
      usage: { ...NO_TOKENS, cost_usd: '0', pricing_version: 'A', priced: true, latency_ms: 5 },
    },
    ...over,
  };
}

export function toolMessage(world: World, turn: TurnRecord, call: ToolUseId): StoredMessage {
  return {
    ...userMessage(world, turn, [
      { type: 'tool_result', tool_use_id: call, content: [textBlock('done')], is_error: false },
    ]),
    id: world.ids.message(),
    role: 'tool',
    metadata: plainMetadata(call),
  };
}

export function toolCall(world: World, message: StoredMessage, id: ToolUseId): ToolCallRow {
  return {
    id,
    session_id: message.session_id,
    turn_id: message.turn_id as ToolCallRow['turn_id'],
    message_id: message.id,
    name: 'read_file',
    status: 'pending',
    provider: 'anthropic',
    provider_id: null,
    created_at: world.time.now,
  };
}

export function delegationRecord(
  world: World,
  turn: TurnRecord,
  call: ToolUseId,
  worker: SessionId | null,
  over: Partial<DelegationRecord> = {},
): DelegationRecord {
  return {
    tool_use_id: call,
    parent_session_id: turn.session_id,
    parent_turn_id: turn.id,
    worker_session_id: worker,
    entry: 'delegate',
    worker_name: null,
    worker_digest: null,
    tier: 'fast',
    resolved_model: MODEL,
    context_mode: 'minimal',
    context_reference_count: 0,
    task_size_tokens: 10,
    effective_tools: ['read_file'],
    allowed_tool_count: 1,
    dropped_tools: [],
    max_tokens: null,
    max_cost_usd: null,
    timeout_seconds: 300,
    active_seconds: 0,
    status: 'running',
    failure_mode: null,
    error_message: null,
    output: null,
    request: {
      entry: 'delegate',
      tier: 'fast',
      task: 'look',
      context_mode: 'minimal',
      context: [],
      output_schema: null,
      allowed_tools: null,
      max_tokens: null,
      timeout_seconds: null,
      max_cost_usd: null,
    },
    created_at: world.time.now,
    ended_at: null,
    ...over,
  };
}

export function confirmation(world: World, turn: TurnRecord, root: SessionId, over: Partial<ConfirmationRow> = {}) {
  const id = world.ids.confirmation();
  const call = world.ids.toolUse();
  const row: ConfirmationRow = {
    id,
    session_id: turn.session_id,
    turn_id: turn.id,
    root_session_id: root,
    tool_use_id: call,
    tool_name: 'write_file',
    rule: null,
    key_hash: null,
    request: {
      tool_use_id: call,
      tool_name: 'write_file',
      side_effects: 'write',
      confirmation_request_id: id,
      input_summary: '{}',
      projected_modifications: null,
      command_summary: null,
      expires_at: isoTime(world.time.now + 300_000),
      is_worker: false,
      parent_session_id: null,
      root_session_id: root,
      worker_name: null,
      rule: null,
      payload: null,
      modifiable: true,
      allowed_scopes: ['once'],
    },
    input: { path: 'a.txt' },
    requested_at: world.time.now,
    expires_at: world.time.now + 300_000,
    ...over,
  };
  return row;
}

/** `routing.policy_invalid` on `system`: an event that needs nothing around it. */
export function systemEvent(label: string, over: Partial<EventDraft> = {}): EventDraft {
  return {
    ...draft({
      type: 'routing.policy_invalid',
      session_id: 'system',
      turn_id: null,
      parent: null,
      payload: { policy_path: label, errors: [], using_last_known_good: false },
    }),
    ...over,
  };
}

export function turnCompleted(turn: TurnRecord, over: Partial<PayloadOf<'turn.completed'>> = {}): EventDraft {
  return draft({
    type: 'turn.completed',
    session_id: turn.session_id,
    turn_id: turn.id,
    parent: null,
    payload: {
      stop_reason: 'end_turn',
      llm_call_count: 1,
      tool_call_count: 0,
      total_input_tokens: 0,
      total_output_tokens: 0,
      total_cached_input_tokens: 0,
      total_cache_creation_input_tokens: 0,
      total_cost_usd: '0',
      wall_time_seconds: 1.5,
      parent_session_id: null,
      ...over,
    },
  });
}

export function callCompleted(
  world: World,
  session: SessionRecord,
  turn: TurnRecord | null,
  over: Partial<LlmCallCompleted> = {},
): EventDraft {
  return draft({
    type: 'llm.call_completed',
    session_id: session.id,
    turn_id: turn?.id ?? null,
    parent: null,
    payload: {
      model: MODEL,
      provider: 'anthropic',
      stop_reason: 'end_turn',
      error_class: null,
      produced_tool_calls: 0,
      produced_thinking_blocks: 0,
      parent_session_id: session.parent_session_id,
      is_worker: session.is_worker,
      root_session_id: session.root_session_id,
      request_id: world.ids.request(),
      message_id: null,
      purpose: 'turn',
      ...NO_TOKENS,
      input_tokens: 100,
      output_tokens: 7,
      cost_usd: '0.01',
      pricing_version: 'A',
      priced: true,
      latency_ms: 250,
      ...over,
    },
  });
}

export function textDelta(session: SessionRecord, text: string): Transient {
  return {
    session_id: session.id,
    turn_id: null,
    timestamp: 0,
    delta: { type: 'text.delta', payload: { message_id: 'm', content_block_index: 0, text } },
  };
}

/** A session that stands in the database. */
export async function storedSession(world: World, over: Partial<SessionRecord> = {}): Promise<SessionRecord> {
  const session = sessionRecord(world, over);
  await world.journal.commit({ writes: [{ kind: 'session.insert', session }], emit: [] });
  return session;
}

/** An open turn with its user message. */
export async function storedTurn(world: World, session: SessionRecord, text = 'hello'): Promise<TurnRecord> {
  const turn = turnRecord(world, session);
  await world.journal.commit({
    writes: [
      { kind: 'turn.insert', turn },
      { kind: 'message.insert', message: userMessage(world, turn, text) },
    ],
    emit: [],
  });
  return turn;
}

export async function endTurn(world: World, turn: TurnRecord, over: Partial<TurnOutcome> = {}): Promise<void> {
  await world.journal.commit({
    writes: [{ kind: 'turn.end', turn_id: turn.id, session_id: turn.session_id, outcome: outcome(world, over) }],
    emit: [],
  });
}

/** A worker of an open turn, with its delegation. */
export async function storedWorker(
  world: World,
  parent: SessionRecord,
  turn: TurnRecord,
  over: Partial<SessionRecord> = {},
): Promise<SessionRecord> {
  const call = world.ids.toolUse();
  const worker = workerRecord(world, parent, call, over);
  await world.journal.commit({
    writes: [
      { kind: 'session.insert', session: worker },
      { kind: 'delegation.insert', delegation: delegationRecord(world, turn, call, worker.id) },
    ],
    emit: [],
  });
  return worker;
}

/** A complete answer that calls a tool, with its pending call. */
export async function storedToolUse(world: World, turn: TurnRecord) {
  const id = world.ids.toolUse();
  const message = assistantMessage(world, turn, [{ type: 'tool_use', id, name: 'read_file', input: {} }]);
  await world.journal.commit({
    writes: [
      { kind: 'message.insert', message },
      { kind: 'tool_call.insert', call: toolCall(world, message, id) },
    ],
    emit: [],
  });
  return { id, message };
}
