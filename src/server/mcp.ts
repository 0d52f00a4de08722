// The MCP servers of this process, wired to its configuration and environment (09 §11).

import type { RegistryFile } from '#core/policy/registry/registry.ts';
import type { Logger } from '#core/ports/log.ts';
import type { SchemaCompiler } from '#core/ports/tool.ts';
import type { Clock } from '#protocol/clock.ts';
import type { Config } from '#protocol/config.ts';
import { createMcp, type Mcp } from '#tools/mcp-client/workspace-servers.ts';
import { readMcpFile } from '#tools/workspace/workspaces.ts';
import type { Credentials, Env } from './credentials.ts';
import type { TraceRelay } from './telemetry/trace-relay.ts';

/** Keys of these are withheld even where no adapter of theirs is configured (18 §2). */
const KNOWN_KEYS = ['ANTHROPIC_API_KEY', 'OPENAI_API_KEY', 'OPENROUTER_API_KEY'];

export interface McpParts {
  readonly config: Config;
  readonly credentials: Credentials;
  readonly adapters: RegistryFile['adapters'];
  readonly env: Env;
  readonly schemas: SchemaCompiler;
  readonly version: string;
  readonly clock: Clock;
  readonly log: Logger;
  readonly fetch?: typeof fetch;
  readonly relay?: TraceRelay;
}

/** Null when no server is configured and project files are not read. */
export function startMcp({ config, credentials, adapters, env, log, relay, ...rest }: McpParts): Mcp | null {
  const { project_files } = config.mcp;
  const some = Object.values(config.mcp_servers).some(({ enabled }) => enabled !== false);
  if (!some && !project_files) return null;
  const keys = new Set([...KNOWN_KEYS, ...[...adapters].map(([id, adapter]) => credentials.keyName(id, adapter))]);
  for (const { secret_env } of config.notify) if (secret_env !== null) keys.add(secret_env);
  const keyValues = [...keys].flatMap((name) => env[name] || []);
  const mcp = createMcp({
    ...rest,
    ...(relay ? { fetch: relay.fetch(rest.fetch ?? fetch) } : {}),
    servers: config.mcp_servers,
    projectFile: project_files ? (workspace) => readMcpFile(workspace, log) : null,
    env,
    // A whole header, or an address with a key in it, holds the key too.
    isWithheld: (name) =>
      name.startsWith('METIS_') || keys.has(name) || keyValues.some((key) => env[name]?.includes(key)),
    log,
  });
  return relay?.mcp(mcp) ?? mcp;
}
