// One delegation as an MCP tool call: submitted, watched, answered, cancelled (19 §3.2, §3.3).
import {
  type CallToolResult,
  type InputRequiredResult,
  inputRequired,
  RELATED_TASK_META_KEY,
  type RequestStateCodec,
  type ServerContext,
} from '@modelcontextprotocol/server';
import type { DelegationResult, NewDelegation } from '#client/client.ts';
import { makeDelegationResult } from '#protocol/api/worker-bodies.ts';
import { type Clock, sleep } from '#protocol/clock.ts';
import { toDelegationResult, toRunningResult } from './mcp-tools.ts';
import type { Root } from './root-session.ts';
import {
  type ApprovalRequest,
  buildForm,
  cancelWorker,
  createProgress,
  describeRequest,
  type FormAnswer,
  findDelegation,
  findWorkerDelegation,
  submitAnswer,
  watchWorker,
} from './watch-worker.ts';

export type Answer = CallToolResult | InputRequiredResult;

/** State that a client of the stateless protocol returns with its answer. */
export interface ApprovalState {
  readonly root: string;
  readonly worker: string;
  readonly who: string;
  readonly asked: string;
  /** Requests that are answered elsewhere. */
  readonly left: readonly string[];
}

/** How an approval can be requested through this client. */
export type ApprovalMode =
  | { readonly how: 'not' }
  /** Within the call. */
  | { readonly how: 'during' }
  /** The call returns, and comes again with the answer. */
  | { readonly how: 'between'; readonly states: RequestStateCodec<ApprovalState> };

/** A worker that ends within it needs neither progress nor a form, and is not watched. */
const FAST_RESULT_MS = 250;
/** Within it the result of an ended worker arrives on the open request, or not at all. */
const LATE_RESULT_MS = 5000;
/** The longest that the server honours `Prefer: wait`. */
const MAX_PREFER_SECONDS = 600;

interface WatchedWorker {
  readonly session: string;
  readonly worker: string;
  readonly who: string;
  readonly left: readonly string[];
}

/** What a caller has of a call that was stored: the worker, or the result where none could be opened. */
export type StartedDelegation =
  | { readonly worker: string; readonly result: null }
  | { readonly worker: null; readonly result: CallToolResult };

/** Resolves as soon as the delegation is stored. A call that is cancelled before that cancels its worker. */
export async function startDelegation(root: Root, ctx: ServerContext, body: NewDelegation): Promise<StartedDelegation> {
  const { client } = root;
  const session = await root.session();
  const posted = client.submitDelegation(session, body, { idempotencyKey: root.world.uuid() });
  const { tool_use_id, worker_session_id: worker } = await posted;
  if (worker === null) {
    const delegation = await findDelegation(client, session, tool_use_id);
    if (delegation === null) return { worker: null, result: toRunningResult(null) };
    return { worker: null, result: toDelegationResult(makeDelegationResult(delegation)) };
  }
  if (ctx.mcpReq.signal.aborted) root.runInBackground(cancelIfStarted(root, worker));
  return { worker, result: null };
}

/**
 * Waits for a worker that an earlier request started, and requests its approvals. The end of this request leaves the
 * worker running.
 * @param onState called when an approval begins or ends to be waited for
 */
export async function followDelegation(
  root: Root,
  ctx: ServerContext,
  worker: Omit<WatchedWorker, 'left'>,
  { asking, onState }: { readonly asking: ApprovalMode; readonly onState: () => void },
): Promise<Answer> {
  const enough = createDeadline(root.world.clock, ctx.mcpReq.signal, null);
  try {
    const options = { asking, enough, result: null, isTask: true, onState };
    return await watchDelegation(root, ctx, { ...worker, left: [] }, options);
  } finally {
    enough.clear();
  }
}

export interface CallOptions {
  readonly who: string;
  /** After them the answer is that the worker still runs; null waits for the result. */
  readonly seconds: number | null;
  readonly asking: ApprovalMode;
  /** The answer names the worker, however long it takes to be stored. */
  readonly mustStart?: boolean;
}

