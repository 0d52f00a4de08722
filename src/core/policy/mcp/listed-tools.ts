// Converts the tools that an MCP server lists to tool definitions: name, description, class, limit (09 §11).
import type { McpServerConfig } from '#protocol/mcp.ts';
import type { JsonSchema, ToolDefinition } from '#protocol/tool.ts';
import { isMapping } from '../parsing/yaml.ts';
import { mcpToolName, toolKey } from '../tools/tool-names.ts';

/** Tools of one server that are offered. Every request of a session carries all of them. */
export const MAX_MCP_TOOLS = 256;
/** UTF-8 bytes of the definitions of one server's tools in a request. */
const MAX_BYTES = 524_288;
const MAX_ORIGINAL_NAME = 256;
const MAX_DESCRIPTION = 1024;

export interface ListedTool {
  /** The name on the server. */
  readonly original: string;
  readonly definition: ToolDefinition;
}

export interface ListedTools {
  readonly tools: readonly ListedTool[];
  /** One sentence for each omitted tool and each fault of the list. */
  readonly warnings: readonly string[];
}

/** Names are assigned in the byte order of the original ones, so the order of the list does not matter. */
export function listedTools(server: string, config: McpServerConfig, listed: readonly unknown[]): ListedTools {
  const warnings: string[] = [];
  const found = new Map<string, ListedTool>();
  let bytes = 0;
  const kept = listed.slice(0, MAX_MCP_TOOLS);
  if (listed.length > kept.length) {
    warnings.push(`lists more than ${MAX_MCP_TOOLS} tools; the first ${MAX_MCP_TOOLS} are used`);
  }
  const entries = kept.flatMap((entry) => {
    const fault = faultOfEntry(entry);
    if (fault !== null) warnings.push(fault);
    if (fault === null) return [entry as Entry];
    return [];
  });
  for (const entry of entries.sort((a, b) => Buffer.compare(Buffer.from(a.name), Buffer.from(b.name)))) {
    const settings = config.tools?.[entry.name];
    if (settings?.enabled === false) continue;
    const name = mcpToolName(server, entry.name);
    const first = found.get(toolKey(name));
    if (first !== undefined) {
      warnings.push(
        `has the tools ${quoteName(first.original)} and ${quoteName(entry.name)}, whose names no rule can distinguish; the second is left out`,
      );
      continue;
    }
    const definition: ToolDefinition = {
      name,
      description: plainDescription(entry.description) || entry.name,
      input_schema: entry.inputSchema,
      side_effects:
        settings?.side_effects ?? config.side_effects ?? (config.transport === 'stdio' ? 'execute' : 'network'),
      requires_workspace: false,
      path_fields: [],
      timeout_seconds: settings?.timeout_seconds ?? config.call_timeout_seconds ?? null,
      ...(config.allow_workers === false && { planners_only: true }),
    };
    bytes += Buffer.byteLength(JSON.stringify(definition));
    if (bytes > MAX_BYTES) {
      warnings.push(`describes its tools in more than ${MAX_BYTES} bytes; the first ${found.size} by name are used`);
      break;
    }
    found.set(toolKey(name), { original: entry.name, definition });
  }
  return { tools: [...found.values()], warnings };
}

interface Entry {
  readonly name: string;
  readonly description?: unknown;
  readonly inputSchema: JsonSchema;
}

function faultOfEntry(entry: unknown): string | null {
  if (!isMapping(entry) || typeof entry.name !== 'string' || entry.name === '') return 'lists a tool without a name';
  if (entry.name.length > MAX_ORIGINAL_NAME) return `lists a tool with a name of ${entry.name.length} characters`;
  if (!isMapping(entry.inputSchema)) return `has a tool ${quoteName(entry.name)} without an input schema`;
  if (isMapping(entry.execution) && entry.execution.taskSupport === 'required') {
    return `has a tool ${quoteName(entry.name)} that runs as a task only, which is not supported`;
  }
  return null;
}

function plainDescription(given: unknown): string {
  if (typeof given !== 'string') return '';
  const plain = given.slice(0, 4 * MAX_DESCRIPTION).replaceAll(/(?![\n\t])\p{Cc}/gu, '');
  return [...plain].slice(0, MAX_DESCRIPTION).join('').trim();
}

/** A server's name for a tool, fit for one line of a log. */
export function quoteName(name: string): string {
  if (name.length <= 100) return JSON.stringify(name);
  return JSON.stringify(`${name.slice(0, 100)}...`);
}
