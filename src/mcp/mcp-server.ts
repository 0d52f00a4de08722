// The MCP server: delegation as tools, for any agent that calls tools (19 §3).
import { createHash } from 'node:crypto';
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
  type Server,
  type ServerContext,
} from '@modelcontextprotocol/server';
import { ApiError, type NewDelegation } from '#client/client.ts';
import { makeDelegationResult } from '#protocol/api/worker-bodies.ts';
import { fromPusd, sumPusd, toPusd } from '#protocol/money.ts';
import {
  type Answer,
  type ApprovalMode,
  type ApprovalState,
  type CallOptions,
  delegate,
  resumeDelegation,
} from './delegate-call.ts';
import {
  DELEGATE_KEYS,
  listTools,
  NAMED_KEYS,
  OWN_NAMES,
  REPORTS,
  toDelegationResult,
  toErrorResult,
  toRunningResult,
  toStructuredResult,
} from './mcp-tools.ts';
import type { Root } from './root-session.ts';
import {
  answerWithExtensionTask,
  createTask,
  hasTasksExtension,
  registerTaskRequests,
  TASK_AFTER_SECONDS,
  TASK_CAPABILITIES,
  TASK_EXTENSIONS,
  TaskServer,
} from './task-requests.ts';
import { type FormAnswer, findWorkerDelegation, listDelegations, waitUntilEnded } from './watch-worker.ts';

const INSTRUCTIONS =
  'Delegates self-contained tasks to cheaper workers in this workspace, with exact cost and a limit that holds. Say everything a worker needs in its task.';
/** As long as an approval request stays open. */
const STATE_SECONDS = 3600;
const MAX_WAIT_SECONDS = 3600;
const MAX_WORKERS_LISTED = 200;
const MAX_NAME_IN_ERROR = 64;
const PRODUCT = /^[\x20-\x7e]{1,200}$/;

type Input = Readonly<Record<string, unknown>>;

/**
 * Signs the state that clients of the stateless protocol carry, for each caller with a key of its own: one made for
 * another token, of the configuration or made at run time, counts as forged.
 * @param secret of this process or of all nodes
 */
function createStates(secret: string, token: string | null): RequestStateCodec<ApprovalState> {
  const key = createHash('sha256')
    .update(JSON.stringify([secret, token ?? '']))
    .digest('hex');
  return createRequestStateCodec<ApprovalState>({ key, ttlSeconds: STATE_SECONDS });
}

/**
 * @param secret signs the state that clients carry
 * @param rootFor returns the session of the connection or of the request
 */
export function mcpServer(
  version: string,
  secret: string,
  rootFor: (context: Parameters<McpServerFactory>[0]) => Root,
): McpServerFactory {
  return (context) => {
    const root = rootFor(context);
    const states = createStates(secret, root.token);
    const isModern = context.era === 'modern';
    const server = new TaskServer(
      { name: 'metis', title: 'Metis', version },
      {
        capabilities: { tools: {}, ...(isModern ? { extensions: TASK_EXTENSIONS } : { tasks: TASK_CAPABILITIES }) },
        instructions: INSTRUCTIONS,
        requestState: { verify: states.verify },
      },
    );
    server.setRequestHandler('tools/list', async () => ({ tools: listTools(await listCallableWorkers(root)) }));
    server.setRequestHandler('tools/call', async (request, ctx) => {
      root.setClient(readProduct(isModern, server, ctx));
      const asking = chooseApprovalMode(isModern, server, ctx, states);
      const tasks = chooseTaskMode(isModern, ctx, request.params);
      return callTool({ root, ctx, server }, request.params, { asking, tasks }).catch((error: unknown) =>
        toToolError(root, error),
      );
    });
    registerTaskRequests(server, root, {
      isModern,
      readMode: (ctx) => chooseApprovalMode(isModern, server, ctx, states),
    });
    return server;
  };
}

/** The client's name; null unless it is printable and short enough. */
function readProduct(modern: boolean, server: Server, { mcpReq }: ServerContext): string | null {
  const envelope = mcpReq.envelope as { readonly [CLIENT_INFO_META_KEY]?: { readonly name?: unknown } } | undefined;
  const name = (modern ? envelope?.[CLIENT_INFO_META_KEY] : server.getClientVersion())?.name;
  if (typeof name !== 'string' || !PRODUCT.test(name)) return null;
  return name;
}

