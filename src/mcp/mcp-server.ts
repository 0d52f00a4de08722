// The MCP server: delegation as tools, for any agent that calls tools (19 §3).
import {
  type CallToolRequest,
  CLIENT_CAPABILITIES_META_KEY,
  CLIENT_INFO_META_KEY,
  type ClientCapabilities,
  createRequestStateCodec,
  inputResponse,
  type McpServerFactory,
  ProtocolError,
  ProtocolErrorCode,
  type RequestStateCodec,
  Server,
  type ServerContext,
} from '@modelcontextprotocol/server';
import { ApiError, type NewDelegation } from '#client/client.ts';
import { resultOf } from '#protocol/api/worker-bodies.ts';
import { fromPusd, sumPusd, toPusd } from '#protocol/money.ts';
import { type Answer, type Asked, type Asking, delegate, goOn } from './delegate-call.ts';
import { delegated, failed, OWN_NAMES, running, structuredResult, toolsOf } from './mcp-tools.ts';
import type { Root, World } from './root-session.ts';
import { delegationOfWorker, delegations, watchWorker } from './watch-worker.ts';

const INSTRUCTIONS =
  'Delegates self-contained tasks to cheaper workers in this workspace, with exact cost and a limit that holds. Say everything a worker needs in its task.';
/** An answer may come as late as the question stays open. */
const STATE_SECONDS = 3600;
const MAX_WAIT_SECONDS = 3600;
const PRODUCT = /^[\x20-\x7e]{1,200}$/;

type Input = Readonly<Record<string, unknown>>;

/**
 * Signs what clients of the stateless protocol carry for us.
 * @param key null = one of this process
 */
export function createStates({ uuid }: World, key: string | null = null): RequestStateCodec<Asked> {
  return createRequestStateCodec<Asked>({ key: key ?? `${uuid()}${uuid()}`, ttlSeconds: STATE_SECONDS });
}

/** @param rootFor the session of the connection, or of the request */
export function mcpServer(
  version: string,
  states: RequestStateCodec<Asked>,
  rootFor: (context: Parameters<McpServerFactory>[0]) => Root,
): McpServerFactory {
  return (context) => {
    const root = rootFor(context);
    const server = new Server(
      { name: 'metis', title: 'Metis', version },
      {
        capabilities: { tools: {} },
        instructions: INSTRUCTIONS,
        requestState: { verify: states.verify },
      },
    );
    server.setRequestHandler('tools/list', async () => ({ tools: toolsOf(await callable(root)) }));
    server.setRequestHandler('tools/call', async (request, ctx) => {
      const modern = context.era === 'modern';
      root.named(productOf(modern, server, ctx));
      const asking = askingOf(modern, server, ctx, states);
      return call(root, ctx, request.params, asking).catch((error: unknown) => refusal(root, error));
    });
    return server;
  };
}

/** Printable and of a decent length, else it counts as not said. */
function productOf(modern: boolean, server: Server, { mcpReq }: ServerContext): string | null {
  const envelope = mcpReq.envelope as { readonly [CLIENT_INFO_META_KEY]?: { readonly name?: unknown } } | undefined;
  const name = (modern ? envelope?.[CLIENT_INFO_META_KEY] : server.getClientVersion())?.name;
  return typeof name === 'string' && PRODUCT.test(name) ? name : null;
}

async function callable({ client, workspace, opened }: Root) {
  const session = opened();
  const { workers } = await client.listWorkerDefinitions({
    workspace_path: workspace,
    callable: true,
    limit: 200,
    ...(session === null ? {} : { session_id: session }),
  });
  return workers;
}

function askingOf(
  modern: boolean,
  server: Server,
  { mcpReq }: ServerContext,
  states: RequestStateCodec<Asked>,
): Asking {
  const declared: ClientCapabilities | undefined = modern
    ? (mcpReq.envelope as { readonly [CLIENT_CAPABILITIES_META_KEY]?: ClientCapabilities } | undefined)?.[
        CLIENT_CAPABILITIES_META_KEY
      ]
    : server.getClientCapabilities();
  const { elicitation } = declared ?? {};
  // Without naming its modes a client means forms.
  const forms = elicitation !== undefined && (elicitation.form !== undefined || elicitation.url === undefined);
  if (!forms) return { how: 'not' };
  return modern ? { how: 'between', states } : { how: 'during' };
}

