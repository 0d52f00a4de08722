// Changes of delegations and confirmations: what every database is told (01 §9, 09 §6).

import type { DelegationRecord } from '#protocol/delegate.ts';
import type { ConfirmationRow } from '#protocol/journal-batch.ts';
import { toPusd } from '#protocol/money.ts';
import { json, NO_TIMEOUT } from '../schema/values.ts';

export const DELEGATION_COLUMNS = [
  'tool_use_id',
  'parent_session_id',
  'parent_turn_id',
  'worker_session_id',
  'entry',
  'worker_name',
  'worker_digest',
  'tier',
  'resolved_model',
  'context_mode',
  'context_reference_count',
  'task_size_tokens',
  'effective_tools_json',
  'allowed_tool_count',
  'dropped_tools_json',
  'max_tokens',
  'max_cost_pusd',
  'timeout_seconds',
  'active_seconds',
  'status',
  'failure_mode',
  'error_message',
  'created_at',
  'ended_at',
  'output_json',
  'request_json',
] as const;
export const CONFIRMATION_COLUMNS = [
  'id',
  'session_id',
  'root_session_id',
  'turn_id',
  'tool_use_id',
  'tool_name',
  'rule',
  'key_hash',
  'request_json',
  'input_json',
  'requested_at',
  'expires_at',
] as const;

const change = (set: string) =>
  `UPDATE delegations SET ${set} WHERE tool_use_id = @tool_use_id AND status IN ('running', 'interrupted')`;
export const INTERRUPT = change("status = 'interrupted', active_seconds = @active_seconds");
export const RESUME = change("status = 'running'");
export const END = change(`status = @status, failure_mode = @failure_mode, error_message = @error_message,
  output_json = @output_json, changes_json = @changes_json, active_seconds = @active_seconds, ended_at = @ended_at`);
export const RESOLVE = `
  UPDATE confirmations SET decision = @decision, scope = @scope, reason = @reason, modified_json = @modified_json,
    resolved_by = @resolved_by, resolved_at = @at
  WHERE id = @id AND decision IS NULL`;
export const DECISION = 'SELECT decision FROM confirmations WHERE id = ?';

export function delegationRow(delegation: DelegationRecord) {
  return {
    ...delegation,
    effective_tools_json: json(delegation.effective_tools),
    allowed_tool_count: delegation.allowed_tool_count ?? 0,
    timeout_seconds: delegation.timeout_seconds ?? NO_TIMEOUT,
    dropped_tools_json: json(delegation.dropped_tools),
    max_cost_pusd: delegation.max_cost_usd === null ? null : toPusd(delegation.max_cost_usd),
    output_json: json(delegation.output),
    request_json: json(delegation.request),
  };
}

export function confirmationColumns(confirmation: ConfirmationRow) {
  return { ...confirmation, request_json: json(confirmation.request), input_json: json(confirmation.input) };
}
