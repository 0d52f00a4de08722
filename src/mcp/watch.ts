// Following one worker until it has ended (19 §3.2).
import type { Confirmation, Delegation, MetisClient, Snapshot, StreamEvent } from '#client/client.ts';
import { type Clock, sleep } from '#protocol/clock.ts';
import type { Question } from './approvals.ts';

export interface Watcher {
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
