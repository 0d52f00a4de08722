// The tools of a workspace: the built-in ones, and those of its MCP servers (09 §1, §2).
import type { ToolDefinition } from '../domain/tool.ts';
import type { ToolRegistry, ToolSet } from '../ports/tool.ts';
import type { McpTool } from './mcp/server.ts';
import type { Mcp } from './mcp/servers.ts';

/** @param mcp null = no MCP server is configured: every workspace has the built-in tools, and no turn waits for more */
export function createToolRegistry(builtin: ToolSet, mcp: Mcp | null): ToolRegistry {
  if (mcp === null) return { toolsOf: () => builtin, knownTools: () => builtin, hold: () => () => {} };
  return {
    toolsOf: async (workspace) => joined(builtin, await mcp.tools(workspace)),
    knownTools: (workspace) => joined(builtin, mcp.known(workspace)),
    hold: mcp.hold,
  };
}

function joined(builtin: ToolSet, more: readonly McpTool[]): ToolSet {
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
