// The session above one MCP client's delegations, opened when it is first needed (19 §3.2).
import { createMetisClient, type MetisClient, type NewSession } from '#client/client.ts';
import type { ServerAddress } from '#client/request.ts';
import type { Clock } from '#protocol/clock.ts';

/** Time and chance. */
export interface World {
  readonly clock: Clock;
  /** A new unguessable id. */
  readonly uuid: () => string;
}

export interface Root {
  readonly world: World;
  readonly client: MetisClient;
  readonly workspace: string;
  /** Where a person answers what waits. */
  readonly dashboard: () => string;
  session(): Promise<string>;
  /** What the program calls itself that the session is opened for. */
  named(client: string | null): void;
  /** The session as far as it is open. */
  readonly opened: () => string | null;
  /** Does work that outlives its request, and is waited for when the door closes. Its failure is nobody's any more. */
  behind(work: Promise<unknown>): void;
  settled(): Promise<void>;
}

export function createRoot(world: World, server: ServerAddress, body: NewSession): Root {
  const client = createMetisClient(server);
  let opening: Promise<string> | null = null;
  let id: string | null = null;
  let product: string | null = null;
  const running = new Set<Promise<unknown>>();
  return {
    world,
    client,
    workspace: body.workspace_path,
    dashboard: () => server.baseUrl,
    session() {
      opening ??= client.createSession({ ...body, client: product }).then(
        (session) => {
          id = session.id;
          return session.id;
        },
        (error: unknown) => {
          opening = null;
          throw error;
        },
      );
      return opening;
    },
    named: (name) => {
      product = name;
    },
    opened: () => id,
    behind(work) {
      const quiet = work.catch(() => {}).finally(() => running.delete(quiet));
      running.add(quiet);
    },
    settled: async () => {
      while (running.size > 0) await Promise.all(running);
    },
  };
}
