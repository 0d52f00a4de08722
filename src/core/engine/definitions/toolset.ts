// The tools there are for one session: those of its workspace, and the workers it may call (09 §1, 13 §6.1).

import { workerTool } from '#core/policy/workers/worker-tools.ts';
import type { ToolSet } from '#core/ports/tool.ts';
import type { SessionRecord } from '#protocol/session.ts';
import type { Engine } from '../state/engine.ts';
import { projectWorker, projectWorkers } from './find-worker.ts';

type Caller = Pick<SessionRecord, 'workspace_path' | 'is_worker' | 'allow_workers' | 'worker_definition'>;

/** As a turn finds them that starts now; waits for servers of the workspace. */
export async function toolsetOf(engine: Engine, session: Caller): Promise<ToolSet> {
  return withWorkers(engine, await engine.tools.toolsOf(session.workspace_path), session, allowedBy(engine, session));
}

/** As far as they are known: nothing is started or waited for. */
export function knownToolsetOf(engine: Engine, session: Caller): Promise<ToolSet> {
  const known = engine.tools.knownTools(session.workspace_path);
  return withWorkers(engine, known, session, allowedBy(engine, session));
}

/** Those of a session that may call these workers. */
export async function toolsetFor(engine: Engine, workspace: string, allowed: readonly string[]): Promise<ToolSet> {
  return withWorkers(engine, await engine.tools.toolsOf(workspace), { workspace_path: workspace }, allowed);
}

/** Whom a session may call; `*` is every worker of the project. A worker of `delegate` may call none. */
export function allowedBy(engine: Engine, session: Caller): readonly string[] {
  if (session.worker_definition !== null) return session.worker_definition.definition.allow_workers;
  if (session.is_worker) return [];
  return session.allow_workers ?? engine.config.workers.planner_allow_workers;
}

async function withWorkers(
  engine: Engine,
  toolset: ToolSet,
  { workspace_path: root }: Pick<Caller, 'workspace_path'>,
  allowed: readonly string[],
): Promise<ToolSet> {
  if (allowed.length === 0) return toolset;
  const found = allowed.includes('*')
    ? await projectWorkers(engine, root)
    : await Promise.all([...new Set(allowed)].map((name) => projectWorker(engine, root, name)));
  const tools = found.flatMap((worker) => {
    if (worker === null || worker.errors.length > 0 || worker.definition === null) return [];
    return [workerTool({ ...worker, definition: worker.definition })];
  });
  return tools.length === 0 ? toolset : engine.tools.withWorkers(toolset, tools);
}
