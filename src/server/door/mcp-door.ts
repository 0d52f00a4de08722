// What answers at `/mcp`, loaded by the first who asks (19 §3).
import { createHash, randomUUID } from 'node:crypto';
import type { Trees } from '#core/ports/trees.ts';
import type { HttpDeps } from '#http/http-app.ts';
import type { HttpDoor } from '#mcp/mcp-http.ts';
import type { Clock } from '#protocol/clock.ts';
import type { Config } from '#protocol/config.ts';
import { canonicalJson } from '#protocol/text/canonical-json.ts';
import { toClientUrl } from '../start.ts';

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
      key: deriveSharedKey(config),
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
function deriveSharedKey({ database, cluster, server }: Config): string | null {
  if (database.url === null) return null;
  const { username, password, pathname } = new URL(database.url);
  const known = [cluster.name, username, password, pathname, [...server.auth_tokens].sort()];
  return createHash('sha256')
    .update(`mcp ${canonicalJson(known)}`)
    .digest('hex');
}
