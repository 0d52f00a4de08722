// The trees that this node holds, as far as its writes have come (16 §3).

import type { Trees } from '#core/ports/tree-ownership.ts';

export interface Held {
  readonly root: string;
  readonly epoch: number;
  readonly place: string;
  /** Number of the last commit. */
  seq: number;
  /** The root's turn that has not ended. */
  turn: string | null;
}

/** Lost ones are told of when nothing of them runs here any more: what is kept of them goes. */
export interface HeldTrees extends Pick<Trees, 'onLost'> {
  readonly node: string;
  /** Whether anything is held: false some time before the lease ends. */
  valid(): boolean;
  /** Null for a tree that is another's, nobody's or was dropped. */
  get(root: string): Held | null;
  /** Before the commit that makes one; the function that it returns, once it is known what became of that. */
  opening(root: string): () => void;
  /** Of one that this node has just made. */
  adopt(root: string, place: string): Held;
  /** What is held of it turned out to be another's. */
  lost(root: string): void;
  /** Where a tree's files lie (16 §7). */
  placeOf(workspacePath: string): string;
}
