// The MCP server over streamable HTTP: the stateless and the older protocol at one address (19 §3.2).
import {
  createMcpHandler,
  isLegacyRequest,
  type McpServerFactory,
  WebStandardStreamableHTTPServerTransport,
} from '@modelcontextprotocol/server';
import type { NewSession } from '#client/client.ts';
import type { ServerAddress } from '#client/request.ts';
import { isoTime } from '#protocol/clock.ts';
import { mcpServer } from './mcp-server.ts';
import { createRoot, hashText, makeClientRef, type Root, type World } from './root-session.ts';

export interface HttpDoor {
  /**
   * @param request its signal aborts when its answer is complete or its client has left
   * @param token of the caller; requests to the Metis server carry it
   */
  fetch(request: Request, token: string | null, body: unknown): Promise<Response>;
  close(): Promise<void>;
}

const SESSION_HEADER = 'mcp-session-id';
const MAX_CONNECTIONS = 1000;
/** Connections of one caller; without tokens all clients count as one caller. */
const MAX_CONNECTIONS_PER_CALLER = 100;
const IDLE_MS = 60 * 60 * 1000;
const MAX_PATH = 4096;
const MAX_ROOTS = 1000;

/** A connection of the older protocols; the stateless one has none. */
interface Connection {
  readonly transport: WebStandardStreamableHTTPServerTransport;
  readonly caller: string;
  readonly root: Root;
  /**
   * Requests whose answers are not complete yet, with the id of a single call. A reference held here keeps their signals
   * reporting the end.
   */
  readonly open: Map<Request, string | number | null>;
  usedAt: number;
}

/** The Metis server that this MCP server calls. */
export interface DoorServer {
  /** Its base URL. */
  address(): string;
  /** Its node id in a cluster; '' = a single server. */
  node(): string;
  /** Signs the state that clients carry between two calls; null = a secret of this process. */
  readonly secret: string | null;
}

