// Server frames as text: one serialisation per event, whatever the number of clients (06 §4).

import type { Published } from '#core/ports/live-bus.ts';
import type { Store } from '#core/ports/store.ts';
import { isoTime } from '#protocol/clock.ts';
import type { Transient } from '#protocol/delta.ts';
import type { AppError } from '#protocol/errors.ts';
import type { AnyEvent } from '#protocol/event.ts';
import type { Subscription } from './subscription.ts';

export interface Frame {
  readonly type: 'subscribe_ack' | 'subscribe_error' | 'snapshot' | 'event';
  /** The cursor a client may resume from after this frame; null where the frame moves none. */
  readonly id: string | null;
  /** One line of JSON. */
  readonly text: string;
}

export type Snapshot = NonNullable<Awaited<ReturnType<Store['snapshot']>>>;

let newest: { readonly item: Published; readonly frame: Frame } | null = null;

/**
 * The frame of a published item, made once: an item is offered to all of its subscribers before the next one is.
 * @param root the root session of the item's tree: any other session of it is a worker
 */
export function frameOf(item: Published, root: string): Frame {
  if (newest?.item === item) return newest.frame;
  const frame =
    item.kind === 'event' ? eventFrame(item.event, item.payload_json) : transientFrame(item.transient, root);
  newest = { item, frame };
  return frame;
}

/** The envelope around the stored payload text; its other members are ids and names that need no escaping. */
export function eventFrame(event: Omit<AnyEvent, 'payload'>, payloadJson: string): Frame {
  const { id, timestamp, session_id, turn_id, parent_event_id, type, actor, sensitivity } = event;
  const text =
    `{"type":"event","event":{"id":"${id}","timestamp":"${timestamp}","session_id":"${session_id}",` +
    `"turn_id":${quoted(turn_id)},"parent_event_id":${quoted(parent_event_id)},"type":"${type}",` +
    `"actor":"${actor}","payload":${payloadJson},"sensitivity":"${sensitivity}","transient":false}}`;
  return { type: 'event', id, text };
}

function quoted(id: string | null): string {
  return id === null ? 'null' : `"${id}"`;
}

export function transientFrame({ session_id, turn_id, timestamp, delta }: Transient, root: string): Frame {
  const actor = session_id === root ? speaker(delta) : 'worker';
  const text =
    `{"type":"event","event":{"id":null,"timestamp":"${isoTime(timestamp)}","session_id":"${session_id}",` +
    `"turn_id":${quoted(turn_id)},"parent_event_id":null,"type":"${delta.type}",` +
    `"actor":"${actor}","payload":${payloadText(delta)},"sensitivity":null,"transient":true}}`;
  return { type: 'event', id: null, text };
}

/** By hand for what comes by the thousand. */
function payloadText({ type, payload }: Transient['delta']): string {
  if (type !== 'text.delta') return JSON.stringify(payload);
  const { message_id, content_block_index, text } = payload;
  return `{"message_id":"${message_id}","content_block_index":${content_block_index},"text":${JSON.stringify(text)}}`;
}

function speaker(delta: Transient['delta']): 'user' | 'tool' | 'agent' {
  if (delta.type !== 'message.appended') return 'agent';
  const { role } = delta.payload.message;
  return role === 'user' || role === 'tool' ? role : 'agent';
}

export function ackFrame({ types, include_worker_sessions, since, snapshot }: Subscription): Frame {
  const fields = { types: types === null ? null : [...types].sort(), include_worker_sessions, since, snapshot };
  return { type: 'subscribe_ack', id: null, text: JSON.stringify({ type: 'subscribe_ack', ...fields }) };
}

export function errorFrame({ code, message, details }: AppError): Frame {
  const fields = details === undefined ? { code, message } : { code, message, details };
  return { type: 'subscribe_error', id: null, text: JSON.stringify({ type: 'subscribe_error', ...fields }) };
}

export function snapshotFrame({ workers, ...rest }: Snapshot): Frame {
  const fields = workers === null ? rest : { ...rest, workers };
  return { type: 'snapshot', id: rest.snapshot_at_event_id, text: JSON.stringify({ type: 'snapshot', ...fields }) };
}
