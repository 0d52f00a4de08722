// Builds the records of a new session: its row and its event (04 §2, 05 §3.1).
import { isBelow } from '#core/policy/cluster/tree-place.ts';
import { modelInput } from '#core/policy/registry/find-model.ts';
import type { RoutingPolicies } from '#core/policy/routing/policy-file.ts';
import { chooseWorkerModel } from '#core/policy/routing/worker-model.ts';
import type { Write } from '#core/ports/journal-writer.ts';
import { WorktreeError } from '#core/ports/worktrees.ts';
import { type Awaitable, continueWith } from '#protocol/async/awaitable.ts';
import { AppError, validationError } from '#protocol/errors.ts';
import { draft } from '#protocol/event.ts';
import { toPusdOrNull } from '#protocol/money.ts';
import type { Person, Share } from '#protocol/people/person.ts';
import type { ApprovalMode, Door, OnReached, Tier } from '#protocol/scalars.ts';
import type { ExperimentPart, SessionRecord } from '#protocol/session.ts';
import { sha256Hex } from '#protocol/text/canonical-json.ts';
import { ToolError } from '#protocol/tool.ts';
import type { CaseStart } from '#protocol/what-if/case.ts';
import type { WorkerDefinition, WorkerProblem, WorkerSnapshot } from '#protocol/worker-definition.ts';
import { findProjectWorker, loadKnownToolset } from '../definitions/find-workers.ts';
import { buildNamedPrompt, buildStablePrompt, selectBaseTools } from '../prompt/model-input.ts';
import { readPolicies } from '../routing/route-environment.ts';
import type { LiveSessions, ModelCatalog, Runtime, SessionEngine, Storage, WorkspaceAccess } from '../state/engine.ts';

export interface SessionInput {
  readonly workspace_path: string;
  readonly initial_active_model: string | null;
  /** Decimal US dollars. */
  readonly max_cost_usd: string | null;
  readonly on_reached: OnReached | null;
  readonly approval_mode: ApprovalMode | null;
  /** Limits above which the delegations of one message are confirmed; null = as configured. */
  readonly confirm_above_usd?: string | null;
  readonly confirm_above_workers?: number | null;
  /** The named worker that the session is. */
  readonly worker?: string | null;
  /** Names of the workers that its planner may call; null = as configured. */
  readonly allow_workers?: readonly string[] | null;
  /** Whether what it needs to run again is stored (21 §3); absent = no. */
  readonly record_case?: boolean;
  /** Absent = `api`. */
  readonly door?: Door;
  readonly client?: string | null;
  readonly client_ref?: string | null;
  /** Who opens it; absent = no named token. */
  readonly person?: Pick<Person, 'id' | 'name'>;
  /** Absent = as configured. */
  readonly share?: Share | null | undefined;
  /** The run of an experiment; its tiers as ids or aliases. */
  readonly experiment?: (ExperimentPart & { readonly start_path: string }) | null;
}

/** The record of a new session, not stored yet. Throws as `createSession` does. */
export async function buildSession(engine: SessionEngine, input: SessionInput): Promise<SessionRecord> {
  const workspace = await resolveWorkspace(engine, input.workspace_path);
  const model = input.initial_active_model === null ? null : resolveModel(engine, input.initial_active_model);
  const { config } = engine;
  const mode = input.approval_mode ?? config.tool_confirmation.mode;
  if (input.approval_mode !== null) requireAllowedMode(engine, input.approval_mode);

  const worker = input.worker == null ? null : await resolveWorker(engine, workspace, input.worker);
  const { policies, version } = await readPolicies(engine, workspace);
  return {
    ...buildBlankRoot(engine, workspace, version),
    active_model: model ?? (worker === null ? null : resolveWorkerModel(engine, policies, worker.definition)),
    system_prompt:
      worker === null
        ? await buildStablePrompt(
            engine,
            { workspace_path: workspace, is_worker: false, worker_definition: null, has_workspace: true },
            null,
          )
        : await buildNamedPrompt(engine, workspace, worker, {
            worker: false,
            readsSkills: await hasSkillReader(engine, workspace, worker),
          }),
    worker_name: worker?.name ?? null,
    worker_digest: worker?.digest ?? null,
    worker_origin: worker?.origin ?? null,
    worker_definition: worker === null ? null : { definition: worker.definition, output_schema: worker.schema },
    allow_workers: input.allow_workers ?? null,
    approval_mode: mode,
    record_case: input.record_case ?? false,
    door: input.door ?? 'api',
    client: input.client ?? null,
    client_ref: input.client_ref ?? null,
    caller: input.person?.name ?? '',
    owner: input.person?.id ?? null,
    share: input.share ?? config.server.default_share,
    experiment: input.experiment == null ? null : readExperiment(engine, input.experiment),
    max_cost_pusd: toPusdOrNull(input.max_cost_usd ?? config.budgets.session_default_usd),
    on_reached: input.on_reached ?? config.budgets.on_reached,
    confirm_above_pusd: toPusdOrNull(input.confirm_above_usd ?? config.delegation.confirm_above_usd),
    confirm_above_workers: input.confirm_above_workers ?? config.delegation.confirm_above_workers,
  };
}

