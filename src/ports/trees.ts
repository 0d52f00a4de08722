// Who writes a tree and runs its turns: in a cluster one node at a time, embedded this process always (16 §4).
import type { SessionId } from '../kernel/ids.ts';

/** A node as others see it. */
export interface NodeInfo {
  readonly id: string;
  readonly name: string;
  readonly version: string;
  readonly url: string;
  readonly draining: boolean;
  readonly places: readonly string[];
  /** Top-level turns that run there. */
  readonly turns: number;
  /** Trees that it holds. */
  readonly trees: number;
  readonly config_matches: boolean;
}

export type Hold =
  /** Held here for as long as `release` has not been called. */
  | { readonly own: true; release(): void }
  /** Another node's, or of a place that this node has not. */
  | { readonly own: false; readonly url: string | null; readonly epoch: number };

export interface Trees {
  /** Claims a tree that nobody holds. Null when there is no such tree. */
  hold(root: SessionId): Promise<Hold | null> | Hold;
  /** Whether this node holds it at this moment. */
  holds(root: string): boolean;
  /** Tells of a tree that was taken away or dropped: nothing of it is to be written or run any more. */
  onLost(tell: (root: SessionId) => void): void;
  /** Gives up all that is held; the trees of unfinished turns go on elsewhere. */
  releaseAll(): Promise<void>;
  nodes(): Promise<readonly NodeInfo[]>;
}
