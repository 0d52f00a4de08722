// Live fan-out of committed events and transient deltas, in one global order (02 §4). A wake-up: the journal is the truth.
import type { Transient } from '../domain/delta.ts';
import type { Event } from '../domain/event.ts';

/** An event with its payload as it was stored, so that nobody serialises it twice. */
export interface PublishedEvent {
  readonly kind: 'event';
  readonly event: Event;
  readonly payload_json: string;
}
export interface PublishedTransient {
  readonly kind: 'transient';
  readonly transient: Transient;
}
export type Published = PublishedEvent | PublishedTransient;

export type Subscriber = (items: readonly Published[]) => void;

export interface LiveBus {
  /** Calls every subscriber once, synchronously, in order of subscription. A throw is logged and disturbs nobody else. */
  publish(items: readonly Published[]): void;
  /** Returns the way to unsubscribe. */
  subscribe(name: string, subscriber: Subscriber): () => void;
  /** `message.start` of every assistant message in mid-stream of these sessions, with its content so far (06 §4.4). */
  openMessages(inScope: (sessionId: string) => boolean): readonly Transient[];
}
