// The input of a turn's model calls: tools, prompts and skills. Tools that spawn a worker depend on the routed model (09 §2, 04 §3.2).

import { namedPrompt, stablePrompt } from '#core/policy/context/system-prompt.ts';
import { isIndexed, skillIndex } from '#core/policy/skills/skill-text.ts';
import { canDelegate, listPlannerTools, selectNamedTools } from '#core/policy/workers/worker-tools.ts';
import type { SkillShelf, ToolSet } from '#core/ports/tool-port.ts';
import type { Awaitable } from '#protocol/async/awaitable.ts';
import type { CalledWorker } from '#protocol/delegate.ts';
import type { ModelEntry } from '#protocol/model.ts';
import type { WireTool } from '#protocol/model-call.ts';
import type { SessionRecord } from '#protocol/session.ts';
import { compareText } from '#protocol/text/compare-text.ts';
import { type ToolDefinition, ToolError } from '#protocol/tool.ts';
import type { Runtime, Toolbox, WorkspaceAccess } from '../state/engine.ts';

/** Names in one line of the log. */
const MAX_LISTED = 10;

/**
 * The tools without those that depend on the turn's model. A session with a definition has all of its own tools: its
 * file is its consent.
 * @param granted for a worker: the names in its delegation
 */
export function selectBaseTools(
  session: Pick<SessionRecord, 'is_worker' | 'worker_definition' | 'has_workspace'>,
  { toolset, granted }: { readonly toolset: ToolSet; readonly granted: readonly string[] | null },
): readonly ToolDefinition[] {
  const registered = toolset.definitions();
  const { worker_definition: named, is_worker: isWorker } = session;
  let names: Iterable<string>;
  if (isWorker) names = granted ?? [];
  else if (named === null) names = listPlannerTools({ registered, offerDelegate: false });
  else names = selectNamedTools({ definition: named.definition, registered, isWorker, creatorTools: null }).effective;
  const selected = new Set(names);
  // Stored delegations may be older than this rule and must not bypass it.
  const offered = registered.filter(
    (t) => selected.has(t.name) && !(t.planners_only && isWorker) && (session.has_workspace || !t.requires_workspace),
  );
  if (named === null) return offered.filter((t) => !canCallWorkers(t));
  return offered;
}

function canCallWorkers(tool: ToolDefinition): boolean {
  return tool.spawns !== undefined || tool.creates_workers === true || tool.manages_workers === true;
}

/** `delegate`, and the tool that is offered with it. */
function isOfDelegate(tool: ToolDefinition): boolean {
  return tool.spawns === 'delegate' || tool.manages_workers === true;
}

/** The tools that a turn may be offered besides its base tools, whatever its model (04 §3.2, 13 §6.1). */
export function selectWorkerCallers(
  engine: Pick<Runtime, 'config'>,
  session: Pick<SessionRecord, 'is_worker' | 'worker_definition'>,
  toolset: ToolSet,
): readonly ToolDefinition[] {
  if (session.worker_definition !== null) return [];
  const { workers } = engine.config;
  return toolset.definitions().filter((tool) => {
    if (!canCallWorkers(tool)) return false;
    if (isOfDelegate(tool)) return true;
    return !session.is_worker && (tool.spawns === 'worker_tool' || workers.dynamic);
  });
}

/** Logs one WARN, in the first turn of a session with a definition, for entries of its `tools` that name no tool. */
export function warnAboutMissingTools(
  engine: Pick<Runtime, 'log'>,
  { id, turn_count, is_worker: isWorker, worker_name, worker_definition: named }: SessionRecord,
  toolset: ToolSet,
): void {
  if (named === null || turn_count > 0) return;
  const registered = toolset.definitions();
  const { unknown_tools } = selectNamedTools({
    definition: named.definition,
    registered,
    isWorker,
    creatorTools: null,
  });
  if (unknown_tools.length === 0) return;
  engine.log.warn(
    { session_id: id, worker: worker_name, tools: unknown_tools },
    `worker "${worker_name}" runs without ${unknown_tools.slice(0, MAX_LISTED).join(', ')}, which its definition names`,
  );
}

