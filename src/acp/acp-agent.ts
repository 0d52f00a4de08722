// The ACP agent: an editor's sessions are sessions of the server (19 §4).
import {
  type AgentApp,
  type AgentContext,
  agent,
  type McpServer,
  methods,
  PROTOCOL_VERSION,
  RequestError,
} from '@agentclientprotocol/sdk';
import { ApiError, type MetisClient, type Model, type Session } from '#client/client.ts';
import type { Clock } from '#protocol/clock.ts';
import { type OpenSession, openSession } from './open-session.ts';
import { listOptions, parseOption } from './session-options.ts';

export interface AgentParts {
  readonly client: MetisClient;
  readonly version: string;
  /** A new unguessable id. */
  readonly uuid: () => string;
  readonly onError: (error: unknown) => void;
  readonly clock: Clock;
}

export interface Agent {
  readonly app: AgentApp;
  /** Cancels open prompts and stops watching the sessions. */
  close(): Promise<void>;
}

const UNSUPPORTED = ['modes', "the editor's files", 'terminals', 'mcpServers', 'edited arguments', 'protocol 2'];
const RESOURCE_NOT_FOUND = -32002;
/** The name of an editor, as far as it can be stored. */
const PRODUCT = /^[\x20-\x7e]{1,200}$/;

export function createAgent({ client, version, uuid, onError, clock }: AgentParts): Agent {
  const open = new Map<string, OpenSession>();
  let product: string | null = null;
  let models: Promise<readonly Model[]> | null = null;
  const loadModels = () => {
    models ??= client.listModels().then(
      (list) => list.models,
      (error: unknown) => {
        models = null;
        throw error;
      },
    );
    return models;
  };

  async function watch(
    editor: AgentContext,
    session: Session,
    { replayed, servers }: { readonly replayed: boolean; readonly servers: readonly McpServer[] },
  ) {
    const all = await loadModels();
    open.get(session.id)?.leave();
    const watched = openSession({
      client,
      editor,
      session,
      models: all,
      replayed,
      notice: buildNotice(servers),
      onError,
      clock,
    });
    open.set(session.id, watched);
    await watched.ready;
    return listOptions(session, all);
  }
  const fetchSession = async (id: string) =>
    client.getSession(id).catch((error: unknown) => Promise.reject(toNotFound(id, error)));
  function requireOpen(id: string): OpenSession {
    const session = open.get(id);
    if (session === undefined) throw new RequestError(RESOURCE_NOT_FOUND, `no session ${id} is open`);
    return session;
  }

  const app = agent({ name: 'metis' })
    .onRequest(methods.agent.initialize, ({ params }) => {
      const { name } = params.clientInfo ?? {};
      product = name !== undefined && PRODUCT.test(name) ? name : null;
      return {
        protocolVersion: PROTOCOL_VERSION,
        agentInfo: { name: 'metis', title: 'Metis', version },
        agentCapabilities: {
          loadSession: true,
          promptCapabilities: { image: true, embeddedContext: true, audio: false },
          sessionCapabilities: { list: {}, resume: {}, close: {} },
        },
        authMethods: [],
        _meta: { metis: { not_done: UNSUPPORTED } },
      };
    })
    .onRequest(methods.agent.session.new, ({ params, client: editor }) =>
      translateErrors(async () => {
        const session = await client.createSession({
          workspace_path: params.cwd,
          door: 'acp',
          client: product,
          on_reached: 'stop',
        });
        const options = await watch(editor, session, { replayed: false, servers: params.mcpServers });
        return { sessionId: session.id, configOptions: options };
      }),
    )
    .onRequest(methods.agent.session.load, ({ params, client: editor }) =>
      translateErrors(async () => {
        const session = await fetchSession(params.sessionId);
        return { configOptions: await watch(editor, session, { replayed: true, servers: params.mcpServers }) };
      }),
    )
    .onRequest(methods.agent.session.resume, ({ params, client: editor }) =>
      translateErrors(async () => {
        const session = await fetchSession(params.sessionId);
        const servers = params.mcpServers ?? [];
        return { configOptions: await watch(editor, session, { replayed: false, servers }) };
      }),
    )
    .onRequest(methods.agent.session.list, ({ params }) =>
      translateErrors(async () => {
        const page = await client.listSessions({
          limit: 50,
          ...(params.cwd && { workspace_path: params.cwd }),
          ...(params.cursor && { cursor: params.cursor }),
        });
        const shown = page.sessions.filter(({ door, ended_at }) => door !== 'gateway' && ended_at === null);
        return {
          sessions: shown.map(({ id, workspace_path, title, updated_at }) => ({
            sessionId: id,
            cwd: workspace_path,
            title,
            updatedAt: updated_at,
          })),
          nextCursor: page.next_cursor,
        };
      }),
    )
    .onRequest(methods.agent.session.close, ({ params }) =>
      translateErrors(async () => {
        const session = requireOpen(params.sessionId);
        await session.cancel();
        session.leave();
        open.delete(params.sessionId);
        return {};
      }),
    )
    .onRequest(methods.agent.session.setConfigOption, ({ params }) =>
      translateErrors(async () => {
        requireOpen(params.sessionId);
        await client.updateSession(params.sessionId, parseOption(params.configId, params.value));
        return { configOptions: listOptions(await fetchSession(params.sessionId), await loadModels()) };
      }),
    )
    .onRequest(methods.agent.session.prompt, ({ params, signal }) =>
      translateErrors(async () => {
        const session = requireOpen(params.sessionId);
        const cancel = () => void session.cancel().catch(onError);
        signal.addEventListener('abort', cancel, { once: true });
        try {
          return await session.prompt(params.prompt, uuid());
        } finally {
          signal.removeEventListener('abort', cancel);
        }
      }),
    )
    .onNotification(methods.agent.session.cancel, async ({ params }) => {
      await open.get(params.sessionId)?.cancel().catch(onError);
    });

  return {
    app,
    async close() {
      await Promise.allSettled([...open.values()].map((session) => session.cancel()));
      for (const session of open.values()) session.leave();
    },
  };
}

/** Translates errors of the server into errors of the protocol. */
async function translateErrors<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof ApiError) throw toRequestError(error);
    if (error instanceof TypeError) throw RequestError.internalError({ code: 'server_unreachable' }, error.message);
    throw error;
  }
}

function toRequestError({ status, code, message, details }: ApiError): RequestError {
  const data = { code, ...(details.issues !== undefined && { issues: details.issues }) };
  if ([400, 404, 422].includes(status)) return RequestError.invalidParams(data, message);
  return RequestError.internalError(data, message);
}

function toNotFound(id: string, error: unknown): unknown {
  if (!(error instanceof ApiError && (error.code === 'not_found' || error.code === 'validation_error'))) return error;
  return new RequestError(RESOURCE_NOT_FOUND, `there is no session ${id.slice(0, 64)}`, { code: 'not_found' });
}

function buildNotice(servers: readonly McpServer[]): string | null {
  if (servers.length === 0) return null;
  const names = servers.map(({ name }) => name).join(', ');
  return `(The editor's MCP servers are not used here: ${names}. Configure them in mcp_servers instead.)\n\n`;
}