async function listCallableWorkers({ client, workspace, sessionId }: Root) {
  const session_id = sessionId();
  const { workers } = await client.listWorkerDefinitions({
    workspace_path: workspace,
    callable: true,
    limit: 200,
    ...(session_id !== null && { session_id }),
  });
  return workers;
}

function chooseApprovalMode(
  modern: boolean,
  server: Server,
  { mcpReq }: ServerContext,
  states: RequestStateCodec<ApprovalState>,
): ApprovalMode {
  type Envelope = { readonly [CLIENT_CAPABILITIES_META_KEY]?: ClientCapabilities } | undefined;
  const envelope = mcpReq.envelope as Envelope;
  const declared = modern ? envelope?.[CLIENT_CAPABILITIES_META_KEY] : server.getClientCapabilities();
  const { elicitation } = declared ?? {};
  // A client that lists no modes supports forms.
  const forms = elicitation !== undefined && (elicitation.form !== undefined || elicitation.url === undefined);
  if (!forms) return { how: 'not' };
  if (modern) return { how: 'between', states };
  return { how: 'during' };
}

/** Whether a call becomes a task: not, at once because the client asks for it, or when its worker is slow. */
type TaskMode = 'none' | 'at once' | 'when slow';

function chooseTaskMode(modern: boolean, ctx: ServerContext, params: CallToolRequest['params']): TaskMode {
  if (modern) return hasTasksExtension(ctx) ? 'when slow' : 'none';
  const { task } = params as { readonly task?: { readonly ttl?: unknown } };
  if (task === undefined) return 'none';
  const { ttl = 0 } = task;
  if (!Number.isSafeInteger(ttl) || Number(ttl) < 0)
    throw invalidParams('task.ttl: must be a whole number of milliseconds from 0');
  return 'at once';
}

interface ToolRequest {
  readonly root: Root;
  readonly ctx: ServerContext;
  readonly server: TaskServer;
}

async function callTool(
  request: ToolRequest,
  { name, arguments: given = {} }: CallToolRequest['params'],
  { asking, tasks }: { readonly asking: ApprovalMode; readonly tasks: TaskMode },
): Promise<Answer> {
  const { root, ctx } = request;
  const { wait_seconds, ...input } = given as Input;
  const seconds = parseWaitSeconds(wait_seconds);
  if (tasks === 'at once' && REPORTS.includes(name))
    throw new ProtocolError(ProtocolErrorCode.MethodNotFound, `${name}: cannot be called as a task`);
  if (name === 'cost') return reportCost(root, requireKnownKeys(input, []));
  if (name === 'workers') return reportWorkers(root, ctx, requireKnownKeys(input, ['worker_session_id']), seconds);
  const worker = name === 'delegate' ? null : name;
  if (
    worker !== null &&
    !(await listCallableWorkers(root)).some((known) => known.name === worker && !OWN_NAMES.includes(worker))
  )
    throw invalidParams(`there is no tool ${name.slice(0, MAX_NAME_IN_ERROR)}`);
  const state = ctx.mcpReq.requestState<ApprovalState>();
  if (typeof state === 'object') {
    const response = inputResponse(ctx.mcpReq.inputResponses, 'approval');
    let answer: FormAnswer | null = null;
    if (response.kind === 'elicit') answer = { action: response.action, content: readContent(response) };
    return resumeDelegation(root, ctx, state, { answer, seconds, asking });
  }
  if (worker === null) {
    const body = requireKnownKeys(input, DELEGATE_KEYS) as NewDelegation;
    return startCall(request, body, { who: `${String(input.tier)} worker`, seconds, asking, tasks });
  }
  const body = { worker, ...requireKnownKeys(input, NAMED_KEYS) } as NewDelegation;
  return startCall(request, body, { who: worker, seconds, asking, tasks });
}