export function createHttpDoor(world: World, version: string, { address, node, ...shared }: DoorServer): HttpDoor {
  const secret = shared.secret ?? `${world.uuid()}${world.uuid()}`;
  const connections = new Map<string, Connection>();
  /** Root sessions of the stateless protocol by caller, workspace and day, newest last. */
  const roots = new Map<string, Root>();

  function createCallerRoot(token: string | null, body: NewSession): Root {
    const server: ServerAddress = {
      get baseUrl() {
        return address();
      },
      token,
    };
    return createRoot(world, server, body);
  }

  const modern = createMcpHandler(
    mcpServer(version, secret, ({ requestInfo, authInfo }) => {
      const token = authInfo?.token || null;
      const place = parseAddress(requestInfo!.url);
      if ('fault' in place) throw new Error(place.fault);
      const day = isoTime(world.clock.now()).slice(0, 10);
      const client_ref = makeClientRef(token, place.workspace_path, day);
      const known = roots.get(client_ref) ?? createCallerRoot(token, { ...place, client_ref });
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

  function closeIdle(): void {
    const before = world.clock.monotonic() - IDLE_MS;
    for (const [id, connection] of connections) {
      if (connection.open.size > 0 || connection.usedAt > before) continue;
      closeConnection(id, connection);
    }
  }

  function closeConnection(id: string, { transport }: Connection): void {
    connections.delete(id);
    void transport.close();
  }

  /** False where every connection is in use. A client of a closed connection gets an error that asks it to initialize again. */
  function makeRoomForCaller(caller: string): boolean {
    const own = [...connections].filter(([, one]) => one.caller === caller);
    const isCallerFull = own.length >= MAX_CONNECTIONS_PER_CALLER;
    if (!isCallerFull && connections.size < MAX_CONNECTIONS) return true;
    const idle = (isCallerFull ? own : [...connections])
      .filter(([, { open }]) => open.size === 0)
      .toSorted(([, a], [, b]) => a.usedAt - b.usedAt);
    if (idle[0] === undefined) return false;
    closeConnection(...idle[0]);
    return true;
  }

  async function openConnection(request: Request, token: string | null, body: unknown): Promise<Response> {
    const place = parseAddress(request.url);
    if ('fault' in place) return toErrorResponse(400, -32602, place.fault);
    closeIdle();
    const caller = hashText(token ?? '');
    if (!makeRoomForCaller(caller)) return toErrorResponse(503, -32000, 'too many sessions are in use; end one');
    const client_ref = makeClientRef(token, place.workspace_path, world.uuid());
    const root = createCallerRoot(token, { ...place, client_ref });
    const transport = new WebStandardStreamableHTTPServerTransport({
      sessionIdGenerator: () => (node() === '' ? world.uuid() : `${world.uuid()}.${node()}`),
      onsessioninitialized: (id) => {
        connections.set(id, { transport, caller, root, open: new Map(), usedAt: world.clock.monotonic() });
      },
      onsessionclosed: (id) => {
        connections.delete(id);
      },
    });
    const factory: McpServerFactory = mcpServer(version, secret, () => root);
    const server = await factory({ era: 'legacy', requestInfo: request });
    await server.connect(transport);
    return transport.handleRequest(request, { parsedBody: body });
  }

  async function handleLegacy(request: Request, token: string | null, body: unknown): Promise<Response> {
    const id = request.headers.get(SESSION_HEADER);
    if (id === null) return openConnection(request, token, body);
    const connection = connections.get(id);
    // A connection of another caller counts as unknown.
    if (connection === undefined || connection.caller !== hashText(token ?? ''))
      return toErrorResponse(404, -32001, 'no session with this id; initialize again');
    connection.open.set(request, readRequestId(body));
    const markOver = () => {
      connection.open.delete(request);
      connection.usedAt = world.clock.monotonic();
    };
    if (request.signal.aborted) markOver();
    else request.signal.addEventListener('abort', markOver, { once: true });
    const answer = await connection.transport.handleRequest(request, { parsedBody: body });
    const cancelled = readCancelledId(body);
    // A cancelled call gets no answer, and the library would keep its stream open as long as the client does.
    if (cancelled !== null && [...connection.open.values()].includes(cancelled))
      connection.transport.closeSSEStream(cancelled);
    return answer;
  }

  return {
    async fetch(request, token, body) {
      if (await isLegacyRequest(request, body)) return handleLegacy(request, token, body);
      const place = parseAddress(request.url);
      if ('fault' in place) return toErrorResponse(400, -32602, place.fault);
      return modern.fetch(request, { parsedBody: body, authInfo: { token: token ?? '', clientId: '', scopes: [] } });
    },
    async close() {
      await modern.close();
      const open = [...connections.values()];
      connections.clear();
      await Promise.all(open.map(({ transport }) => transport.close()));
      await Promise.all([...roots.values(), ...open.map(({ root }) => root)].map((root) => root.waitForBackground()));
    },
  };
}

/** The session of an address such as `/mcp?workspace=PATH&budget_usd=N`. */
function parseAddress(url: string): NewSession | { readonly fault: string } {
  const { searchParams } = new URL(url);
  const workspace = searchParams.get('workspace');
  const budget = searchParams.get('budget_usd');
  if (workspace === null || workspace === '' || workspace.length > MAX_PATH)
    return { fault: 'workspace: is required, as in /mcp?workspace=/path/of/the/project' };
  if (budget !== null && !/^\d{1,6}(\.\d{1,6})?$/.test(budget))
    return { fault: 'budget_usd: must be an amount in US dollars such as 0.50' };
  return { workspace_path: workspace, door: 'mcp', on_reached: 'stop', max_cost_usd: budget };
}

/** Null unless the body is a single call. */
function readRequestId(body: unknown): string | number | null {
  const { id, method } = (body ?? {}) as { readonly id?: unknown; readonly method?: unknown };
  if (method === undefined) return null;
  if (typeof id === 'string' || typeof id === 'number') return id;
  return null;
}

/** The id of the call that a message cancels. */
function readCancelledId(body: unknown): string | number | null {
  const { method, params } = (body ?? {}) as { readonly method?: unknown; readonly params?: { requestId?: unknown } };
  if (method !== 'notifications/cancelled') return null;
  return readRequestId({ id: params?.requestId, method });
}

function toErrorResponse(status: number, code: number, message: string): Response {
  return Response.json({ jsonrpc: '2.0', id: null, error: { code, message } }, { status });
}
