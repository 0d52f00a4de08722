// Reads a workspace's `.mcp.json`, the MCP servers of a project (09 §11, 18 §2).

import { type McpServerConfig, McpServerNameSchema, McpServerSchema } from '#protocol/mcp.ts';
import { joinLines } from '#protocol/text/plain-text.ts';
import { readJson } from '../parsing/json.ts';
import { describeIssues } from '../parsing/plain-issue.ts';
import { OUTSIDE } from '../parsing/text-limits.ts';
import { isMapping, toMapping } from '../parsing/yaml.ts';
import { plainKey } from '../tools/tool-names.ts';

/** Servers of one project file beyond these are left out. */
const MAX_SERVERS = 32;
/** Other programs' words for a transport. */
const TRANSPORTS: Readonly<Record<string, McpServerConfig['transport']>> = {
  stdio: 'stdio',
  http: 'http',
  'streamable-http': 'http',
  streamableHttp: 'http',
  sse: 'sse',
};
/** Settings that a workspace may make. Trust of tools is not one of them. */
const KEYS = ['command', 'args', 'env', 'cwd', 'url', 'headers'];

interface ProjectServers {
  readonly servers: ReadonlyMap<string, McpServerConfig>;
  /** One sentence per fault, without the file's name. Faulty entries are omitted, the others are used. */
  readonly warnings: readonly string[];
}

/** Never throws. */
export function readProjectServers(text: string): ProjectServers {
  const servers = new Map<string, McpServerConfig>();
  const json = readJson(text, OUTSIDE);
  if (!json.ok) return { servers, warnings: [json.error] };
  const given = toMapping(json.value).mcpServers;
  if (!isMapping(given)) return { servers, warnings: ['mcpServers: must be an object of servers by name'] };
  const warnings: string[] = [];
  const keys = new Map<string, string>();
  for (const [written, entry] of Object.entries(given)) {
    const where = `mcpServers.${shortenPath(written)}`;
    const name = serverName(written);
    if (name === null) warnings.push(`${where}: the name cannot be used; begin it with a letter and keep it short`);
    else if (keys.has(plainKey(name)))
      warnings.push(`${where}: another server is called ${keys.get(plainKey(name))} already`);
    else if (servers.size === MAX_SERVERS) warnings.push(`${where}: at most ${MAX_SERVERS} servers are used`);
    else {
      const server = readServer(entry, where, warnings);
      if (server !== null) {
        servers.set(name, server);
        keys.set(plainKey(name), name);
      }
    }
  }
  return { servers, warnings };
}

/** Other programs allow more characters: `Brave Search` is called `Brave_Search` here. Null = no name can be made. */
function serverName(written: string): string | null {
  const name = written.replaceAll(/[^A-Za-z0-9]{2,}|[^A-Za-z0-9-]/g, '_').replace(/[_-]$/, '');
  if (!McpServerNameSchema.safeParse(name).success) return null;
  return name;
}

function readServer(entry: unknown, where: string, warnings: string[]): McpServerConfig | null {
  if (!isMapping(entry)) {
    warnings.push(`${where}: must be an object`);
    return null;
  }
  // Other programs take an address alone for a server over HTTP.
  const { type = 'url' in entry && !('command' in entry) ? 'http' : 'stdio', ...about } = entry;
  const { disabled = false, enabled = true, ...rest } = about;
  // Some programs write `enabled`. A server that is not clearly enabled is not started.
  if (enabled !== true) {
    if (enabled !== false) warnings.push(`${where}.enabled: must be true or false; the server is not used`);
    return null;
  }
  if (disabled !== false) {
    if (disabled !== true) warnings.push(`${where}.disabled: must be true or false; the server is not used`);
    return null;
  }
  if (typeof type !== 'string' || !Object.hasOwn(TRANSPORTS, type)) {
    warnings.push(`${where}.type: must be "stdio", "http", "streamable-http" or "sse"; the server is not used`);
    return null;
  }
  const known = Object.fromEntries(Object.entries(rest).filter(([key]) => KEYS.includes(key)));
  const ignored = Object.keys(rest).filter((key) => !KEYS.includes(key));
  if (ignored.length > 0) warnings.push(`${where}: ${shortenPath(ignored.join(', '))} is not read from a project file`);
  const parsed = McpServerSchema.safeParse({ transport: TRANSPORTS[type], ...known });
  if (parsed.success) return parsed.data;
  const [issue] = describeIssues(parsed.error);
  warnings.push(`${shortenPath([where, ...(issue?.path ?? [])].join('.'))}: ${issue?.message}; the server is not used`);
  return null;
}

function shortenPath(name: string): string {
  const line = joinLines(name);
  if (line.length <= 100) return line;
  return `${line.slice(0, 100)}...`;
}

// `${VAR}` and `${VAR:-default}` in the settings of an MCP server (09 §11, 18 §2).

const VARIABLE = /\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}/g;

interface Expanded {
  readonly server: McpServerConfig;
  /** Missing variables, each once. */
  readonly missing: readonly string[];
}

/**
 * The settings with variables in `command`, `args`, `env`, `url` and `headers` expanded; a missing variable expands to
 * an empty text.
 * @param lookup the value of a variable; undefined = not there, or not for this reader
 */
export function expandVariables(server: McpServerConfig, lookup: (name: string) => string | undefined): Expanded {
  const missing = new Set<string>();
  const fillText = (text: string) =>
    text.replace(VARIABLE, (_, name: string, fallback: string | undefined) => {
      const value = lookup(name) || fallback;
      if (value === undefined) missing.add(name);
      return value ?? '';
    });
  const fillAll = (texts: Readonly<Record<string, string>>) =>
    Object.fromEntries(Object.entries(texts).map(([key, text]) => [key, fillText(text)]));
  const { command, args, env, url, headers } = server;
  const expanded: McpServerConfig = {
    ...server,
    ...(command !== undefined && { command: fillText(command) }),
    ...(args !== undefined && { args: args.map(fillText) }),
    ...(env !== undefined && { env: fillAll(env) }),
    ...(url !== undefined && { url: fillText(url) }),
    ...(headers !== undefined && { headers: fillAll(headers) }),
  };
  return { server: expanded, missing: [...missing] };
}