export async function delegate(root: Root, ctx: ServerContext, body: NewDelegation, how: CallOptions): Promise<Answer> {
  const { client } = root;
  const session = await root.session();
  const idempotencyKey = root.world.uuid();
  const posted = client.submitDelegation(session, body, { idempotencyKey });
  const enough = createDeadline(root.world.clock, ctx.mcpReq.signal, how.seconds);
  const over = new AbortController();
  try {
    const receipt = await (how.mustStart ? posted : Promise.race([posted, enough.passed]));
    if (receipt === null) {
      if (ctx.mcpReq.signal.aborted)
        root.runInBackground(posted.then((late) => cancelIfStarted(root, late.worker_session_id)));
      else root.runInBackground(posted);
      return toRunningResult(null);
    }
    const { tool_use_id, worker_session_id: worker } = receipt;
    if (worker === null) {
      const delegation = await findDelegation(client, session, tool_use_id);
      if (delegation === null) return toRunningResult(null);
      return toDelegationResult(makeDelegationResult(delegation));
    }
    // The same request with its key delegates only once, and is answered when the worker ends.
    const result = client
      .submitDelegation(session, body, { idempotencyKey, waitSeconds: MAX_PREFER_SECONDS, signal: over.signal })
      .then((answer) => ('success' in answer ? answer : null))
      // Watching the worker reports the result as well.
      .catch(() => null);
    return await watchDelegation(root, ctx, { session, worker, who: how.who, left: [] }, { ...how, enough, result });
  } finally {
    over.abort();
    enough.clear();
  }
}

/** Continues a call that returned to have an approval answered. */
export async function resumeDelegation(
  root: Root,
  ctx: ServerContext,
  state: ApprovalState,
  how: { readonly answer: FormAnswer | null; readonly seconds: number | null; readonly asking: ApprovalMode },
): Promise<Answer> {
  const isAnswered = how.answer !== null && (await submitAnswer(root.client, state.asked, how.answer));
  const left = isAnswered ? state.left : [...state.left, state.asked];
  const enough = createDeadline(root.world.clock, ctx.mcpReq.signal, how.seconds);
  try {
    const { root: session, worker, who } = state;
    return await watchDelegation(root, ctx, { session, worker, who, left }, { ...how, enough, result: null });
  } finally {
    enough.clear();
  }
}

async function cancelIfStarted({ client, world }: Root, worker: string | null): Promise<void> {
  if (worker !== null) await cancelWorker(client, world.clock, worker);
}

interface WatchOptions {
  readonly asking: ApprovalMode;
  readonly enough: Deadline;
  /** Resolves with the result, or with null where it has to be looked up. Null when no request is open. */
  readonly result: Promise<DelegationResult | null> | null;
  /** The worker outlives the request, and what the client is sent names it. */
  readonly isTask?: boolean;
  readonly onState?: () => void;
}

