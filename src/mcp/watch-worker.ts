// Watches one worker until it ends: its progress lines and its approval requests (19 §3.2, §3.3).

import type { ElicitRequestFormParams, ServerContext } from '@modelcontextprotocol/server';
import {
  ApiError,
  type Confirmation,
  type ConfirmationAnswer,
  type Delegation,
  type MetisClient,
  type Snapshot,
  type StreamEvent,
} from '#client/client.ts';
import { type Clock, sleep, type Timer } from '#protocol/clock.ts';
import { fromPusd, toPusd, ZERO_PUSD } from '#protocol/money.ts';

export type ApprovalRequest = Pick<
  Confirmation,
  'confirmation_request_id' | 'tool_name' | 'input_summary' | 'command_summary' | 'allowed_scopes' | 'expires_at'
>;

/** The answer of a client to the approval form. */
export interface FormAnswer {
  readonly action: 'accept' | 'decline' | 'cancel';
  readonly content?: Readonly<Record<string, unknown>> | undefined;
}

/** What the form can be answered with; the second where the request allows it. */
export const DECISIONS: readonly string[] = ['approve', 'approve identical', 'reject'];

export function buildForm(question: ApprovalRequest, who: string): ElicitRequestFormParams {
  const isLasting = question.allowed_scopes.includes('identical');
  const choices = DECISIONS.filter((choice) => isLasting || choice !== 'approve identical');
  return {
    mode: 'form',
    message: `${who} wants to use ${describeRequest(question)}`,
    requestedSchema: {
      type: 'object',
      properties: {
        decision: {
          type: 'string',
          title: 'Decision',
          description: 'approve identical: the same call passes again without approval',
          enum: choices,
        },
      },
      required: ['decision'],
    },
  };
}

export function describeRequest({ tool_name, command_summary, input_summary }: ApprovalRequest): string {
  return `${tool_name}: ${command_summary ?? input_summary}`;
}

/** Null leaves the approval to another client: unattended clients cancel at once. */
function toDecision({ action, content }: FormAnswer): ConfirmationAnswer | null {
  if (action === 'cancel') return null;
  if (action === 'decline') return { decision: 'reject' };
  switch (content?.decision) {
    case 'approve':
      return { decision: 'approve' };
    case 'approve identical':
      return { decision: 'approve', scope: 'identical' };
    default:
      return { decision: 'reject' };
  }
}

/** False where the request stays open. An earlier answer from elsewhere wins. */
export async function submitAnswer(client: MetisClient, id: string, answer: FormAnswer): Promise<boolean> {
  const decision = toDecision(answer);
  if (decision === null) return false;
  try {
    await client.answerConfirmation(id, decision);
  } catch (error) {
    if (!(error instanceof ApiError && ['confirmation_already_resolved', 'not_found'].includes(error.code)))
      throw error;
  }
  return true;
}

interface Watcher {
  /** The state of the worker, at the start and whenever events were lost. */
  onSnapshot(snapshot: Snapshot): void;
  onEvent(event: StreamEvent): void;
  /** True stops watching. */
  onApprovalRequested(question: ApprovalRequest): boolean;
  onApprovalResolved(confirmationId: string): void;
}

/** `ended`: the delegation has its outcome. `stopped`: by the signal or by the watcher. */
export async function watchWorker(
  client: MetisClient,
  worker: string,
  watcher: Watcher,
  signal: AbortSignal,
): Promise<'ended' | 'stopped'> {
  for await (const item of client.stream(worker, { snapshot: true, include_worker_sessions: true, signal })) {
    if (item.type === 'snapshot') {
      if (item.session.ended_at !== null) return 'ended';
      watcher.onSnapshot(item);
      for (const question of item.pending_confirmations as readonly Confirmation[])
        if (watcher.onApprovalRequested(question)) return 'stopped';
      continue;
    }
    const { event } = item;
    if (event.type === 'session.ended' && event.session_id === worker) return 'ended';
    if (event.type === 'tool.confirmation_requested') {
      if (watcher.onApprovalRequested(event.payload)) return 'stopped';
    } else if (event.type === 'tool.confirmation_resolved')
      watcher.onApprovalResolved(event.payload.confirmation_request_id);
    watcher.onEvent(event);
  }
  if (signal.aborted) return 'stopped';
  return 'ended';
}

/** Resolves when the worker has ended or the signal aborts. */
export async function waitUntilEnded(client: MetisClient, worker: string, signal: AbortSignal): Promise<void> {
  const watcher = { onSnapshot() {}, onEvent() {}, onApprovalRequested: () => false, onApprovalResolved() {} };
  await watchWorker(client, worker, watcher, signal);
}

/** The session's delegation of this call; null where there is none. */
export async function findDelegation(client: MetisClient, root: string, call: string): Promise<Delegation | null> {
  const { workers } = await client.listWorkers(root, { tool_use_id: call });
  return workers[0] ?? null;
}

