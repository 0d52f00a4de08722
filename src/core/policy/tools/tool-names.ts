// Entries of rules and lists that mean a tool: by its name, or by a prefix with one final `*` (09 §2, §11.2).
import { sha256Hex } from '#protocol/text/canonical-json.ts';

const MAX_NAME = 64;
const HEAD = 55;
const MCP_NAME = /^mcp__(.+?)__(.+)$/is;

/** `mcp__<server>__<tool>` with the tool's own name, at most 64 characters. */
export function mcpToolName(server: string, original: string): string {
  const name = `mcp__${server}__${original.replaceAll(/[^A-Za-z0-9_-]/g, '_')}`;
  if (name.length <= MAX_NAME) return name;
  return `${name.slice(0, HEAD)}_${sha256Hex(original).slice(0, 8)}`;
}

/**
 * The same for every spelling of a tool's name. Names of MCP tools are the same in any case and with `_` for other
 * characters: programs spell them differently, and none of a server's tools differ in that alone.
 */
export function toolKey(name: string): string {
  const [, server, original] = MCP_NAME.exec(name) ?? [];
  if (server === undefined || original === undefined) {
    if (isMcp(name)) return plainKey(name);
    return name;
  }
  return plainKey(mcpToolName(server, original));
}

/** The same for every spelling of a server's name. */
export function plainKey(name: string): string {
  return name.toLowerCase().replaceAll(/[^a-z0-9_]/g, '_');
}

function isMcp(name: string): boolean {
  return name.slice(0, 5).toLowerCase() === 'mcp__';
}

/** Whether both are names of one tool. */
export function isSameTool(a: string, b: string): boolean {
  return a === b || (isMcp(a) && toolKey(a) === toolKey(b));
}

/** Whether the entry means this tool. */
export function namesTool(entry: string, tool: string): boolean {
  if (!entry.endsWith('*')) return isSameTool(entry, tool);
  const prefix = entry.slice(0, -1);
  return tool.startsWith(prefix) || (isMcp(prefix) && isMcp(tool) && toolKey(tool).startsWith(plainKey(prefix)));
}

/** The key of a map by tool that means this tool; its exact name goes first. Null = none does. */
export function keyOfTool(map: Readonly<Record<string, unknown>>, tool: string): string | null {
  if (Object.hasOwn(map, tool)) return tool;
  return (isMcp(tool) && Object.keys(map).find((key) => isSameTool(key, tool))) || null;
}