/**
 * A top-level session without options: no model, prompt or worker, limits and approvals as configured.
 * @param version of the routing policies in force
 */
export function buildBlankRoot(engine: Runtime, workspace: string, version: string | null): SessionRecord {
  const { budgets, delegation, tool_confirmation } = engine.config;
  const id = engine.ids.session();
  const now = engine.clock.now();
  return {
    id,
    workspace_path: workspace,
    tree_path: null,
    workspace_hash: sha256Hex(workspace),
    active_model: null,
    pending_active_model: null,
    routing_policy_version: version,
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
    continues_session_id: null,
    forked_from_session_id: null,
    forked_from_message_id: null,
    has_workspace: true,
    record_case: false,
    experiment: null,
    delegated_by_model: null,
    worker_name: null,
    worker_digest: null,
    worker_origin: null,
    worker_definition: null,
    allow_workers: null,
    approval_mode: tool_confirmation.mode,
    door: 'api',
    caller: '',
    client: null,
    client_ref: null,
    owner: null,
    share: 'read',
    max_cost_pusd: toPusdOrNull(budgets.session_default_usd),
    on_reached: budgets.on_reached,
    confirm_above_pusd: toPusdOrNull(delegation.confirm_above_usd),
    confirm_above_workers: delegation.confirm_above_workers,
    created_at: now,
    updated_at: now,
  };
}

function readExperiment(
  engine: Pick<ModelCatalog, 'registry'>,
  { id, max_cost_usd, delegate, tiers }: ExperimentPart,
): ExperimentPart {
  const resolveTier = (tier: Tier) => resolveModel(engine, tiers![tier]);
  const resolved = tiers && { fast: resolveTier('fast'), balanced: resolveTier('balanced'), deep: resolveTier('deep') };
  return { id, max_cost_usd, delegate, tiers: resolved };
}

/** Throws `approval_mode_not_allowed`. */
export function requireAllowedMode({ config }: Pick<Runtime, 'config'>, mode: ApprovalMode): void {
  if (mode === 'approve_all' && !config.workers.allow_approve_all)
    throw new AppError(
      'approval_mode_not_allowed',
      'approval_mode "approve_all" needs workers.allow_approve_all: true in the configuration of the server',
    );
}

function locateMessage({ message, file, line }: Pick<WorkerProblem, 'message' | 'file' | 'line'>): string {
  if (file === null) return message;
  return `${message} (${[file, line].filter((part) => part !== null).join(':')})`;
}

/** The worker that the session will run, its sandboxes open. Throws `not_found` or `validation_error` with its issues. */
async function resolveWorker(engine: SessionEngine, workspace: string, name: string) {
  const found = await findProjectWorker(engine, workspace, name);
  if (found === null)
    throw new AppError('not_found', `no worker named ${name} in this workspace`, {
      resource: 'worker',
    });
  const { definition, instructions, digest, errors } = found;
  if (errors.length > 0 || definition === null || instructions === null || digest === null)
    throw validationError(
      errors.map(({ path, ...problem }) => ({
        path: ['worker', path].filter((name) => name !== '').join('.'),
        message: locateMessage(problem),
      })),
    );
  await engine.workspaces.openSandboxes(workspace, Object.values(definition.sandboxes)).catch((error: unknown) => {
    if (!(error instanceof ToolError)) throw error;
    throw validationError([{ path: 'worker', message: error.message }]);
  });
  const schema = found.output_schema as WorkerSnapshot['output_schema'];
  return { name, origin: found.origin, definition, instructions, digest, schema };
}

/** The definition's model becomes the sticky one (13 §8). */
function resolveWorkerModel(
  engine: Pick<ModelCatalog, 'registry'>,
  policies: RoutingPolicies,
  { model, tier, effort = null }: WorkerDefinition,
): string | null {
  if (model !== null) resolveModel(engine, model);
  const found = chooseWorkerModel({ model, tier, effort }, policies, engine.registry);
  if (!found.ok) throw new AppError('model_not_configured', found.error, { input: `${effort}` });
  if (found.value === null && tier !== null)
    throw new AppError('model_not_configured', `no model serves the tier ${tier}`, { input: tier });
  return found.value;
}

async function hasSkillReader(
  engine: SessionEngine,
  workspace: string,
  { definition }: { readonly definition: WorkerDefinition },
) {
  const session = {
    workspace_path: workspace,
    is_worker: false,
    allow_workers: null,
    worker_definition: { definition, output_schema: null },
    has_workspace: true,
  };
  const toolset = await loadKnownToolset(engine, session);
  return selectBaseTools(session, { toolset, granted: null }).some((tool) => tool.loads_skills);
}

/** `session.created` of any session, planner or worker. */
export function sessionCreatedEvent(session: SessionRecord) {
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
      door: session.door,
      client: session.client,
    },
  });
}

