// Delegations as tasks of MCP: found, described and listed from what the Metis server stores (20 §9).
import { type CallToolResult, inputRequired, ProtocolError, ProtocolErrorCode } from '@modelcontextprotocol/server';
import { ApiError, type Delegation, type Session } from '#client/client.ts';
import { makeDelegationResult } from '#protocol/api/worker-bodies.ts';
import { toDelegationResult } from './mcp-tools.ts';
import type { Root } from './root-session.ts';
import { buildForm, findDelegation } from './watch-worker.ts';

/** A delegation without a turn above it; the id of the task is that of its worker. */
export interface WorkerTask {
  readonly worker: Session;
  readonly delegation: Delegation;
}

export type TaskState = 'working' | 'input_required' | 'completed' | 'failed' | 'cancelled';

/** What both protocols say of a task alike. */
type TaskHead = {
  readonly taskId: string;
  readonly status: TaskState;
  readonly statusMessage?: string;
  readonly createdAt: string;
  readonly lastUpdatedAt: string;
};

const POLL_MS = 1000;
const PAGE = 50;
const MAX_MESSAGE = 500;
const MAX_ID_IN_ERROR = 64;
const MAX_CURSOR = 2000;
const WORKER_ID = /^sess_[0-9A-Z]{26}$/;

export function invalidTask(id: string, problem: string): ProtocolError {
  return new ProtocolError(ProtocolErrorCode.InvalidParams, `task ${id.slice(0, MAX_ID_IN_ERROR)}: ${problem}`);
}

/** Throws invalid params for a task that the server does not have, or that another caller started. */
export async function findTask(root: Root, id: string): Promise<WorkerTask> {
  const worker = WORKER_ID.test(id) ? await readSession(root, id) : null;
  const found = worker === null ? null : await readTask(root, worker, (above) => readSession(root, above));
  if (found === null) throw invalidTask(id, 'there is no task with this id');
  return found;
}

async function readSession({ client }: Root, id: string): Promise<Session | null> {
  try {
    return await client.getSession(id);
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return null;
    throw error;
  }
}

async function readTask(
  root: Root,
  worker: Session,
  readAbove: (id: string) => Promise<Session | null>,
): Promise<WorkerTask | null> {
  const { parent_session_id, root_session_id, parent_tool_use_id } = worker;
  if (!worker.is_worker || parent_session_id !== root_session_id || parent_tool_use_id === null) return null;
  const above = await readAbove(root_session_id);
  if (above === null || !root.isOwnSession(above)) return null;
  const delegation = await findDelegation(root.client, root_session_id, parent_tool_use_id);
  // A delegation of a turn belongs to that turn.
  if (delegation === null || delegation.parent_turn_id !== null) return null;
  return { worker, delegation };
}

/** As 2025-11-25 counts: a result that is an error is `failed`. */
export function readTaskState({ worker, delegation }: WorkerTask): TaskState {
  if (delegation.ended_at === null) return listApprovals(worker).length > 0 ? 'input_required' : 'working';
  if (delegation.status === 'completed') return 'completed';
  return delegation.failure_mode === 'cancelled_by_user' ? 'cancelled' : 'failed';
}

/** Ids of the approvals that the worker and those below it wait for. */
export function listApprovals({ waiting_on }: Session): string[] {
  return waiting_on.filter(({ kind }) => kind === 'approval').map(({ id }) => id);
}

export function nameWorker({ tier, worker_name }: Delegation): string {
  return worker_name ?? `${String(tier)} worker`;
}

export function readTaskResult({ delegation }: WorkerTask): CallToolResult {
  return toDelegationResult(makeDelegationResult(delegation));
}

function describeTask(root: Root, { worker, delegation }: WorkerTask, status: TaskState): string | null {
  const name = nameWorker(delegation);
  if (status === 'cancelled') return `${name} was cancelled`;
  if (status === 'failed' || status === 'completed') return delegation.error_message?.slice(0, MAX_MESSAGE) ?? null;
  if (listApprovals(worker).length > 0) return `${name} waits for approval at ${root.dashboard()}/`;
  if (worker.waiting_on.some(({ kind }) => kind === 'budget')) return `${name} waits for a higher limit`;
  if (delegation.status === 'interrupted') return `${name} is interrupted`;
  return status === 'working' ? `${name} is running` : null;
}

