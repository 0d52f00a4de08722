// The requests of MCP tasks: those of 2025-11-25, and those of the extension `io.modelcontextprotocol/tasks` (20 §9).
import {
  type CallToolResult,
  CLIENT_CAPABILITIES_META_KEY,
  type ClientCapabilities,
  inputResponse,
  MissingRequiredClientCapabilityError,
  ProtocolError,
  ProtocolErrorCode,
  RELATED_TASK_META_KEY,
  type Result,
  Server,
  type ServerContext,
} from '@modelcontextprotocol/server';
import { z } from 'zod';
import { ApiError, type NewDelegation } from '#client/client.ts';
import { type ApprovalMode, followDelegation, startDelegation } from './delegate-call.ts';
import type { Root } from './root-session.ts';
import { cancelWorker, DECISIONS, type FormAnswer, submitAnswer, waitUntilEnded } from './watch-worker.ts';
import {
  findTask,
  invalidTask,
  listApprovals,
  listTasks,
  nameWorker,
  readTaskResult,
  readTaskState,
  toDetailedTask,
  toExtensionTask,
  toTask,
} from './worker-tasks.ts';

const TASKS_EXTENSION = 'io.modelcontextprotocol/tasks';
/** A worker that is not done within it becomes a task, where the client declares the extension. */
export const TASK_AFTER_SECONDS = 2;

export const TASK_CAPABILITIES = { list: {}, cancel: {}, requests: { tools: { call: {} } } };
export const TASK_EXTENSIONS = { [TASKS_EXTENSION]: {} };

const TaskParams = z.object({ taskId: z.string() });
const ListParams = z.object({ cursor: z.string().optional() });

/** A server whose tool calls may be answered with a task; the library knows no such answer. */
export class TaskServer extends Server {
  readonly #answers = new WeakMap<AbortSignal, Result>();

  /** @returns what the handler of `tools/call` has to return for this request */
  answerWithTask({ mcpReq }: ServerContext, answer: Result): CallToolResult {
    this.#answers.set(mcpReq.signal, answer);
    return { content: [] };
  }

  protected override _wrapHandler(
    method: string,
    handler: Parameters<Server['_wrapHandler']>[1],
  ): ReturnType<Server['_wrapHandler']> {
    const wrapped = super._wrapHandler(method, handler);
    if (method !== 'tools/call') return wrapped;
    return async (request, ctx) => {
      const result = await wrapped(request, ctx);
      return this.#answers.get(ctx.mcpReq.signal) ?? result;
    };
  }
}

/** Whether this request comes from a client that declares the extension. */
export function hasTasksExtension({ mcpReq }: ServerContext): boolean {
  const envelope = mcpReq.envelope as { readonly [CLIENT_CAPABILITIES_META_KEY]?: ClientCapabilities } | undefined;
  return envelope?.[CLIENT_CAPABILITIES_META_KEY]?.extensions?.[TASKS_EXTENSION] !== undefined;
}

/** Answers a call with a task of 2025-11-25. The answer comes once the worker is stored. */
export async function createTask(
  server: TaskServer,
  root: Root,
  ctx: ServerContext,
  body: NewDelegation,
): Promise<CallToolResult> {
  return answerRequest(root, async () => {
    const { worker, result } = await startDelegation(root, ctx, body);
    // No worker, and so no task, is opened for a call that cannot begin.
    if (worker === null) throw new ProtocolError(ProtocolErrorCode.InternalError, readFailureText(result));
    const task = toTask(root, await findTask(root, worker), 'working');
    return server.answerWithTask(ctx, { task });
  });
}

function readFailureText({ content }: CallToolResult): string {
  const [first] = content;
  return first?.type === 'text' ? first.text : 'the delegation failed';
}

/** Answers a call with a task of the extension. */
export async function answerWithExtensionTask(
  server: TaskServer,
  root: Root,
  ctx: ServerContext,
  worker: string,
): Promise<CallToolResult> {
  const task = toExtensionTask(root, await findTask(root, worker), 'working');
  return server.answerWithTask(ctx, { ...task, resultType: 'task' });
}

/** @param readMode how approvals are requested through the client of a request */
export function registerTaskRequests(
  server: TaskServer,
  root: Root,
  { isModern, readMode }: { readonly isModern: boolean; readonly readMode: (ctx: ServerContext) => ApprovalMode },
): void {
  if (isModern) registerExtension(server, root, readMode);
  else registerCore(server, root, readMode);
}

/** 2025-11-25: the client asks for a task, and for its result. */
function registerCore(server: TaskServer, root: Root, readMode: (ctx: ServerContext) => ApprovalMode): void {
  server.setRequestHandler('tasks/get', { params: TaskParams }, ({ taskId }) =>
    answerRequest(root, async () => toTask(root, await findTask(root, taskId))),
  );
  server.setRequestHandler('tasks/list', { params: ListParams }, ({ cursor }) =>
    answerRequest(root, () => listTasks(root, cursor ?? null)),
  );
  server.setRequestHandler('tasks/result', { params: TaskParams }, ({ taskId }, ctx) =>
    answerRequest(root, async () => ({
      ...(await waitForResult(root, ctx, taskId, readMode(ctx))),
      _meta: { [RELATED_TASK_META_KEY]: { taskId } },
    })),
  );
  server.setRequestHandler('tasks/cancel', { params: TaskParams }, ({ taskId }, ctx) =>
    answerRequest(root, async () => {
      const before = readTaskState(await findTask(root, taskId));
      if (hasEnded(before)) throw invalidTask(taskId, `has already ended: ${before}`);
      await requestCancel(root, taskId);
      await waitUntilEnded(root.client, taskId, ctx.mcpReq.signal);
      const task = toTask(root, await findTask(root, taskId));
      // Its own end was faster.
      if (task.status !== 'cancelled') throw invalidTask(taskId, `has already ended: ${task.status}`);
      return task;
    }),
  );
}