/** The same by its worker. */
export async function findWorkerDelegation(
  client: MetisClient,
  root: string,
  worker: string,
): Promise<Delegation | null> {
  const { parent_tool_use_id: call } = await client.getSession(worker);
  if (call === null) return null;
  return findDelegation(client, root, call);
}

export async function* listDelegations(client: MetisClient, root: string): AsyncGenerator<Delegation> {
  let cursor: string | undefined;
  do {
    const page = await client.listWorkers(root, { limit: 200, ...(cursor !== undefined && { cursor }) });
    yield* page.workers;
    cursor = page.next_cursor ?? undefined;
  } while (cursor !== undefined);
}

const CANCEL_RETRY_MS = 100;
const CANCEL_ATTEMPTS = 100;

/** Cancels the worker's current turn, or its next one. */
export async function cancelWorker(client: MetisClient, clock: Clock, worker: string): Promise<void> {
  for (let i = 0; i < CANCEL_ATTEMPTS; i++) {
    const { ended_at, current_turn_id } = await client.getSession(worker);
    if (ended_at !== null) return;
    if (current_turn_id !== null) {
      await client.cancelTurn(worker, current_turn_id, { reason: 'the call was cancelled' });
      return;
    }
    await sleep(clock, CANCEL_RETRY_MS);
  }
}

// Progress lines read like `fast worker · edit_file src/a.ts · 3 calls · $0.0041`.

/** Progress is sent at most once in the first and at least once in the second interval. */
const MIN_INTERVAL_MS = 1000;
const MAX_INTERVAL_MS = 25_000;
const MAX_NAME = 80;

interface Progress {
  onSnapshot(snapshot: Snapshot): void;
  onEvent(event: StreamEvent): void;
  /** The pending approval and where to answer it; null when none is pending. */
  setPending(text: string | null): void;
  stop(): void;
}

const SILENT: Progress = { onSnapshot() {}, onEvent() {}, setPending() {}, stop() {} };

/** @param who `fast worker`, or the name of the worker */
export function createProgress(clock: Clock, { mcpReq }: ServerContext, who: string): Progress {
  const token = mcpReq._meta?.progressToken;
  if (token === undefined) return SILENT;
  const tools = new Map<string, string>();
  let doing = 'starts';
  let waiting: string | null = null;
  let calls = 0;
  let cost: bigint = ZERO_PUSD;
  let sent = 0;
  let lastAt = -MIN_INTERVAL_MS;
  let stopped = false;
  let timer: Timer | null = null;

  function send(): void {
    if (stopped) return;
    lastAt = clock.monotonic();
    sent += 1;
    const count = `${calls} ${calls === 1 ? 'call' : 'calls'}`;
    const message = [who, waiting ?? doing, count, `$${fromPusd(cost)}`].join(' · ');
    const params = { progressToken: token as string | number, progress: sent, message };
    mcpReq.notify({ method: 'notifications/progress', params }).catch(() => {});
    scheduleSend(MAX_INTERVAL_MS);
  }
  function scheduleSend(ms: number): void {
    timer?.cancel();
    timer = clock.after(ms, send);
  }
  function scheduleUpdate(): void {
    scheduleSend(Math.max(0, MIN_INTERVAL_MS - (clock.monotonic() - lastAt)));
  }

  send();
  return {
    onSnapshot({ session, messages }) {
      const answers = messages.filter(({ role }) => role === 'assistant');
      calls = answers.length;
      cost = toPusd(session.cost_so_far_usd) + toPusd(session.workers_cost_usd);
      const call = answers.at(-1)?.content.findLast((block) => block.type === 'tool_use');
      if (call !== undefined) doing = formatToolCall(call.name, call.input);
      scheduleUpdate();
    },
    onEvent(event) {
      if (stopped) return;
      switch (event.type) {
        case 'tool.use_start':
          tools.set(event.payload.tool_use_id, event.payload.tool_name);
          return;
        case 'tool.use_end':
          doing = formatToolCall(tools.get(event.payload.tool_use_id) ?? 'a tool', event.payload.final_input);
          return scheduleUpdate();
        case 'llm.call_started':
          doing = 'thinks';
          return scheduleUpdate();
        case 'llm.call_completed':
          calls += 1;
          cost += toPusd(event.payload.cost_usd);
          return scheduleUpdate();
        default:
      }
    },
    setPending(text) {
      waiting = text;
      scheduleUpdate();
    },
    stop() {
      stopped = true;
      timer?.cancel();
    },
  };
}

/** `edit_file src/a.ts`: the tool, and the input that identifies its subject. */
function formatToolCall(name: string, input: Readonly<Record<string, unknown>>): string {
  const about = [input.path, input.command, input.pattern, input.task].find((value) => typeof value === 'string');
  if (typeof about !== 'string') return name;
  const line = about.split('\n', 1)[0] ?? '';
  if (line.length <= MAX_NAME) return `${name} ${line}`;
  return `${name} ${line.slice(0, MAX_NAME)}…`;
}
