// A session that has done nothing yet: its record and its event (04 §2, 05 §3.1).
import path from 'node:path';
import { draft } from '../../domain/event.ts';
import type { ApprovalMode, OnReached } from '../../domain/scalars.ts';
import type { SessionRecord } from '../../domain/session.ts';
import { sha256Hex } from '../../kernel/canonical-json.ts';
import { AppError } from '../../kernel/errors.ts';
import { newStablePrompt } from '../prompt/stable-prompt.ts';
import { currentPolicies } from '../routing/route-environment.ts';
import type { Engine } from '../state/engine.ts';

export interface SessionInput {
  readonly workspace_path: string;
  readonly initial_active_model: string | null;
  /** Decimal US dollars. */
  readonly max_cost_usd: string | null;
  readonly on_reached: OnReached | null;
  readonly approval_mode: ApprovalMode | null;
}

/** The record of a session as it would be opened now, not stored yet. Throws as `createSession` does. */
export async function newSession(engine: Engine, input: SessionInput): Promise<SessionRecord> {
  const workspace = await openWorkspace(engine, input.workspace_path);
  const model = input.initial_active_model === null ? null : knownModel(engine, input.initial_active_model);
  const { config } = engine;
  const mode = input.approval_mode ?? config.tool_confirmation.mode;
  if (input.approval_mode === 'approve_all' && !config.workers.allow_approve_all)
    throw new AppError(
      'approval_mode_not_allowed',
      'approval_mode "approve_all" needs workers.allow_approve_all: true',
    );

  const id = engine.ids.session();
  const now = engine.clock.now();
  const { version } = await currentPolicies(engine, workspace);
  return {
    id,
    workspace_path: workspace,
    workspace_hash: sha256Hex(workspace),
    active_model: model,
    pending_active_model: null,
    routing_policy_version: version,
    system_prompt: await newStablePrompt(engine, { workspace_path: workspace, is_worker: false }, null),
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
    approval_mode: mode,
    max_cost_usd: input.max_cost_usd ?? config.budgets.session_default_usd,
    on_reached: input.on_reached ?? config.budgets.on_reached,
    created_at: now,
    updated_at: now,
  };
}

/** `session.created` of any session, planner or worker. */
export function createdEvent(session: SessionRecord) {
  return draft({
    type: 'session.created',
    session_id: session.id,
    turn_id: null,
    parent: null,
    payload: {
      workspace_path: session.workspace_path,
      workspace_hash: session.workspace_hash,
      initial_active_model: session.active_model,
      routing_policy_version: session.routing_policy_version,
      parent_session_id: session.parent_session_id,
      parent_tool_use_id: session.parent_tool_use_id,
      is_worker: session.is_worker,
      root_session_id: session.root_session_id,
      delegation_depth: session.delegation_depth,
      worker_name: session.worker_name,
      worker_digest: session.worker_digest,
      worker_origin: session.worker_origin,
      approval_mode: session.approval_mode,
    },
  });
}

/** The canonical id of a model as a caller names it. Throws `model_not_configured`. */
export function knownModel(engine: Engine, input: string): string {
  const id = engine.registry.resolveAlias(input);
  if (id === null)
    throw new AppError(
      'model_not_configured',
      `unknown model ${JSON.stringify(input)}; GET /models lists ids and aliases`,
      { input },
    );
  return id;
}

/** The real directory of a workspace the server may use. Throws `not_found` or `workspace_not_allowed`. */
export async function openWorkspace(engine: Engine, given: string): Promise<string> {
  const real = await engine.workspaces.realDirectory(given);
  if (real === null)
    throw new AppError('not_found', `workspace_path is not an existing directory: ${given}`, { resource: 'workspace' });
  const roots = engine.config.server.workspace_roots;
  if (roots.length === 0) return real;
  for (const root of roots) {
    const allowed = await engine.workspaces.realDirectory(root);
    if (allowed !== null && (real === allowed || real.startsWith(allowed + path.sep))) return real;
  }
  throw new AppError('workspace_not_allowed', 'workspace_path lies outside server.workspace_roots');
}
