// One delegation as an MCP tool call: submitted, watched, answered, cancelled (19 §3.2, §3.3).
import {
  type CallToolResult,
  type InputRequiredResult,
  inputRequired,
  type RequestStateCodec,
  type ServerContext,
} from '@modelcontextprotocol/server';
import type { DelegationResult, NewDelegation } from '#client/client.ts';
import { resultOf } from '#protocol/api/worker-bodies.ts';
import { type Clock, sleep } from '#protocol/clock.ts';
import { delegated, running } from './mcp-tools.ts';
import type { Root } from './root-session.ts';
import {
  answerWith,
  cancelWorker,
  createProgress,
  delegationOf,
  delegationOfWorker,
  type FormAnswer,
  formFor,
  type Question,
  watchWorker,
  whatFor,
} from './watch-worker.ts';

export type Answer = CallToolResult | InputRequiredResult;

/** What a client of the stateless protocol gives back with its answer. */
export interface Asked {
  readonly root: string;
  readonly worker: string;
  readonly who: string;
  readonly asked: string;
  /** Left to others. */
  readonly left: readonly string[];
}

/** How a person can be asked through this client. */
export type Asking =
  | { readonly how: 'not' }
  /** Within the call. */
  | { readonly how: 'during' }
  /** The call returns, and comes again with the answer. */
  | { readonly how: 'between'; readonly states: RequestStateCodec<Asked> };

/** A worker that is done by then needs neither progress nor a form: it is not followed. */
const QUICK_MS = 250;
/** Within it the result of a worker that has ended comes by itself, or never. */
const LATE_MS = 5000;
/** As long as a server holds an answer back. */
const MOST_SECONDS = 600;

interface Followed {
  readonly session: string;
  readonly worker: string;
  readonly who: string;
  readonly left: readonly string[];
}

/** @param seconds after which the answer is that it still runs; null waits for the result */
export async function delegate(
  root: Root,
  ctx: ServerContext,
  body: NewDelegation,
  how: { readonly who: string; readonly seconds: number | null; readonly asking: Asking },
): Promise<Answer> {
  const { client } = root;
  const session = await root.session();
  const idempotencyKey = root.world.uuid();
  const posted = client.submitDelegation(session, body, { idempotencyKey });
  const enough = deadline(root.world.clock, ctx.mcpReq.signal, how.seconds);
  const over = new AbortController();
  try {
    const receipt = await Promise.race([posted, enough.passed]);
    if (receipt === null) {
      if (ctx.mcpReq.signal.aborted) root.behind(posted.then((late) => stop(root, late.worker_session_id)));
      else root.behind(posted);
      return running(null);
    }
    const { tool_use_id, worker_session_id: worker } = receipt;
    if (worker === null) {
      const refused = await delegationOf(client, session, tool_use_id);
      return refused === null ? running(null) : delegated(resultOf(refused));
    }
    // The same request again: nothing is delegated twice, and its answer comes with the end of the worker.
    const result = client
      .submitDelegation(session, body, { idempotencyKey, waitSeconds: MOST_SECONDS, signal: over.signal })
      .then((answer) => ('success' in answer ? answer : null))
      // Following the worker tells it as well.
      .catch(() => null);
    return await follow(root, ctx, { session, worker, who: how.who, left: [] }, { ...how, enough, result });
  } finally {
    over.abort();
    enough.clear();
  }
}

/** Goes on with the worker of a call that returned to have a question answered. */
export async function goOn(
  root: Root,
  ctx: ServerContext,
  state: Asked,
  how: { readonly answer: FormAnswer | null; readonly seconds: number | null; readonly asking: Asking },
): Promise<Answer> {
  const settled = how.answer === null ? false : await answerWith(root.client, state.asked, how.answer);
  const left = settled ? state.left : [...state.left, state.asked];
  const enough = deadline(root.world.clock, ctx.mcpReq.signal, how.seconds);
  try {
    const { root: session, worker, who } = state;
    return await follow(root, ctx, { session, worker, who, left }, { ...how, enough, result: null });
  } finally {
    enough.clear();
  }
}

async function stop({ client, world }: Root, worker: string | null): Promise<void> {
  if (worker !== null) await cancelWorker(client, world.clock, worker);
}

