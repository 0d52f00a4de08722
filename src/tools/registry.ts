// The tools of a workspace: the built-in ones, and those of its MCP servers (09 §1, §2).

import { namesTool } from '#core/policy/tools/tool-names.ts';
import type { ToolFactory, ToolRegistry, ToolSet } from '#core/ports/tool.ts';
import type { Issue } from '#protocol/errors.ts';
import { REQUEST_CONTEXT, type ToolDefinition } from '#protocol/tool.ts';
import type { Mcp } from './mcp-client/servers.ts';
import { workerTool } from './worker-tool.ts';

/** A tool that some workspaces or sessions have beside the built-in ones. */
export interface AddedTool {
  readonly definition: ToolDefinition;
  readonly validate: (value: unknown) => readonly Issue[];
  readonly factory: ToolFactory;
}

/**
 * @param mcp null = no MCP server is configured: every workspace has the built-in tools, and no turn waits for more
 * @param disabled names, or prefixes with a final `*`, of tools that nobody has, a turn from before a restart included
 */
export function createToolRegistry(builtin: ToolSet, mcp: Mcp | null, disabled: readonly string[]): ToolRegistry {
  const own = disabled.length === 0 ? builtin : without(builtin, disabled);
  const withWorkers = (toolset: ToolSet, workers: readonly ToolDefinition[]) =>
    joined(toolset, workers.filter(({ name }) => !isDisabled(name, disabled)).map(workerTool));
  if (mcp === null)
    return { toolsOf: () => own, knownTools: () => own, problems: () => [], hold: () => () => {}, withWorkers };
  const withMcp = (tools: readonly AddedTool[]) =>
    joined(
      own,
      tools.filter(({ definition }) => !isDisabled(definition.name, disabled)),
    );
  return {
    toolsOf: async (workspace) => withMcp(await mcp.tools(workspace)),
    knownTools: (workspace) => withMcp(mcp.known(workspace)),
    problems: mcp.problems,
    hold: mcp.hold,
    withWorkers,
  };
}

function isDisabled(name: string, disabled: readonly string[]): boolean {
  // A worker that cannot ask would have to guess.
  if (name === REQUEST_CONTEXT) return false;
  return disabled.some((entry) => namesTool(entry, name));
}

function without(tools: ToolSet, disabled: readonly string[]): ToolSet {
  const definitions = tools.definitions().filter(({ name }) => !isDisabled(name, disabled));
  return {
    ...tools,
    definitions: () => definitions,
    definition: (name) => (isDisabled(name, disabled) ? null : tools.definition(name)),
  };
}

function joined(builtin: ToolSet, more: readonly AddedTool[]): ToolSet {
  if (more.length === 0) return builtin;
  const added = new Map(more.map((tool) => [tool.definition.name, tool]));
  // Names are ASCII, so code unit order is byte order.
  const definitions: readonly ToolDefinition[] = [
    ...builtin.definitions(),
    ...more.map(({ definition }) => definition),
  ].sort((a, b) => (a.name < b.name ? -1 : 1));
  return {
    definitions: () => definitions,
    definition: (name) => added.get(name)?.definition ?? builtin.definition(name),
    validate: (name, input) => added.get(name)?.validate(input) ?? builtin.validate(name, input),
    create: (name) => added.get(name)?.factory() ?? builtin.create(name),
  };
}
