// What a stream yields: events with the payload of their type, and snapshots (06 §4).
import type { Confirmation } from '#protocol/confirmation.ts';
import type { Delegation } from '#protocol/delegate.ts';
import type { Delta, TransientType } from '#protocol/delta.ts';
import type { AnyEvent, EventType, PayloadOf } from '#protocol/event.ts';
import type { Message } from '#protocol/message.ts';
import type { Session } from '#protocol/session.ts';

/** As the event log holds it. */
export type LoggedEvent = {
  readonly [T in EventType]: Omit<AnyEvent, 'type' | 'payload'> & { readonly type: T; readonly payload: PayloadOf<T> };
}[EventType];
/** A stored event on a stream; its id is the cursor. */
export type StoredEvent = LoggedEvent & { readonly transient: false };
/** Seen while a model speaks, never stored. */
export type TransientEvent = {
  readonly id: null;
  readonly session_id: string;
  readonly turn_id: string | null;
  readonly timestamp: string;
  readonly transient: true;
} & Delta;
export type StreamEvent = StoredEvent | TransientEvent;
export type StreamEventType = EventType | TransientType;

/** The state as it is; every event after it has an id above `snapshot_at_event_id`. */
export interface Snapshot {
  readonly type: 'snapshot';
  readonly session: Session;
  readonly messages: readonly Message[];
  readonly snapshot_at_event_id: string | null;
  readonly pending_confirmations: readonly Confirmation[];
  readonly workers?: readonly Delegation[];
}
export interface EventFrame {
  readonly type: 'event';
  readonly event: StreamEvent;
}
export type StreamItem = Snapshot | EventFrame;