async function call(
  root: Root,
  ctx: ServerContext,
  { name, arguments: given = {} }: CallToolRequest['params'],
  asking: Asking,
): Promise<Answer> {
  const { wait_seconds, ...input } = given as Input;
  const seconds = secondsOf(wait_seconds);
  if (name === 'cost') return cost(root, only(input, []));
  if (name === 'workers') return workers(root, ctx, only(input, ['worker_session_id']), seconds);
  const worker = name === 'delegate' ? null : name;
  if (worker !== null && !(await callable(root)).some((known) => known.name === worker && !OWN_NAMES.includes(worker)))
    throw invalid(`there is no tool ${name.slice(0, 64)}`);
  const state = ctx.mcpReq.requestState<Asked>();
  if (typeof state === 'object') {
    const response = inputResponse(ctx.mcpReq.inputResponses, 'approval');
    const answer = response.kind === 'elicit' ? { action: response.action, content: contentOf(response) } : null;
    return goOn(root, ctx, state, { answer, seconds, asking });
  }
  const who = worker ?? `${String(input.tier)} worker`;
  const body = worker === null ? only(input, DELEGATE_KEYS) : { worker, ...only(input, ['input', 'attachments']) };
  return delegate(root, ctx, body as NewDelegation, { who, seconds, asking });
}

function contentOf(response: object): Input | undefined {
  return 'content' in response ? (response.content as Input | undefined) : undefined;
}

const DELEGATE_KEYS = [
  'tier',
  'task',
  'context',
  'output_schema',
  'allowed_tools',
  'max_tokens',
  'timeout_seconds',
  'max_cost_usd',
] as const;

/** The server would tell of a key that the tool does not have by names that are not the tool's. */
function only(input: Input, keys: readonly string[]): Input {
  const unknown = Object.keys(input).find((key) => !keys.includes(key));
  if (unknown !== undefined)
    throw invalid(`${unknown.slice(0, 64)}: unknown key; known are ${keys.join(', ') || 'none'}`);
  return input;
}

function secondsOf(value: unknown): number | null {
  if (value === undefined || value === null) return null;
  if (Number.isInteger(value) && Number(value) >= 1 && Number(value) <= MAX_WAIT_SECONDS) return Number(value);
  throw invalid(`wait_seconds: must be a whole number from 1 to ${MAX_WAIT_SECONDS}`);
}

async function cost(root: Root, _input: Input): Promise<Answer> {
  const session = await root.client.getSession(await root.session());
  const { cost_so_far_usd: own_usd, workers_cost_usd: workers_usd, budget } = session;
  return structuredResult({
    own_usd,
    workers_usd,
    total_usd: fromPusd(sumPusd([toPusd(own_usd), toPusd(workers_usd)])),
    remaining_usd: budget?.remaining_usd ?? null,
  });
}

async function workers(root: Root, ctx: ServerContext, input: Input, seconds: number | null): Promise<Answer> {
  const session = await root.session();
  const { worker_session_id: worker } = input;
  if (worker === undefined) {
    const rows = [];
    for await (const d of delegations(root.client, session)) {
      const { worker_session_id, status, tier, worker_name, usage_summary, error_message, dropped_tools } = d;
      rows.push({
        worker_session_id,
        status,
        tier,
        worker_name,
        error: error_message,
        cost_usd: usage_summary.cost_usd,
        dropped_tools,
      });
    }
    // The newest are what one asks about.
    return structuredResult({ workers: rows.slice(-200) });
  }
  if (typeof worker !== 'string') throw invalid('worker_session_id: must be a string');
  const find = () => delegationOfWorker(root.client, session, worker);
  let found = await find().catch((error: unknown) => {
    if (error instanceof ApiError && error.status < 500) return null;
    throw error;
  });
  if (found === null) return failed('not_found', 'no worker of this session has that id');
  if (found.ended_at === null && seconds !== null) {
    const enough = AbortSignal.any([ctx.mcpReq.signal, AbortSignal.timeout(seconds * 1000)]);
    await watchWorker(root.client, worker, { stands() {}, seen() {}, asked: () => false, answered() {} }, enough);
    found = (await find()) ?? found;
  }
  return found.ended_at === null ? running(worker) : delegated(resultOf(found));
}

function invalid(message: string): ProtocolError {
  return new ProtocolError(ProtocolErrorCode.InvalidParams, message);
}

function refusal(root: Root, error: unknown): Answer {
  if (!(error instanceof ApiError)) {
    if (error instanceof TypeError)
      return failed('server_unreachable', `no Metis server answers at ${root.dashboard()}`);
    throw error;
  }
  if (error.code !== 'validation_error') return failed(error.code, error.message);
  const issues = (error.details.issues ?? []) as readonly { readonly path: string; readonly message: string }[];
  throw invalid(
    issues.map(({ path, message }) => (path === '' ? message : `${path}: ${message}`)).join('\n') || error.message,
  );
}
