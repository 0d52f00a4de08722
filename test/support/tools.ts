// A tool of a test: it does what its test says, through the same registry as the real ones.

import type { Tool, ToolFactory } from '#core/ports/tool-port.ts';
import { type ToolDefinition, toolText } from '#protocol/tool.ts';

/** Answers `ok` at once, takes no path and asks nobody, unless told otherwise. */
export function tool(
  name: string,
  over: Partial<Tool> & { side_effects?: ToolDefinition['side_effects'] } = {},
): ToolFactory {
  const { side_effects = 'none', ...rest } = over;
  const definition: ToolDefinition = {
    name,
    description: name,
    input_schema: { type: 'object', properties: { n: { type: 'integer' } }, additionalProperties: false },
    side_effects,
    requires_workspace: false,
    path_fields: [],
    timeout_seconds: null,
  };
  return () => ({ definition, execute: async () => toolText('ok'), cancel: async () => false, ...rest });
}
