// The session above one MCP client's delegations, opened when it is first needed (19 §3.2).
import { createHash } from 'node:crypto';
import { createMetisClient, type MetisClient, type NewSession, type Session } from '#client/client.ts';
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
  /** Of the caller; null without one. */
  readonly token: string | null;
  readonly workspace: string;
  /** The address where pending approvals are answered. */
  readonly dashboard: () => string;
  session(): Promise<string>;
  /** Whether the caller opened this top-level session, over whatever connection. */
  isOwnSession(session: Pick<Session, 'client_ref'>): boolean;
  /** Whether the session belongs to a client of the gateway too, under the client's own name. */
  readonly isShared: boolean;
  /** Sets the name of the client that the session is opened for. */
  setClient(client: string | null): void;
  /** The id of the session; null until it is open. */
  readonly sessionId: () => string | null;
  /** Runs work that outlives its request. Closing the server waits for it; its failure is ignored. */
  runInBackground(work: Promise<unknown>): void;
  waitForBackground(): Promise<void>;
}

/** The start of the `client_ref` of all sessions that a caller opens here. It outlives connections and restarts. */
function markCaller(token: string | null): string {
  return `mcp ${hashText(token ?? '')} `;
}

/**
 * The `client_ref` of a session that a caller opens for a workspace.
 * @param part distinguishes the sessions of one workspace
 */
export function makeClientRef(token: string | null, workspace: string, part: string): string {
  return `${markCaller(token)}${hashText(workspace)} ${part}`;
}

export function hashText(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 16);
}

export function createRoot(world: World, server: ServerAddress, body: NewSession): Root {
  const client = createMetisClient(server);
  const token = server.token ?? null;
  const mark = markCaller(token);
  const ownRef = body.client_ref ?? null;
  let opening: Promise<string> | null = null;
  let id: string | null = null;
  let product: string | null = null;
  const running = new Set<Promise<unknown>>();
  return {
    world,
    client,
    token,
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
    isOwnSession: ({ client_ref }) => client_ref !== null && (client_ref === ownRef || client_ref.startsWith(mark)),
    isShared: ownRef !== null && !ownRef.startsWith(mark),
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
