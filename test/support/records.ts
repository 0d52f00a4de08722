// Rows as the journal takes them, for every world of a test: valid by default, every field can be overridden.

import type { ConfirmationRow, ToolCallRow, TurnOutcome } from '#core/ports/journal-writer.ts';
import { isoTime } from '#protocol/clock.ts';
import type { DelegationRecord } from '#protocol/delegate.ts';
import { NO_CHANGES } from '#protocol/file-change.ts';
import type { IdGenerator, SessionId, ToolUseId } from '#protocol/ids.ts';
import { type ContentBlock, plainMetadata, type StoredMessage, textBlock } from '#protocol/message.ts';
import type { SessionRecord } from '#protocol/session.ts';
import { sha256Hex } from '#protocol/text/canonical-json.ts';
import type { TurnRecord } from '#protocol/turn.ts';
import { answerMetadata, MODEL } from './messages.ts';

/** Where the records of a test get their ids and their times. */
export interface Source {
  readonly ids: IdGenerator;
  readonly time: { readonly now: number };
}

export function sessionRecord(of: Source, over: Partial<SessionRecord> = {}): SessionRecord {
  const id = of.ids.session();
  return {
    id,
    workspace_path: '/work/project',
    tree_path: null,
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
    door: 'api',
    caller: '',
    client: null,
    client_ref: null,
    continues_session_id: null,
    owner: null,
    share: 'read',
    forked_from_session_id: null,
    forked_from_message_id: null,
    has_workspace: true,
    record_case: false,
    experiment: null,
    max_cost_pusd: null,
    on_reached: 'pause',
    confirm_above_pusd: null,
    confirm_above_workers: null,
    created_at: of.time.now,
    updated_at: of.time.now,
    ...over,
  };
}

export function workerRecord(
  of: Source,
  parent: SessionRecord,
  call: ToolUseId,
  over: Partial<SessionRecord> = {},
): SessionRecord {
  return sessionRecord(of, {
    is_worker: true,
    parent_session_id: parent.id,
    parent_tool_use_id: call,
    root_session_id: parent.root_session_id,
    delegation_depth: parent.delegation_depth + 1,
    delegated_by_model: MODEL,
    ...over,
  });
}

export function turnRecord(of: Source, session: SessionRecord, over: Partial<TurnRecord> = {}): TurnRecord {
  return {
    id: of.ids.turn(),
    session_id: session.id,
    user_message_id: of.ids.message(),
    status: 'in_flight',
    per_message_override: null,
    chosen_model: MODEL,
    chosen_effort: null,
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
    started_at: of.time.now,
    ended_at: null,
    wall_time_seconds: null,
    final_message_id: null,
    tools: ['read_file'],
    resume_attempts: 0,
    concluded_at: null,
    conclusion_message_id: null,
    submitted_by: null,
    shape_sig: null,
    forecast: null,
    ...over,
  };
}

export function outcome(of: Source, over: Partial<TurnOutcome> = {}): TurnOutcome {
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
    ended_at: of.time.now,
    ...over,
  };
}

export function userMessage(of: Source, turn: TurnRecord, content: string | ContentBlock[] = 'hello'): StoredMessage {
  return {
    id: turn.user_message_id,
    session_id: turn.session_id,
    turn_id: turn.id,
    role: 'user',
    content: typeof content === 'string' ? [textBlock(content)] : content,
    metadata: plainMetadata(),
    created_at: isoTime(of.time.now),
    provider_raw: null,
  };
}

export function assistantMessage(
  of: Source,
  turn: TurnRecord,
  content: ContentBlock[] = [textBlock('hi')],
  over: Partial<StoredMessage> = {},
): StoredMessage {
  return {
    ...userMessage(of, turn, content),
    id: of.ids.message(),
    role: 'assistant',
    metadata: answerMetadata(),
    ...over,
  };
}

export function toolMessage(of: Source, turn: TurnRecord, call: ToolUseId): StoredMessage {
  return {
    ...userMessage(of, turn, [
      { type: 'tool_result', tool_use_id: call, content: [textBlock('done')], is_error: false },
    ]),
    id: of.ids.message(),
    role: 'tool',
    metadata: plainMetadata(call),
  };
}

export function toolCall(of: Source, message: StoredMessage, id: ToolUseId): ToolCallRow {
  return {
    id,
    session_id: message.session_id,
    turn_id: message.turn_id as ToolCallRow['turn_id'],
    message_id: message.id,
    name: 'read_file',
    status: 'pending',
    provider: 'anthropic',
    provider_id: null,
    created_at: of.time.now,
  };
}

export function delegationRecord(
  of: Source,
  turn: Pick<TurnRecord, 'id' | 'session_id'>,
  call: ToolUseId,
  over: Partial<DelegationRecord> = {},
): DelegationRecord {
  return {
    tool_use_id: call,
    parent_session_id: turn.session_id,
    parent_turn_id: turn.id,
    worker_session_id: null,
    entry: 'delegate',
    ...NO_CHANGES,
    worker_name: null,
    worker_digest: null,
    tier: 'fast',
    resolved_model: MODEL,
    context_mode: 'minimal',
    context_reference_count: 0,
    task_size_tokens: 10,
    effective_tools: ['read_file'],
    allowed_tool_count: null,
    dropped_tools: [],
    max_tokens: null,
    max_cost_pusd: null,
    timeout_seconds: 300,
    active_seconds: 0,
    status: 'running',
    failure_mode: null,
    error_message: null,
    output: null,
    request: {
      entry: 'delegate',
      tier: 'fast',
      effort: null,
      task: 'look',
      context_mode: 'minimal',
      context: [],
      output_schema: null,
      allowed_tools: null,
      max_tokens: null,
      timeout_seconds: null,
      max_cost_usd: null,
      isolation: 'shared',
      apply: 'each',
      check: null,
      on_fail: [],
      worker: null,
      attachments: [],
    },
    created_at: of.time.now,
    ended_at: null,
    ...over,
  };
}

export function confirmation(of: Source, turn: TurnRecord, root: SessionId, over: Partial<ConfirmationRow> = {}) {
  const id = of.ids.confirmation();
  const call = of.ids.toolUse();
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
      kind: 'tool',
      tool_use_ids: [],
      tool_use_id: call,
      tool_name: 'write_file',
      side_effects: 'write',
      confirmation_request_id: id,
      input_summary: '{}',
      projected_modifications: null,
      command_summary: null,
      expires_at: isoTime(of.time.now + 300_000),
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
    requested_at: of.time.now,
    expires_at: of.time.now + 300_000,
    ...over,
  };
  return row;
}
