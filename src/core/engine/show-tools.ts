// The tools of a workspace as far as this server knows them, for people (09 §11.3).
import type { ToolList } from '#protocol/api/tools.ts';
import { openWorkspace } from './session/new-session.ts';
import type { Engine } from './state/engine.ts';

/** Starts no MCP server. Throws `not_found` (workspace) or `workspace_not_allowed`. */
export async function listTools(engine: Engine, workspace: string): Promise<ToolList> {
  const root = await openWorkspace(engine, workspace);
  const tools = engine.tools.knownTools(root).definitions();
  return {
    tools: tools.map(({ name, description, side_effects, planners_only }) => ({
      name,
      description,
      side_effects,
      planners_only: planners_only === true,
    })),
    problems: [...engine.tools.problems(root)],
  };
}
