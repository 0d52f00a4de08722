// Marks results of background workers as delivered: each is in the history of its caller once (20 §9).
import type { Write } from '#core/ports/journal-writer.ts';
import type { DeliveryRecord } from '#protocol/delegate.ts';
import { draft, type EventDraft } from '#protocol/event.ts';
import type { EventId, MessageId, TurnId } from '#protocol/ids.ts';
import type { StoredMessage } from '#protocol/message.ts';
import type { Delegations, Runtime, Storage } from '../state/engine.ts';
import type { TurnBase } from '../state/turn-run.ts';

/** The results of the turn's background workers that are not in its history. */
export async function listDeliveries(
  { store, background }: Pick<Storage & Delegations, 'store' | 'background'>,
  { turn }: Pick<TurnBase, 'turn'>,
): Promise<readonly DeliveryRecord[]> {
  // A turn without a group in memory has none: one that resumes gets a group for them.
  if (background.get(turn.id) === null) return [];
  return store.delegations.deliveries(turn.id);
}

/** The write and the event by which a result is in the history from now on. */
export function markDelivered(
  engine: Runtime,
  { session, turn, started_event_id }: TurnBase,
  { id, worker_session_id, created_at }: DeliveryRecord,
  { message_id, ends }: { readonly message_id: MessageId; readonly ends: ReadonlyMap<string, EventId> },
): { readonly write: Write; readonly event: EventDraft } {
  const at = engine.clock.now();
  return {
    write: { kind: 'delivery.deliver', id, message_id, at },
    event: draft({
      type: 'delegate.delivered',
      session_id: session.id,
      turn_id: turn.id,
      parent: ends.get(worker_session_id) ?? started_event_id,
      payload: { worker_session_id, message_id, waited_ms: Math.max(0, at - created_at) },
    }),
  };
}

/** The events that closed the delegations of these results, by worker. */
export async function findEnds(
  { store }: Pick<Storage, 'store'>,
  turnId: TurnId,
  results: readonly DeliveryRecord[],
): Promise<ReadonlyMap<string, EventId>> {
  if (results.length === 0) return new Map();
  const ends = await store.events.listOfTurn(turnId, ['delegate.completed', 'delegate.failed']);
  return new Map(ends.map(({ id, payload }) => [payload.worker_session_id as string, id]));
}

/**
 * Marks the results that these tool messages hold as delivered: the calls of `workers` among them have read them.
 * To be stored with the messages.
 * @param deliveries of the turn that are not in its history
 */
export async function deliverWithAnswers(
  engine: Runtime & Storage,
  run: TurnBase,
  messages: readonly StoredMessage[],
  deliveries: readonly DeliveryRecord[],
): Promise<{ readonly writes: readonly Write[]; readonly events: readonly EventDraft[] }> {
  const byCall = new Map(messages.map(({ id, metadata }) => [metadata.parent_tool_use_id, id]));
  const read = deliveries.filter(({ read_by }) => read_by !== null && byCall.has(read_by));
  const ends = await findEnds(engine, run.turn.id, read);
  const marked = read.map((delivery) =>
    markDelivered(engine, run, delivery, { message_id: byCall.get(delivery.read_by)!, ends }),
  );
  return {
    writes: marked.map(({ write }) => write),
    events: marked.map(({ event }) => event),
  };
}