interface Following {
  readonly asking: Asking;
  readonly enough: Deadline;
  /** Resolves with the result, or with null where it has to be looked up. Null when nobody brings it. */
  readonly result: Promise<DelegationResult | null> | null;
}

async function follow(
  root: Root,
  ctx: ServerContext,
  { session, worker, who, left }: Followed,
  { asking, enough, result }: Following,
): Promise<Answer> {
  const progress = createProgress(root.world.clock, ctx, who);
  const { signal } = ctx.mcpReq;
  const questions = new Map<string, AbortController>();
  const skipped = new Set(left);
  let between: Question | null = null;
  const asked = (question: Question): boolean => {
    const id = question.confirmation_request_id;
    if (questions.has(id)) return false;
    if (asking.how === 'between' && !skipped.has(id)) {
      between = question;
      return true;
    }
    const open = new AbortController();
    questions.set(id, open);
    progress.waits(`waits for approval of ${whatFor(question)} at ${root.dashboard()}/`);
    if (asking.how === 'during') root.behind(askDuring(root, ctx, question, { who, open: open.signal }));
    return false;
  };
  const answered = (id: string) => {
    questions.get(id)?.abort();
    questions.delete(id);
    if (questions.size === 0) progress.waits(null);
  };
  const onAbort = () => root.behind(stop(root, worker));
  if (signal.aborted) onAbort();
  else signal.addEventListener('abort', onAbort, { once: true });
  try {
    const brought = bring(root.world.clock, result, enough.signal);
    const quick = await brought.within(QUICK_MS);
    if (quick !== null) return delegated(quick);
    const end = await watchWorker(root.client, worker, { ...progress, asked, answered }, brought.signal);
    if (between !== null && asking.how === 'between')
      return await askBetween(ctx, asking.states, between, { root: session, worker, who, left });
    const late = await brought.within(LATE_MS);
    if (late !== null) return delegated(late);
    if (end === 'stopped') return running(worker);
    const delegation = await delegationOfWorker(root.client, session, worker);
    return delegation === null ? running(worker) : delegated(resultOf(delegation));
  } finally {
    signal.removeEventListener('abort', onAbort);
    for (const open of questions.values()) open.abort();
    progress.stop();
  }
}

interface Brought {
  /** Aborted when the result is there, or with `enough`. */
  readonly signal: AbortSignal;
  /** The result if it is there, or comes within this time. */
  within(ms: number): Promise<DelegationResult | null>;
}

function bring(clock: Clock, result: Following['result'], enough: AbortSignal): Brought {
  let known: DelegationResult | null = null;
  const here = new AbortController();
  const told = result?.then((value) => {
    known = value;
    if (value !== null) here.abort();
  });
  const signal = AbortSignal.any([enough, here.signal]);
  return {
    signal,
    async within(ms) {
      if (told !== undefined) await Promise.race([told, sleep(clock, ms, signal).catch(() => {})]);
      return known;
    },
  };
}

/** @param open aborted when somebody else has answered, or nobody waits any more */
async function askDuring(
  { client, world }: Root,
  { mcpReq }: ServerContext,
  question: Question,
  { who, open }: { readonly who: string; readonly open: AbortSignal },
): Promise<void> {
  const timeout = Math.max(1000, Date.parse(question.expires_at) - world.clock.now());
  const answer = await mcpReq.elicitInput(formFor(question, who), { signal: open, timeout });
  await answerWith(client, question.confirmation_request_id, answer);
}

async function askBetween(
  ctx: ServerContext,
  states: RequestStateCodec<Asked>,
  question: Question,
  state: Omit<Asked, 'asked'>,
): Promise<InputRequiredResult> {
  const asked = question.confirmation_request_id;
  return inputRequired({
    inputRequests: { approval: inputRequired.elicit(formFor(question, state.who)) },
    requestState: await states.mint({ ...state, asked }, ctx),
  });
}

interface Deadline {
  /** Aborted when time is up, or the call is over. */
  readonly signal: AbortSignal;
  readonly passed: Promise<null>;
  clear(): void;
}

function deadline(clock: Clock, call: AbortSignal, seconds: number | null): Deadline {
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
