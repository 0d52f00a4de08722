// Live fan-out of committed events and transient deltas, in one global order (02 §4). A wake-up: the journal is the truth.
import type { Transient } from '#protocol/delta.ts';
import type { Event } from '#protocol/event.ts';
import type { SessionId } from '#protocol/ids.ts';

/** An event with its payload as it was stored, so that it is serialised once. */
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

/** The position of items in a tree whose commits are numbered (16 §3.1). */
export interface Position {
  readonly root: string;
  readonly epoch: number;
  /** Number of the commit that published the items, or of the last commit before them. */
  readonly seq: number;
  /** Whether they are all that this commit publishes, which may be nothing; else transient items alone. */
  readonly commit: boolean;
}

/** Follows a tree that another node may own (16 §6). */
export interface Watcher {
  /** Items that another node published, after those before them. */
  deliver(items: readonly Published[]): void;
  /** Items are missing: what was committed must be read from the store, from the last event that was delivered. */
  gap(): void;
  /** The tree no longer exists. */
  gone(): void;
}

export interface Watch {
  /** Resolves when nothing that is committed from then on will be missed. Rejects when the store does not answer. */
  readonly ready: Promise<void>;
  stop(): void;
}

export interface LiveBus {
  /**
   * Calls every subscriber once, synchronously, in order of subscription. An error of one subscriber is logged and does not reach the others.
   * @param at in a cluster, for items of a tree: nodes that watch it get them too
   */
  publish(items: readonly Published[], at?: Position): void;
  /** Returns the function that unsubscribes. */
  subscribe(name: string, subscriber: Subscriber): () => void;
  /** `message.start` of every assistant message in mid-stream of these sessions, with its content so far (06 §4.4). */
  openMessages(inScope: (sessionId: string) => boolean): readonly Transient[];
  /** One watcher a tree. Items that this node publishes go to the subscribers alone. */
  watch(root: SessionId, watcher: Watcher): Watch;
  /** In a cluster, whether a watcher of this node follows the tree. */
  isWatched(root: SessionId): boolean;
}
