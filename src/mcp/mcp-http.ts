// The MCP server over streamable HTTP: the stateless and the older protocol at one address (19 §3.2).
import { createHash } from 'node:crypto';
import {
  createMcpHandler,
  isLegacyRequest,
  type McpServerFactory,
  WebStandardStreamableHTTPServerTransport,
} from '@modelcontextprotocol/server';
import type { NewSession } from '#client/client.ts';
import type { ServerAddress } from '#client/request.ts';
import { isoTime } from '#protocol/clock.ts';
import { createStates, mcpServer } from './mcp-server.ts';
import { createRoot, type Root, type World } from './root-session.ts';

export interface HttpDoor {
  /**
   * @param request its signal aborts when its answer is whole, or nobody reads it any more
   * @param token of its caller, which its requests to the server are made with
   */
  fetch(request: Request, token: string | null, body: unknown): Promise<Response>;
  close(): Promise<void>;
}

const SESSION_HEADER = 'mcp-session-id';
const MAX_CONNECTIONS = 1000;
/** Of one caller; without tokens all are one. */
const MAX_OF_CALLER = 100;
const IDLE_MS = 60 * 60 * 1000;
const MAX_PATH = 4096;
const MAX_ROOTS = 1000;

/** A connection of the older protocols, which have one. */
interface Connection {
  readonly transport: WebStandardStreamableHTTPServerTransport;
  readonly caller: string;
  readonly root: Root;
  /**
   * Requests whose answers are not whole yet, with the id of a call that came alone; held here, their signals go on
   * telling of their end.
   */
  readonly open: Map<Request, string | number | null>;
  usedAt: number;
}

/** The server of the door. */
export interface DoorServer {
  /** Where it answers. */
  address(): string;
  /** Its id among several; '' = it is alone. */
  node(): string;
  /** What signs what clients carry between two calls; null = a key of this process. */
  readonly key: string | null;
}

