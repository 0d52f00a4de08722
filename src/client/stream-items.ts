// Items of a stream: events with the payload of their type, and snapshots (06 §4).
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
  /** Tokens of the session's own calls, and of each of its `workers`. */
  readonly tokens: readonly SnapshotTokens[];
}
export interface SnapshotTokens {
  readonly session_id: string;
  readonly input_tokens: number;
  readonly cached_input_tokens: number;
  readonly cache_creation_input_tokens: number;
  readonly output_tokens: number;
}
export interface EventFrame {
  readonly type: 'event';
  readonly event: StreamEvent;
}
export type StreamItem = Snapshot | EventFrame;

// Labels of what a session waits for (20 §6), the same in a terminal and in the dashboard.

export type Waiting = Session['waiting_on'][number];

const WORDS: Readonly<Record<Waiting['kind'], string>> = {
  approval: 'an approval',
  budget: 'a higher budget',
  model: 'the model',
  tool: 'a tool',
  worker: 'a worker',
  slot: 'a place in the queue',
};

/** `an approval`; a kind that is not known stands as it is. */
export function wordsFor(kind: Waiting['kind']): string {
  return WORDS[kind] ?? kind;
}

/** Without those that wait for a worker: they wait for what that worker waits for. */
export function waitingEnds(waiting: readonly Waiting[]): readonly Waiting[] {
  return waiting.filter(({ kind }) => kind !== 'worker');
}
