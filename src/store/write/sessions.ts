// Changes of sessions: what every database is told (01 §7.1, §7.2).

import { toPusd } from '#protocol/money.ts';
import type { SessionRecord } from '#protocol/session.ts';
import { bit, json } from '../schema/values.ts';

export const COLUMNS = [
  'id',
  'workspace_path',
  'workspace_hash',
  'active_model',
  'pending_active_model',
  'routing_policy_version',
  'turn_count',
  'disposition',
  'ended_at',
  'parent_session_id',
  'parent_tool_use_id',
  'is_worker',
  'root_session_id',
  'delegation_depth',
  'delegated_by_model',
  'worker_name',
  'worker_digest',
  'worker_origin',
  'allow_workers_json',
  'approval_mode',
  'door',
  'caller',
  'client',
  'client_ref',
  'max_cost_pusd',
  'on_reached',
  'created_at',
  'updated_at',
  'worker_definition_json',
  'system_prompt',
  'system_prompt_volatile',
] as const;

export function sessionRow(session: SessionRecord) {
  return {
    ...session,
    pending_active_model: json(session.pending_active_model),
    is_worker: bit(session.is_worker),
    allow_workers_json: json(session.allow_workers),
    max_cost_pusd: session.max_cost_usd === null ? null : toPusd(session.max_cost_usd),
    worker_definition_json: json(session.worker_definition),
  };
}

export const PARENT = 'SELECT ended_at, workspace_path, root_session_id, delegation_depth FROM sessions WHERE id = ?';
export const EXISTS = 'SELECT 1 AS found FROM sessions WHERE id = ?';

const change = (set: string) => `UPDATE sessions SET ${set} WHERE id = @session_id AND ended_at IS NULL`;
export const SET_MODEL = change('active_model = @model, pending_active_model = NULL, updated_at = @at');
export const QUEUE_MODEL = change('pending_active_model = @pending, updated_at = @at');
export const SET_LIMIT = change('max_cost_pusd = @max_cost_pusd, updated_at = @at');
export const SET_ON_REACHED = change('on_reached = @on_reached, updated_at = @at');
export const SET_WORKSPACE = change('workspace_path = @workspace_path, updated_at = @at');
export const SET_WARNED = change('budget_warned_pusd = @limit_pusd');
export const SET_POLICY_VERSION = change('routing_policy_version = @version');
export const END = change('disposition = @disposition, ended_at = @at, updated_at = @at');