/** The worker's result, once it has ended; until then approvals are requested and changes of its state are reported. */
async function waitForResult(root: Root, ctx: ServerContext, taskId: string, asking: ApprovalMode): Promise<Result> {
  const found = await findTask(root, taskId);
  if (hasEnded(readTaskState(found))) return readTaskResult(found);
  const notifyStatus = async () => {
    const params = toTask(root, await findTask(root, taskId));
    await ctx.mcpReq.notify({ method: 'notifications/tasks/status', params });
  };
  const worker = { session: found.worker.root_session_id, worker: taskId, who: nameWorker(found.delegation) };
  const result = await followDelegation(root, ctx, worker, {
    asking,
    onState: () => root.runInBackground(notifyStatus()),
  });
  await notifyStatus().catch(() => {});
  return result;
}

/** 2026-07-28: the server decides what becomes a task, and `tasks/get` carries approvals and result. */
function registerExtension(server: TaskServer, root: Root, readMode: (ctx: ServerContext) => ApprovalMode): void {
  server.setRequestHandler('tasks/get', { params: TaskParams }, ({ taskId }, ctx) =>
    answerRequest(root, async () => {
      requireExtension(ctx);
      return toDetailedTask(root, await findTask(root, taskId), readMode(ctx).how !== 'not');
    }),
  );
  server.setRequestHandler('tasks/update', { params: TaskParams }, ({ taskId }, ctx) =>
    answerRequest(root, async () => {
      requireExtension(ctx);
      const { worker } = await findTask(root, taskId);
      const answers = readFormAnswers(ctx);
      // Answers to anything else are ignored.
      for (const id of listApprovals(worker)) {
        const answer = answers.get(id);
        if (answer !== undefined) await submitAnswer(root.client, id, answer);
      }
      return {};
    }),
  );
  server.setRequestHandler('tasks/cancel', { params: TaskParams }, ({ taskId }, ctx) =>
    answerRequest(root, async () => {
      requireExtension(ctx);
      if (!hasEnded(readTaskState(await findTask(root, taskId)))) await requestCancel(root, taskId);
      return {};
    }),
  );
}

/** The answers of a request by their keys, at least one. All are checked before the first is submitted. */
function readFormAnswers({ mcpReq }: ServerContext): ReadonlyMap<string, FormAnswer> {
  const { inputResponses = {}, droppedInputResponseKeys: dropped = [] } = mcpReq;
  const keys = [...Object.keys(inputResponses), ...dropped];
  if (keys.length === 0)
    throw invalidAnswer('', `holds no answer; send ${EXAMPLE_ANSWER} for a key of inputRequests (tasks/get)`);
  return new Map(keys.map((key) => [key, readFormAnswer(inputResponses, key)]));
}

function readFormAnswer(responses: ServerContext['mcpReq']['inputResponses'], key: string): FormAnswer {
  const response = inputResponse(responses, key);
  if (response.kind !== 'elicit') throw invalidAnswer(key, `must be an answer such as ${EXAMPLE_ANSWER}`);
  const { content } = response as { readonly content?: Readonly<Record<string, unknown>> };
  if (response.action === 'accept' && !DECISIONS.includes(content?.decision as string))
    throw invalidAnswer(key, `content.decision must be one of ${DECISIONS.join(', ')}`);
  return { action: response.action, content };
}

const EXAMPLE_ANSWER = '{"action": "accept", "content": {"decision": "approve"}}';
const MAX_KEY_IN_ERROR = 64;

function invalidAnswer(key: string, problem: string): ProtocolError {
  const field = key === '' ? 'inputResponses' : `inputResponses.${key.slice(0, MAX_KEY_IN_ERROR)}`;
  return new ProtocolError(ProtocolErrorCode.InvalidParams, `${field}: ${problem}`);
}

function requireExtension(ctx: ServerContext): void {
  if (!hasTasksExtension(ctx))
    throw new MissingRequiredClientCapabilityError({ requiredCapabilities: { extensions: TASK_EXTENSIONS } });
}

function hasEnded(state: ReturnType<typeof readTaskState>): boolean {
  return state !== 'working' && state !== 'input_required';
}

/** A worker that ends meanwhile is left as it is. */
async function requestCancel(root: Root, worker: string): Promise<void> {
  try {
    await cancelWorker(root.client, root.world.clock, worker);
  } catch (error) {
    if (!(error instanceof ApiError && error.status === 409)) throw error;
  }
}

/** Errors of the Metis server as errors of the protocol. */
async function answerRequest<T extends Result>(root: Root, answer: () => Promise<T>): Promise<T> {
  try {
    return await answer();
  } catch (error) {
    if (error instanceof ApiError) {
      const code = error.status < 500 ? ProtocolErrorCode.InvalidParams : ProtocolErrorCode.InternalError;
      throw new ProtocolError(code, `${error.code}: ${error.message}`);
    }
    if (error instanceof TypeError)
      throw new ProtocolError(ProtocolErrorCode.InternalError, `no Metis server answers at ${root.dashboard()}`);
    throw error;
  }
}