async function startCall(
  { root, ctx, server }: ToolRequest,
  body: NewDelegation,
  { tasks, ...how }: CallOptions & { readonly tasks: TaskMode },
): Promise<Answer> {
  switch (tasks) {
    case 'none':
      return delegate(root, ctx, body, how);
    case 'at once':
      return createTask(server, root, ctx, body);
    case 'when slow': {
      const seconds = Math.min(how.seconds ?? TASK_AFTER_SECONDS, TASK_AFTER_SECONDS);
      // Approvals are part of the task.
      const answer = await delegate(root, ctx, body, { ...how, seconds, asking: { how: 'not' }, mustStart: true });
      const worker = readRunningWorker(answer);
      return worker === null || ctx.mcpReq.signal.aborted ? answer : answerWithExtensionTask(server, root, ctx, worker);
    }
  }
}

/** Null where the answer holds the result. */
function readRunningWorker(answer: Answer): string | null {
  const { status, worker_session_id: worker } = (answer.structuredContent ?? {}) as Record<string, unknown>;
  return status === 'running' && typeof worker === 'string' ? worker : null;
}

function readContent(response: object): Input | undefined {
  return (response as { readonly content?: Input }).content;
}

/** Checked here because the server would report an unknown key by the names of its own API. */
function requireKnownKeys(input: Input, keys: readonly string[]): Input {
  const unknown = Object.keys(input).find((key) => !keys.includes(key));
  if (unknown !== undefined)
    throw invalidParams(`${unknown.slice(0, MAX_NAME_IN_ERROR)}: unknown key; known are ${keys.join(', ') || 'none'}`);
  return input;
}

function parseWaitSeconds(value: unknown): number | null {
  if (value === undefined || value === null) return null;
  if (Number.isInteger(value) && Number(value) >= 1 && Number(value) <= MAX_WAIT_SECONDS) return Number(value);
  throw invalidParams(`wait_seconds: must be a whole number from 1 to ${MAX_WAIT_SECONDS}`);
}

async function reportCost(root: Root, _input: Input): Promise<Answer> {
  const session = await root.client.getSession(await root.session());
  const { cost_so_far_usd: own_usd, workers_cost_usd: workers_usd, budget } = session;
  return toStructuredResult({
    own_usd,
    workers_usd,
    total_usd: fromPusd(sumPusd([toPusd(own_usd), toPusd(workers_usd)])),
    remaining_usd: budget?.remaining_usd ?? null,
  });
}

async function reportWorkers(root: Root, ctx: ServerContext, input: Input, seconds: number | null): Promise<Answer> {
  const session = await root.session();
  const { worker_session_id: worker } = input;
  if (worker === undefined) {
    const rows = [];
    for await (const d of listDelegations(root.client, session)) {
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
    // Only the newest are of interest.
    return toStructuredResult({ workers: rows.slice(-MAX_WORKERS_LISTED) });
  }
  if (typeof worker !== 'string') throw invalidParams('worker_session_id: must be a string');
  const findDelegation = () => findWorkerDelegation(root.client, session, worker);
  let found = await findDelegation().catch((error: unknown) => {
    if (error instanceof ApiError && error.status < 500) return null;
    throw error;
  });
  if (found === null) return toErrorResult('not_found', 'no worker of this session has that id');
  if (found.ended_at === null && seconds !== null) {
    const enough = AbortSignal.any([ctx.mcpReq.signal, AbortSignal.timeout(seconds * 1000)]);
    await waitUntilEnded(root.client, worker, enough);
    found = (await findDelegation()) ?? found;
  }
  if (found.ended_at === null) return toRunningResult(worker);
  return toDelegationResult(makeDelegationResult(found));
}

function invalidParams(message: string): ProtocolError {
  return new ProtocolError(ProtocolErrorCode.InvalidParams, message);
}

function toToolError(root: Root, error: unknown): Answer {
  if (!(error instanceof ApiError)) {
    if (error instanceof TypeError)
      return toErrorResult('server_unreachable', `no Metis server answers at ${root.dashboard()}`);
    throw error;
  }
  if (error.code !== 'validation_error') return toErrorResult(error.code, error.message);
  const issues = (error.details.issues ?? []) as readonly { readonly path: string; readonly message: string }[];
  throw invalidParams(
    issues.map(({ path, message }) => (path === '' ? message : `${path}: ${message}`)).join('\n') || error.message,
  );
}
