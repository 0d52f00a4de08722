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
  /** The address where pending approvals are answered. */
  readonly dashboard: () => string;
  session(): Promise<string>;
  /** Sets the name of the client that the session is opened for. */
  setClient(client: string | null): void;
  /** The id of the session; null until it is open. */
  readonly sessionId: () => string | null;
  /** Runs work that outlives its request. Closing the server waits for it; its failure is ignored. */
  runInBackground(work: Promise<unknown>): void;
  waitForBackground(): Promise<void>;
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
    setClient: (name) => {
      product = name;
    },
    sessionId: () => id,
    runInBackground(work) {
      const quiet = work.catch(() => {}).finally(() => running.delete(quiet));
      running.add(quiet);
    },
    waitForBackground: async () => {
      while (running.size > 0) await Promise.all(running);
    },
  };
}
