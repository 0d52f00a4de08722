// What answers at `/mcp`, loaded by the first who asks (19 §3).
import { randomUUID } from 'node:crypto';
import type { Config } from '../../domain/config.ts';
import type { HttpDeps } from '../../http/deps.ts';
import type { Clock } from '../../kernel/clock.ts';
import type { HttpDoor } from '../../mcp/http.ts';
import { askedAt } from '../start.ts';

export interface McpDoor {
  /** Undefined where nothing is to answer. */
  readonly fetch: HttpDeps['mcp'];
  /** The server listens, at this address. */
  opens(url: string): void;
  /** Its calls end; their workers go on with the next start. */
  close(): Promise<void>;
}

export function createMcpDoor(clock: Clock, version: string, { mcp, server }: Config): McpDoor {
  let address = '';
  let door: Promise<HttpDoor> | null = null;
  const open = async () => {
    const { createHttpDoor } = await import('../../mcp/http.ts');
    return createHttpDoor({ clock, uuid: randomUUID }, version, () => address);
  };
  const fetch: HttpDeps['mcp'] = async (request, token, body) => {
    door ??= open();
    return (await door).fetch(request, token, body);
  };
  return {
    fetch: mcp.serve ? fetch : undefined,
    opens: (url) => {
      address = askedAt(server.host, new URL(url).port);
    },
    close: async () => (await door)?.close(),
  };
}