/** The canonical reference of a model that a caller names. Throws `model_not_configured`. */
export function resolveModel(engine: Pick<ModelCatalog, 'registry'>, input: string): string {
  const found = modelInput(engine.registry, input);
  if (!found.ok) throw found.error;
  return found.value;
}

/** The real directory of a workspace that the server may use. Throws `not_found`, `workspace_not_allowed` or `workspace_not_shared`. */
export async function resolveWorkspace(engine: Runtime & WorkspaceAccess, given: string): Promise<string> {
  const real = await engine.workspaces.realDirectory(given);
  if (real === null)
    throw new AppError('not_found', `workspace_path is not an existing directory: ${given}`, { resource: 'workspace' });
  if (!(await isInAllowedRoot(engine, real))) {
    throw new AppError('workspace_not_allowed', 'workspace_path lies outside server.workspace_roots');
  }
  const { database, cluster } = engine.config;
  if (database.url !== null && !cluster.local_workspaces && !isBelow(real, cluster.shared_roots)) {
    throw new AppError(
      'workspace_not_shared',
      'workspace_path lies in none of cluster.shared_roots, so that no other node could go on with it; use a folder below one of them, or set cluster.local_workspaces',
    );
  }
  return real;
}

async function isInAllowedRoot(engine: Runtime & WorkspaceAccess, real: string): Promise<boolean> {
  const roots = engine.config.server.workspace_roots;
  if (roots.length === 0) return true;
  for (const root of roots) {
    const allowed = await engine.workspaces.realDirectory(root);
    if (allowed !== null && isBelow(real, [allowed])) return true;
  }
  return false;
}

// Finds a session that takes turns and settings (05 §3.1).

/** Any session that has not ended. Throws `not_found` or `session_already_ended`. */
export function requireOpenSession(engine: Storage & LiveSessions, id: string): Awaitable<SessionRecord> {
  return continueWith(requireSession(engine, id), (session) => requireOpen(engine, session));
}

function requireOpen({ ending }: LiveSessions, session: SessionRecord): SessionRecord {
  if (session.ended_at !== null || ending.has(session.id)) throw sessionEndedError();
  return session;
}

/** A top-level session. Throws `not_found` or `session_is_worker`. */
export function requireTopLevelSession(engine: Pick<Storage, 'store'>, id: string): Awaitable<SessionRecord> {
  return continueWith(requireSession(engine, id), (session) => {
    if (session.is_worker) throw sessionIsWorkerError();
    return session;
  });
}

function requireSession(engine: Pick<Storage, 'store'>, id: string): Awaitable<SessionRecord> {
  return continueWith(engine.store.sessions.record(id), (session) => {
    if (!session) throw new AppError('not_found', `no session with id ${id}`, { resource: 'session' });
    return session;
  });
}

export function sessionIsWorkerError(): AppError {
  return new AppError(
    'session_is_worker',
    'this session belongs to a delegation: it can be read, its running turn steered or cancelled, nothing else',
  );
}

/** A top-level session that takes turns and settings. Throws `not_found`, `session_is_worker`, `session_already_ended`. */
export function requireOpenTopLevelSession(engine: Storage & LiveSessions, id: string): Awaitable<SessionRecord> {
  return continueWith(requireTopLevelSession(engine, id), (session) => requireOpen(engine, session));
}

export function sessionEndedError(): AppError {
  return new AppError('session_already_ended', 'this session has ended');
}

/** Notes the workspace that a recorded session begins with. Throws `validation_error` where that is too large. */
async function recordStart(
  { worktrees }: Pick<WorkspaceAccess, 'worktrees'>,
  { id, workspace_path }: SessionRecord,
): Promise<CaseStart> {
  try {
    return await worktrees.recordStart(id, workspace_path);
  } catch (error) {
    if (!(error instanceof WorktreeError)) throw error;
    throw validationError([{ path: 'record_case', message: error.message }]);
  }
}

type StartOwner = Pick<SessionRecord, 'id' | 'workspace_path'>;

/** Removes the ref of a noted start. */
export async function forgetStart(
  { worktrees, log }: Pick<WorkspaceAccess, 'worktrees'> & Pick<Runtime, 'log'>,
  { id: session_id, workspace_path: caller_path }: StartOwner,
  start: CaseStart | null,
): Promise<void> {
  if (start?.kind !== 'snapshot') return;
  const { repository } = start;
  await worktrees.removeRefs({ session_id, caller_path, repository }).catch((err: unknown) => {
    log.warn({ err, session_id }, 'the noted start of a session could not be removed');
  });
}

/** Stores a session, with its start where it is recorded; what was noted for one that is not stored is removed. */
export async function storeWithStart(
  engine: Parameters<typeof forgetStart>[0],
  session: SessionRecord,
  store: (noted: readonly Write[]) => Promise<void>,
): Promise<void> {
  if (!session.record_case) return store([]);
  const start = await recordStart(engine, session);
  try {
    await store([{ kind: 'case.start', session_id: session.id, start }]);
  } catch (error) {
    await forgetStart(engine, session, start);
    throw error;
  }
}
