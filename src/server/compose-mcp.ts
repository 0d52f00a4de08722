// MCP in both directions: the servers that tools come from (09 §11), and the endpoint `/mcp` (19 §3).

import { createHash, randomUUID } from 'node:crypto';
import type { RegistryFile } from '#core/policy/registry/model-registry.ts';
import type { Logger } from '#core/ports/logger.ts';
import type { SchemaCompiler } from '#core/ports/tool-port.ts';
import type { Trees } from '#core/ports/tree-ownership.ts';
import type { HttpDeps } from '#http/http-app.ts';
import type { HttpDoor } from '#mcp/mcp-http.ts';
import type { Clock } from '#protocol/clock.ts';
import type { Config } from '#protocol/config.ts';
import { canonicalJson } from '#protocol/text/canonical-json.ts';
import { createMcp, type Mcp } from '#tools/mcp-client/workspace-servers.ts';
import { readMcpFile } from '#tools/workspace/workspaces.ts';
import { toClientUrl } from './context.ts';
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
    ...(relay && { fetch: relay.fetch(rest.fetch ?? fetch) }),
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

export interface McpDoor {
  /** Undefined where nothing is to answer. */
  readonly fetch: HttpDeps['mcp'];
  /** The server listens, at this address. */
  setAddress(url: string): void;
  /** Its calls end; their workers go on with the next start. */
  close(): Promise<void>;
}

export function createMcpDoor(clock: Clock, version: string, config: Config, trees: Trees): McpDoor {
  const { mcp, server } = config;
  let address = '';
  let door: Promise<HttpDoor> | null = null;
  const open = async () => {
    const { createHttpDoor } = await import('#mcp/mcp-http.ts');
    const of = {
      address: () => address,
      node: () => (trees.several ? trees.node : ''),
      secret: deriveSharedSecret(config),
    };
    return createHttpDoor({ clock, uuid: randomUUID }, version, of);
  };
  const fetch: HttpDeps['mcp'] = async (request, token, body) => {
    door ??= open();
    return (await door).fetch(request, token, body);
  };
  return {
    fetch: mcp.serve ? fetch : undefined,
    setAddress: (url) => {
      address = toClientUrl(server.host, new URL(url).port);
    },
    close: async () => (await door)?.close(),
  };
}

/** Of all nodes of a cluster, from what they alone know and share: a client's next call may come to another. */
function deriveSharedSecret({ database, cluster }: Config): string | null {
  if (database.url === null) return null;
  const { username, password, pathname } = new URL(database.url);
  const known = [cluster.name, username, password, pathname];
  return createHash('sha256')
    .update(`mcp ${canonicalJson(known)}`)
    .digest('hex');
}
