// `${VAR}` and `${VAR:-default}` in the settings of an MCP server (09 §11, 18 §2).
import type { McpServerConfig } from '#protocol/mcp.ts';

const VARIABLE = /\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}/g;

export interface Expanded {
  readonly server: McpServerConfig;
  /** Variables that yielded nothing, each once. */
  readonly missing: readonly string[];
}

/**
 * The settings with the variables of `command`, `args`, `env`, `url` and `headers` filled in; one that is not there yields
 * nothing.
 * @param lookup the value of a variable; undefined = not there, or not for this reader
 */
export function expandVariables(server: McpServerConfig, lookup: (name: string) => string | undefined): Expanded {
  const missing = new Set<string>();
  const filled = (text: string) =>
    text.replace(VARIABLE, (_, name: string, fallback: string | undefined) => {
      const value = lookup(name) || fallback;
      if (value === undefined) missing.add(name);
      return value ?? '';
    });
  const all = (texts: Readonly<Record<string, string>>) =>
    Object.fromEntries(Object.entries(texts).map(([key, text]) => [key, filled(text)]));
  const { command, args, env, url, headers } = server;
  const expanded: McpServerConfig = {
    ...server,
    ...(command === undefined ? {} : { command: filled(command) }),
    ...(args === undefined ? {} : { args: args.map(filled) }),
    ...(env === undefined ? {} : { env: all(env) }),
    ...(url === undefined ? {} : { url: filled(url) }),
    ...(headers === undefined ? {} : { headers: all(headers) }),
  };
  return { server: expanded, missing: [...missing] };
}
