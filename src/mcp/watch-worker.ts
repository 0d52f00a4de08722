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

export type Question = Pick<
  Confirmation,
  'confirmation_request_id' | 'tool_name' | 'input_summary' | 'command_summary' | 'allowed_scopes' | 'expires_at'
>;

/** What a client answered with. */
export interface FormAnswer {
  readonly action: 'accept' | 'decline' | 'cancel';
  readonly content?: Readonly<Record<string, unknown>> | undefined;
}

export function formFor(question: Question, who: string): ElicitRequestFormParams {
  const choices = [
    'approve',
    ...(question.allowed_scopes.includes('identical') ? ['approve identical'] : []),
    'reject',
  ];
  return {
    mode: 'form',
    message: `${who} wants to use ${whatFor(question)}`,
    requestedSchema: {
      type: 'object',
      properties: {
        decision: {
          type: 'string',
          title: 'Decision',
          description: 'approve identical: the same call passes again without asking',
          enum: choices,
        },
      },
      required: ['decision'],
    },
  };
}

export function whatFor({ tool_name, command_summary, input_summary }: Question): string {
  return `${tool_name}: ${command_summary ?? input_summary}`;
}

/** Null leaves it to whoever answers elsewhere: clients without anybody in front of them cancel at once. */
function decisionOf({ action, content }: FormAnswer): ConfirmationAnswer | null {
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

/** False where the question stays open. Somebody who was faster is right. */
export async function answerWith(client: MetisClient, id: string, answer: FormAnswer): Promise<boolean> {
  const decision = decisionOf(answer);
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
  /** How the worker stands, when the watching begins and whenever events were lost. */
  stands(snapshot: Snapshot): void;
  seen(event: StreamEvent): void;
  /** True ends the watching. */
  asked(question: Question): boolean;
  answered(confirmationId: string): void;
}

/** `ended`: its delegation has its outcome. `stopped`: by the signal, or by the watcher. */
export async function watchWorker(
  client: MetisClient,
  worker: string,
  watcher: Watcher,
  signal: AbortSignal,
): Promise<'ended' | 'stopped'> {
  for await (const item of client.stream(worker, { snapshot: true, include_worker_sessions: true, signal })) {
    if (item.type === 'snapshot') {
      if (item.session.ended_at !== null) return 'ended';
      watcher.stands(item);
      for (const question of item.pending_confirmations as readonly Confirmation[])
        if (watcher.asked(question)) return 'stopped';
      continue;
    }
    const { event } = item;
    if (event.type === 'session.ended' && event.session_id === worker) return 'ended';
    if (event.type === 'tool.confirmation_requested') {
      if (watcher.asked(event.payload)) return 'stopped';
    } else if (event.type === 'tool.confirmation_resolved') watcher.answered(event.payload.confirmation_request_id);
    watcher.seen(event);
  }
  return signal.aborted ? 'stopped' : 'ended';
}

/** The session's own delegation of this call; null where there is none. */
export async function delegationOf(client: MetisClient, root: string, call: string): Promise<Delegation | null> {
  const { workers } = await client.listWorkers(root, { tool_use_id: call });
  return workers[0] ?? null;
}

/** The same by its worker. */
export async function delegationOfWorker(
  client: MetisClient,
  root: string,
  worker: string,
): Promise<Delegation | null> {
  const { parent_tool_use_id: call } = await client.getSession(worker);
  return call === null ? null : delegationOf(client, root, call);
}

export async function* delegations(client: MetisClient, root: string): AsyncGenerator<Delegation> {
  let cursor: string | undefined;
  do {
    const page = await client.listWorkers(root, { limit: 200, ...(cursor === undefined ? {} : { cursor }) });
    yield* page.workers;
    cursor = page.next_cursor ?? undefined;
  } while (cursor !== undefined);
}

const PAUSE_MS = 100;
const TRIES = 100;

/** Stops the worker: the turn that it is in, or the next that it begins. */
export async function cancelWorker(client: MetisClient, clock: Clock, worker: string): Promise<void> {
  for (let i = 0; i < TRIES; i++) {
    const { ended_at, current_turn_id } = await client.getSession(worker);
    if (ended_at !== null) return;
    if (current_turn_id !== null) {
      await client.cancelTurn(worker, current_turn_id, { reason: 'the call was cancelled' });
      return;
    }
    await sleep(clock, PAUSE_MS);
  }
}

// Progress lines read like `fast worker · edit_file src/a.ts · 3 calls · $0.0041`.

/** At most one in this time, and at least one in that. */
const LEAST_MS = 1000;
const MOST_MS = 25_000;
const MAX_NAME = 80;

interface Progress {
  stands(snapshot: Snapshot): void;
  seen(event: StreamEvent): void;
  /** What a person is asked for, and where; null when nothing waits any more. */
  waits(text: string | null): void;
  stop(): void;
}

const SILENT: Progress = { stands() {}, seen() {}, waits() {}, stop() {} };

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
  let lastAt = -LEAST_MS;
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
    later(MOST_MS);
  }
  function later(ms: number): void {
    timer?.cancel();
    timer = clock.after(ms, send);
  }
  function changed(): void {
    later(Math.max(0, LEAST_MS - (clock.monotonic() - lastAt)));
  }

  send();
  return {
    stands({ session, messages }) {
      const said = messages.filter(({ role }) => role === 'assistant');
      calls = said.length;
      cost = toPusd(session.cost_so_far_usd) + toPusd(session.workers_cost_usd);
      const call = said.at(-1)?.content.findLast((block) => block.type === 'tool_use');
      if (call !== undefined) doing = toolLine(call.name, call.input);
      changed();
    },
    seen(event) {
      if (stopped) return;
      switch (event.type) {
        case 'tool.use_start':
          tools.set(event.payload.tool_use_id, event.payload.tool_name);
          return;
        case 'tool.use_end':
          doing = toolLine(tools.get(event.payload.tool_use_id) ?? 'a tool', event.payload.final_input);
          return changed();
        case 'llm.call_started':
          doing = 'thinks';
          return changed();
        case 'llm.call_completed':
          calls += 1;
          cost += toPusd(event.payload.cost_usd);
          return changed();
        default:
      }
    },
    waits(text) {
      waiting = text;
      changed();
    },
    stop() {
      stopped = true;
      timer?.cancel();
    },
  };
}

/** `edit_file src/a.ts`: the tool and the one thing that tells what it is about. */
function toolLine(name: string, input: Readonly<Record<string, unknown>>): string {
  const about = [input.path, input.command, input.pattern, input.task].find((value) => typeof value === 'string');
  if (typeof about !== 'string') return name;
  const line = about.split('\n', 1)[0] ?? '';
  return `${name} ${line.length > MAX_NAME ? `${line.slice(0, MAX_NAME)}…` : line}`;
}