/** All tools of the turn once its model is known, sorted by name; `tools` are its base tools. */
export function selectOfferedTools(
  engine: Pick<Runtime, 'config'>,
  session: SessionRecord,
  turn: {
    readonly toolset: ToolSet;
    readonly tools: readonly ToolDefinition[];
    readonly model: ModelEntry;
    readonly granted: readonly string[] | null;
  },
): readonly ToolDefinition[] {
  const { model, granted } = turn;
  if (!model.can_delegate || !model.capabilities.supports_tools || session.experiment?.delegate === false)
    return turn.tools;
  const delegates = canDelegate({
    depth: session.delegation_depth,
    delegateDepth: engine.config.delegation.delegate_depth,
    model,
    granted,
  });
  const more = selectWorkerCallers(engine, session, turn.toolset).filter((t) => !isOfDelegate(t) || delegates);
  if (more.length === 0) return turn.tools;
  return [...turn.tools, ...more].sort((a, b) => compareText(a.name, b.name));
}

// Definitions never change, and adapters cache the text of each wire form by the object's identity.
const wireForms = new WeakMap<ToolDefinition, WireTool>();

/** A tool in the form for providers; the same object every time. */
export function toWireTool(tool: ToolDefinition): WireTool {
  let form = wireForms.get(tool);
  if (form === undefined) {
    form = { name: tool.name, description: tool.description, input_schema: tool.input_schema };
    wireForms.set(tool, form);
  }
  return form;
}

// The system text of a new session with a definition, built once (10 §3.4).

export async function buildNamedPrompt(
  engine: Pick<WorkspaceAccess, 'workspaces'>,
  root: string,
  called: Pick<CalledWorker, 'instructions' | 'definition'>,
  { worker, readsSkills }: { readonly worker: boolean; readonly readsSkills: boolean },
): Promise<string> {
  return namedPrompt({
    instructions: called.instructions,
    sandboxes: called.definition.sandboxes,
    worker,
    skills: readsSkills ? skillIndex(await engine.workspaces.skills(root)) : null,
  });
}

// The stable system text of a new session, built from its workspace once (10 §2).

/** @param granted for a worker: the names of its delegation. Workers that cannot read skills get no skill list. */
export async function buildStablePrompt(
  engine: Runtime & Toolbox & WorkspaceAccess,
  session: Pick<SessionRecord, 'workspace_path' | 'is_worker' | 'worker_definition' | 'has_workspace'>,
  granted: readonly string[] | null,
): Promise<string | null> {
  const { config, workspaces } = engine;
  const { workspace_path: root, is_worker: worker } = session;
  const tools = selectBaseTools(session, { toolset: engine.tools.knownTools(root), granted });
  const readsSkills = tools.some((tool) => tool.loads_skills);
  return stablePrompt({
    base: config.context.base_system_prompt,
    instructions: await workspaces.instructions(root, config.context.project_instruction_files),
    worker,
    memory: worker ? await workspaces.memoryText(root) : null,
    skills: readsSkills ? skillIndex(await workspaces.skills(root)) : null,
  });
}

/** The system text that may differ from call to call: a planner's current memory, a worker's task; a definition has none (10 §2, §3.4). */
export function readVolatilePrompt(
  engine: Pick<WorkspaceAccess, 'workspaces'>,
  session: SessionRecord,
): Awaitable<string | null> {
  if (session.is_worker || session.worker_definition !== null) return session.system_prompt_volatile;
  return engine.workspaces.memoryText(session.workspace_path);
}

// The skills of one session: its index was fixed at its start; a skill is read when it is used (10 §5.1, §5.4).

export function createSkillShelf(engine: Pick<WorkspaceAccess, 'workspaces'>, session: SessionRecord): SkillShelf {
  const { workspace_path: root, system_prompt } = session;
  const requireSkill = <T>(found: T | null, name: string): T => {
    if (found !== null) return found;
    if (isIndexed(system_prompt, name))
      throw new ToolError('execution_error', `skill '${name}' is no longer available`);
    throw new ToolError('execution_error', `no skill registered with name '${name}'`);
  };
  return {
    load: async (name) => requireSkill(await engine.workspaces.skill(root, name), name),
    file: async (name, path) => requireSkill(await engine.workspaces.skillFile(root, name, path), name),
  };
}