function makeHead(root: Root, task: WorkerTask, status: TaskState): TaskHead {
  const { worker, delegation } = task;
  const message = describeTask(root, task, status);
  return {
    taskId: worker.id,
    status,
    ...(message !== null && { statusMessage: message }),
    createdAt: delegation.created_at,
    lastUpdatedAt: delegation.ended_at ?? worker.updated_at,
  };
}

/** The task of 2025-11-25. It lasts as long as its session, whatever `ttl` the client asked for. */
export function toTask(
  root: Root,
  task: WorkerTask,
  status: TaskState = readTaskState(task),
): TaskHead & { readonly ttl: null; readonly pollInterval: number } {
  return { ...makeHead(root, task, status), ttl: null, pollInterval: POLL_MS };
}

/** The task of the extension, without what its state carries. A result that is an error is `completed`. */
export function toExtensionTask(root: Root, task: WorkerTask, given: TaskState = readTaskState(task)) {
  const status = given === 'failed' ? 'completed' : given;
  return { ...makeHead(root, task, status), ttlMs: null, pollIntervalMs: POLL_MS };
}

/** With the result or the forms of its approvals; a client without forms sees a task that works. */
export async function toDetailedTask(root: Root, task: WorkerTask, forms: boolean): Promise<Record<string, unknown>> {
  const state = readTaskState(task);
  if (state === 'input_required') {
    const inputRequests = forms ? await buildForms(root, task) : {};
    if (Object.keys(inputRequests).length === 0) return { ...toExtensionTask(root, task, 'working') };
    return { ...toExtensionTask(root, task), inputRequests };
  }
  const detailed = toExtensionTask(root, task);
  if (detailed.status === 'completed') return { ...detailed, result: readTaskResult(task) };
  return { ...detailed };
}

async function buildForms({ client }: Root, { worker, delegation }: WorkerTask) {
  const questions = await Promise.all(listApprovals(worker).map((id) => client.getConfirmation(id)));
  const open = questions.filter(({ decision }) => decision === null);
  return Object.fromEntries(
    open.map((question) => [
      question.confirmation_request_id,
      inputRequired.elicit(buildForm(question, nameWorker(delegation))),
    ]),
  );
}

/**
 * One page of the caller's tasks, newest first. Pages may be empty before the last one.
 * @param cursor of the page before; null = the first page
 */
export async function listTasks(root: Root, cursor: string | null) {
  const [, place = root.isShared ? 'shared' : 'own', after = ''] = /^(shared|own):(.*)$/s.exec(cursor ?? '') ?? [];
  if (cursor !== null && (cursor.length > MAX_CURSOR || !/^(shared|own):/.test(cursor)))
    throw new ProtocolError(ProtocolErrorCode.InvalidParams, 'cursor: is none of a page before');
  const filter =
    place === 'shared' ? { parent_session_id: await root.session() } : { door: 'mcp' as const, include_workers: true };
  const page = await root.client.listSessions({ ...filter, limit: PAGE, ...(after !== '' && { cursor: after }) });
  const known = new Map<string, Promise<Session | null>>();
  const readAbove = (id: string) => {
    const above = known.get(id) ?? readSession(root, id);
    known.set(id, above);
    return above;
  };
  const shared = place === 'own' && root.isShared ? await root.session() : null;
  const rows = page.sessions.filter(({ root_session_id }) => root_session_id !== shared);
  const found = await Promise.all(rows.map((worker) => readTask(root, worker, readAbove)));
  const tasks = found.filter((task) => task !== null).map((task) => toTask(root, task));
  const next = findNextCursor(place, page.next_cursor);
  return { tasks, ...(next !== null && { nextCursor: next }) };
}

function findNextCursor(place: string, next: string | null): string | null {
  if (next !== null) return `${place}:${next}`;
  return place === 'shared' ? 'own:' : null;
}