export function createHttpDoor(world: World, version: string, { address, node, key }: DoorServer): HttpDoor {
  const states = createStates(world, key);
  const connections = new Map<string, Connection>();
  /** Of the stateless protocol: by caller, workspace and day, newest last. */
  const roots = new Map<string, Root>();

  function rootOf(token: string | null, body: NewSession): Root {
    const server: ServerAddress = {
      get baseUrl() {
        return address();
      },
      token,
    };
    return createRoot(world, server, body);
  }

  const modern = createMcpHandler(
    mcpServer(version, states, ({ requestInfo, authInfo }) => {
      const token = authInfo?.token || null;
      const place = placeOf(requestInfo!.url);
      if ('fault' in place) throw new Error(place.fault);
      const day = isoTime(world.clock.now()).slice(0, 10);
      const client_ref = `mcp ${hash(token ?? '')} ${hash(place.workspace_path)} ${day}`;
      const known = roots.get(client_ref) ?? rootOf(token, { ...place, client_ref });
      roots.delete(client_ref);
      roots.set(client_ref, known);
      for (const oldest of roots.keys()) {
        if (roots.size <= MAX_ROOTS) break;
        roots.delete(oldest);
      }
      return known;
    }),
    { legacy: 'reject' },
  );

  function forgetIdle(): void {
    const before = world.clock.monotonic() - IDLE_MS;
    for (const [id, connection] of connections) {
      if (connection.open.size > 0 || connection.usedAt > before) continue;
      drop(id, connection);
    }
  }

  function drop(id: string, { transport }: Connection): void {
    connections.delete(id);
    void transport.close();
  }

  /** False where each is in use. Whoever comes back to one that was dropped is told to initialize anew. */
  function makeRoom(caller: string): boolean {
    const own = [...connections].filter(([, one]) => one.caller === caller);
    const among = own.length >= MAX_OF_CALLER ? own : connections.size >= MAX_CONNECTIONS ? [...connections] : null;
    if (among === null) return true;
    const idle = among.filter(([, { open }]) => open.size === 0).toSorted(([, a], [, b]) => a.usedAt - b.usedAt);
    if (idle[0] === undefined) return false;
    drop(...idle[0]);
    return true;
  }

  async function opened(request: Request, token: string | null, body: unknown): Promise<Response> {
    const place = placeOf(request.url);
    if ('fault' in place) return refused(400, -32602, place.fault);
    forgetIdle();
    const caller = hash(token ?? '');
    if (!makeRoom(caller)) return refused(503, -32000, 'too many sessions are in use; end one');
    const root = rootOf(token, place);
    const transport = new WebStandardStreamableHTTPServerTransport({
      sessionIdGenerator: () => (node() === '' ? world.uuid() : `${world.uuid()}.${node()}`),
      onsessioninitialized: (id) => {
        connections.set(id, { transport, caller, root, open: new Map(), usedAt: world.clock.monotonic() });
      },
      onsessionclosed: (id) => {
        connections.delete(id);
      },
    });
    const factory: McpServerFactory = mcpServer(version, states, () => root);
    const server = await factory({ era: 'legacy', requestInfo: request });
    await server.connect(transport);
    return transport.handleRequest(request, { parsedBody: body });
  }

  async function legacy(request: Request, token: string | null, body: unknown): Promise<Response> {
    const id = request.headers.get(SESSION_HEADER);
    if (id === null) return opened(request, token, body);
    const connection = connections.get(id);
    // Somebody else's is as good as none.
    if (connection === undefined || connection.caller !== hash(token ?? ''))
      return refused(404, -32001, 'no session with this id; initialize anew');
    connection.open.set(request, idOf(body));
    const over = () => {
      connection.open.delete(request);
      connection.usedAt = world.clock.monotonic();
    };
    if (request.signal.aborted) over();
    else request.signal.addEventListener('abort', over, { once: true });
    const answer = await connection.transport.handleRequest(request, { parsedBody: body });
    const cancelled = cancelledBy(body);
    // Nothing answers it any more, and the library would hold its stream open for as long as its client does.
    if (cancelled !== null && [...connection.open.values()].includes(cancelled))
      connection.transport.closeSSEStream(cancelled);
    return answer;
  }

  return {
    async fetch(request, token, body) {
      if (await isLegacyRequest(request, body)) return legacy(request, token, body);
      const place = placeOf(request.url);
      if ('fault' in place) return refused(400, -32602, place.fault);
      return modern.fetch(request, { parsedBody: body, authInfo: { token: token ?? '', clientId: '', scopes: [] } });
    },
    async close() {
      await modern.close();
      const open = [...connections.values()];
      connections.clear();
      await Promise.all(open.map(({ transport }) => transport.close()));
      await Promise.all([...roots.values(), ...open.map(({ root }) => root)].map((root) => root.settled()));
    },
  };
}

/** The session that an address asks for: `/mcp?workspace=PATH&budget_usd=N`. */
function placeOf(url: string): NewSession | { readonly fault: string } {
  const { searchParams } = new URL(url);
  const workspace = searchParams.get('workspace');
  const budget = searchParams.get('budget_usd');
  if (workspace === null || workspace === '' || workspace.length > MAX_PATH)
    return { fault: 'workspace: is required, as in /mcp?workspace=/path/of/the/project' };
  if (budget !== null && !/^\d{1,6}(\.\d{1,6})?$/.test(budget))
    return { fault: 'budget_usd: must be an amount in US dollars such as 0.50' };
  return { workspace_path: workspace, door: 'mcp', on_reached: 'stop', max_cost_usd: budget };
}

/** Null for what is no single call. */
function idOf(body: unknown): string | number | null {
  const { id, method } = (body ?? {}) as { readonly id?: unknown; readonly method?: unknown };
  return method !== undefined && (typeof id === 'string' || typeof id === 'number') ? id : null;
}

/** The call that a message takes back. */
function cancelledBy(body: unknown): string | number | null {
  const { method, params } = (body ?? {}) as { readonly method?: unknown; readonly params?: { requestId?: unknown } };
  return method === 'notifications/cancelled' ? idOf({ id: params?.requestId, method }) : null;
}

function refused(status: number, code: number, message: string): Response {
  return Response.json({ jsonrpc: '2.0', id: null, error: { code, message } }, { status });
}

function hash(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 16);
}
