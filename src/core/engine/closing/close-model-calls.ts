// Model calls that were announced and never settled: each gets its one outcome, whoever ends their turn (00 §3 step 4).

import { DAY_MS } from '#core/policy/analytics/rollup.ts';
import type { LlmCallCompleted } from '#protocol/event/llm.ts';
import { type AnyEvent, draft, type EventDraft } from '#protocol/event.ts';
import { type SessionId, type TurnId, ulidFloor, ulidTime } from '#protocol/ids.ts';
import type { Engine } from '../state/engine.ts';

/**
 * Every call that was under way when its process or its loop died is a failed one; whether it was billed nobody can know.
 * @param turnId absent = of every open turn
 */
export async function closeOpenCalls(engine: Engine, turnId?: TurnId): Promise<void> {
  const open = await engine.store.events.openCalls(turnId);
  const ofClients = turnId === undefined ? await openGatewayCalls(engine) : [];
  for (const call of [...open, ...ofClients]) await engine.journal.commit({ emit: [unknownOutcome(call)] });
}

/** The same of a tree that was just claimed: the calls of its open turns, and those that its client made. */
export async function closeCallsOfTree(engine: Engine, root: SessionId): Promise<void> {
  for (const { id } of await engine.store.turns.allOpen(root)) await closeOpenCalls(engine, id);
  const session = await engine.store.sessions.record(root);
  if (session?.door !== 'gateway') return;
  for (const call of await openGatewayCalls(engine, root))
    await engine.journal.commit({ emit: [unknownOutcome(call)] });
}

/** Key in `meta`: an event id up to which every call has its outcome. */
const SETTLED_THROUGH = 'calls_settled_through';

/** What a server that goes down in order leaves for its next start: no call runs any more, and none is looked for before here. */
export async function keepSettled({ store, journal }: Engine): Promise<void> {
  const value = await store.events.newestId();
  if (value !== null && value !== (await store.meta(SETTLED_THROUGH)))
    await journal.commit({ writes: [{ kind: 'meta.set', key: SETTLED_THROUGH, value }], emit: [] });
}

/** A call is given up long before: what was begun earlier has its outcome. */
const LONGEST_CALL_MS = 2 * DAY_MS;

/** No turn leads to them, so they are looked for among what happened last. */
async function openGatewayCalls({ store }: Engine, root?: SessionId): Promise<readonly AnyEvent[]> {
  const newest = await store.events.newestId();
  if (newest === null) return [];
  const recent = ulidFloor(Math.max(0, ulidTime(newest) - LONGEST_CALL_MS));
  const settled = (await store.meta(SETTLED_THROUGH)) ?? '';
  return store.events.openGatewayCalls(settled > recent ? settled : recent, root);
}

/** The same for the batch that ends the turn, behind which nothing can be stored of it any more. */
export async function openCallOutcomes(engine: Engine, turnId: TurnId): Promise<readonly EventDraft[]> {
  return (await engine.store.events.openCalls(turnId)).map(unknownOutcome);
}

function unknownOutcome(call: AnyEvent): EventDraft {
  const started = call.payload as unknown as Pick<
    LlmCallCompleted,
    'model' | 'provider' | 'request_id' | 'is_worker' | 'parent_session_id' | 'root_session_id'
  >;
  return draft({
    type: 'llm.call_failed',
    session_id: call.session_id,
    turn_id: call.turn_id as TurnId | null,
    parent: call.id,
    payload: {
      model: started.model,
      provider: started.provider,
      error_class: 'other',
      error_message_redacted: 'cut off with its outcome unknown',
      retry_count: 0,
      latency_ms: 0,
      request_id: started.request_id,
      is_worker: started.is_worker,
      parent_session_id: started.parent_session_id,
      root_session_id: started.root_session_id,
    },
  });
}