async function watchDelegation(
  root: Root,
  ctx: ServerContext,
  { session, worker, who, left }: WatchedWorker,
  { asking, enough, result, isTask = false, onState = () => {} }: WatchOptions,
): Promise<Answer> {
  const progress = createProgress(root.world.clock, ctx, who);
  const { signal } = ctx.mcpReq;
  const questions = new Map<string, AbortController>();
  const skipped = new Set(left);
  let between: ApprovalRequest | null = null;
  const onRequested = (question: ApprovalRequest): boolean => {
    const id = question.confirmation_request_id;
    if (questions.has(id)) return false;
    if (asking.how === 'between' && !skipped.has(id)) {
      between = question;
      return true;
    }
    const open = new AbortController();
    questions.set(id, open);
    progress.setPending(`waits for approval of ${describeRequest(question)} at ${root.dashboard()}/`);
    const task = isTask ? worker : null;
    if (asking.how === 'during')
      root.runInBackground(requestApproval(root, ctx, question, { who, task, open: open.signal }));
    onState();
    return false;
  };
  const onResolved = (id: string) => {
    questions.get(id)?.abort();
    questions.delete(id);
    if (questions.size === 0) progress.setPending(null);
    onState();
  };
  const onAbort = () => {
    if (!isTask) root.runInBackground(cancelIfStarted(root, worker));
  };
  if (signal.aborted) onAbort();
  else signal.addEventListener('abort', onAbort, { once: true });
  try {
    const resultWait = createResultWait(root.world.clock, result, enough.signal);
    const quick = await resultWait.within(FAST_RESULT_MS);
    if (quick !== null) return toDelegationResult(quick);
    const end = await watchWorker(
      root.client,
      worker,
      { ...progress, onApprovalRequested: onRequested, onApprovalResolved: onResolved },
      resultWait.signal,
    );
    if (between !== null && asking.how === 'between')
      return await returnForApproval(ctx, asking.states, between, { root: session, worker, who, left });
    const late = await resultWait.within(LATE_RESULT_MS);
    if (late !== null) return toDelegationResult(late);
    if (end === 'stopped') return toRunningResult(worker);
    const delegation = await findWorkerDelegation(root.client, session, worker);
    if (delegation === null) return toRunningResult(worker);
    return toDelegationResult(makeDelegationResult(delegation));
  } finally {
    signal.removeEventListener('abort', onAbort);
    for (const open of questions.values()) open.abort();
    progress.stop();
  }
}

interface ResultWait {
  /** Aborted when the result has arrived, or with `enough`. */
  readonly signal: AbortSignal;
  /** The result if it has arrived or arrives within this time, else null. */
  within(ms: number): Promise<DelegationResult | null>;
}

function createResultWait(clock: Clock, result: WatchOptions['result'], enough: AbortSignal): ResultWait {
  let known: DelegationResult | null = null;
  const here = new AbortController();
  const arrival = result?.then((value) => {
    known = value;
    if (value !== null) here.abort();
  });
  const signal = AbortSignal.any([enough, here.signal]);
  return {
    signal,
    async within(ms) {
      if (arrival !== undefined) await Promise.race([arrival, sleep(clock, ms, signal).catch(() => {})]);
      return known;
    },
  };
}

/** @param open aborted when the approval was answered elsewhere, or no call waits for it any more */
async function requestApproval(
  { client, world }: Root,
  { mcpReq }: ServerContext,
  question: ApprovalRequest,
  { who, task, open }: { readonly who: string; readonly task: string | null; readonly open: AbortSignal },
): Promise<void> {
  const timeout = Math.max(1000, Date.parse(question.expires_at) - world.clock.now());
  const form = buildForm(question, who);
  const related = task === null ? {} : { _meta: { [RELATED_TASK_META_KEY]: { taskId: task } } };
  const answer = await mcpReq.elicitInput({ ...form, ...related }, { signal: open, timeout });
  await submitAnswer(client, question.confirmation_request_id, answer);
}

async function returnForApproval(
  ctx: ServerContext,
  states: RequestStateCodec<ApprovalState>,
  question: ApprovalRequest,
  state: Omit<ApprovalState, 'asked'>,
): Promise<InputRequiredResult> {
  const asked = question.confirmation_request_id;
  return inputRequired({
    inputRequests: { approval: inputRequired.elicit(buildForm(question, state.who)) },
    requestState: await states.mint({ ...state, asked }, ctx),
  });
}

interface Deadline {
  /** Aborted when the time is up or the call is cancelled. */
  readonly signal: AbortSignal;
  readonly passed: Promise<null>;
  clear(): void;
}

function createDeadline(clock: Clock, call: AbortSignal, seconds: number | null): Deadline {
  const over = new AbortController();
  const end = () => over.abort();
  if (call.aborted) end();
  else call.addEventListener('abort', end, { once: true });
  const timer = seconds === null ? null : clock.after(seconds * 1000, end);
  return {
    signal: over.signal,
    passed: new Promise((resolve) => {
      if (over.signal.aborted) resolve(null);
      else over.signal.addEventListener('abort', () => resolve(null), { once: true });
    }),
    clear() {
      call.removeEventListener('abort', end);
      timer?.cancel();
    },
  };
}
