// Where a worker works: in its caller's workspace or in a worktree, as the call, its definition or the configuration states (20 §2).
import { readCalledInput } from '#core/policy/delegation/delegate-tool.ts';
import {
  hasWritingTool,
  narrowWorkerTools,
  selectNamedTools,
  selectWorkerTools,
  type WorkerToolSet,
} from '#core/policy/workers/worker-tools.ts';
import type { CalledWorker, DelegateInput, DelegateRequest } from '#protocol/delegate.ts';
import type { Issue } from '#protocol/errors.ts';
import type { Apply, Isolation } from '#protocol/file-change.ts';
import type { ToolUseBlock } from '#protocol/message.ts';
import { findProjectWorker, findSessionWorker, loadWorkerToolset } from '../definitions/find-workers.ts';
import { getFilesRoot } from '../definitions/session-files.ts';
import { resolveWorktreeSettings } from '../definitions/worktree-settings.ts';
import type { Caller } from '../state/delegation-runs.ts';
import type { DelegationEngine } from '../state/engine.ts';
import { findEarlierWorker } from './continue-worker.ts';

export type ChosenIsolation = Pick<DelegateRequest, 'isolation' | 'apply'> & {
  /** No caller requested the worktree: the worker is shared where it cannot be made. */
  readonly is_optional: boolean;
};

/** What was requested, by a call or a definition, and cannot be had is an issue, never another place. */
export async function resolveIsolation(
  engine: DelegationEngine,
  caller: Caller,
  asked: Pick<DelegateInput, 'isolation' | 'apply' | 'check' | 'background'>,
): Promise<ChosenIsolation & { readonly issues: readonly Issue[] }> {
  const apply = asked.apply ?? 'each';
  const fault = findApplyFaults(caller, apply, asked.background);
  // A check implies a worktree.
  const standard = asked.check === null ? engine.config.delegation.isolation : 'worktree';
  const configured = asked.isolation ?? standard;
  if (configured === 'auto')
    return { isolation: await chooseIsolation(engine, caller), apply, is_optional: true, issues: fault };
  const chosen = { isolation: configured, apply, is_optional: false };
  if (configured === 'shared' && asked.check !== null)
    return { ...chosen, issues: [{ path: 'check', message: 'needs isolation "worktree"' }] };
  if (asked.check !== null && apply === 'together')
    return { ...chosen, issues: [{ path: 'apply', message: 'must be "each" or "never" beside a check' }] };
  if (configured === 'shared' && asked.apply !== null)
    return { ...chosen, issues: [{ path: 'apply', message: 'needs isolation "worktree"' }] };
  const obstacle = configured === 'shared' ? null : await findObstacle(engine, caller);
  return { ...chosen, issues: obstacle === null ? fault : [...fault, { path: 'isolation', message: obstacle }] };
}

/** A delegation without a turn has no message that others belong to, and a call in the background does not wait for them. */
function findApplyFaults({ turn }: Caller, apply: Apply, isBackground: boolean): readonly Issue[] {
  if (apply !== 'together') return [];
  if (turn === null)
    return [{ path: 'apply', message: '"together" joins the calls of one message of a model; use "each" or "never"' }];
  if (!isBackground) return [];
  return [{ path: 'background', message: 'excludes apply "together": the calls would end before their workers' }];
}

/** `auto`: a worktree where several delegations of one message may write, and one can be made. */
async function chooseIsolation(engine: DelegationEngine, caller: Caller): Promise<Isolation> {
  const calls = caller.history.findLast((message) => message.role === 'assistant')?.content ?? [];
  let writing = 0;
  for (const block of calls)
    if (block.type === 'tool_use' && (await mayWorkerWrite(engine, caller, block))) writing += 1;
  if (writing < 2 || (await findObstacle(engine, caller)) !== null) return 'shared';
  return 'worktree';
}

/** Why the caller's workers can have no worktree; null = they can. */
async function findObstacle(engine: DelegationEngine, { session }: Caller): Promise<string | null> {
  const obstacle = await engine.worktrees.findObstacle(getFilesRoot(session));
  if (obstacle !== null) return obstacle;
  const settings = await resolveWorktreeSettings(engine, session.workspace_path);
  return settings.ok ? null : settings.error;
}

/** Whether a call starts a worker with a tool that writes files or runs commands. */
async function mayWorkerWrite(engine: DelegationEngine, caller: Caller, block: ToolUseBlock): Promise<boolean> {
  const spawns = caller.toolset.definition(block.name)?.spawns;
  if (spawns === undefined) return false;
  const { allowed_tools, earlier: continued, worker: name } = readCalledInput(block.input);
  if (spawns === 'delegate') {
    const earlier = continued === null ? null : await findEarlierWorker(engine, caller, continued);
    if (earlier?.ok) {
      const { effective } = narrowWorkerTools(earlier.value.delegation.effective_tools, allowed_tools);
      return hasWritingTool(effective, caller.toolset.definitions());
    }
    const { effective } = await resolveWorkerTools(engine, caller, { worker: null, allowed_tools });
    return hasWritingTool(effective, caller.toolset.definitions());
  }
  const { session } = caller;
  const found =
    spawns === 'worker_call'
      ? await findSessionWorker(engine, session, name)
      : await findProjectWorker(engine, session.workspace_path, block.name);
  const definition = found?.definition ?? null;
  if (definition === null) return false;
  const worker = { definition, creator_tools: null };
  const { effective } = await resolveWorkerTools(engine, caller, { worker, allowed_tools });
  const own = await loadWorkerToolset(engine, session.workspace_path, definition.allow_workers);
  return hasWritingTool(effective, own.definitions());
}

/** The tools of the worker: narrowed from its planner's, or listed in its own definition (09 §2). */
export async function resolveWorkerTools(
  engine: DelegationEngine,
  { session, toolset, turn, outside }: Caller,
  request: Pick<DelegateRequest, 'allowed_tools'> & {
    readonly worker: Pick<CalledWorker, 'definition' | 'creator_tools'> | null;
  },
): Promise<WorkerToolSet> {
  if (request.worker === null)
    return selectWorkerTools({
      plannerTools: turn?.tools ?? outside?.tools ?? [],
      allowed_tools: request.allowed_tools,
      mayDelegate: session.delegation_depth + 1 < engine.config.delegation.delegate_depth,
      registered: toolset.definitions(),
    });
  const { definition, creator_tools } = request.worker;
  const own = await loadWorkerToolset(engine, session.workspace_path, definition.allow_workers);
  const tools = selectNamedTools({
    definition,
    registered: own.definitions(),
    isWorker: true,
    creatorTools: creator_tools,
  });
  return { ...tools, allowed_tool_count: null };
}
