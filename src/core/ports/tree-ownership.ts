// Who writes a tree and runs its turns: in a cluster one node at a time, embedded this process always (16 §4).
import type { SessionId } from '#protocol/ids.ts';

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

/** How far a tree's commits have come, as the database has it. */
export interface Standing {
  readonly root: string;
  readonly epoch: number;
  readonly seq: number;
}

export type Hold =
  /** Held here for as long as `release` has not been called. */
  | { readonly own: true; readonly epoch: number; release(): void }
  /** Another node's, where `url` is told, else nobody's; `place` is where its files lie. */
  | { readonly own: false; readonly url: string | null; readonly epoch: number; readonly place: string };

/** What is done here with the trees that are held. */
export interface TreeWork {
  /** Top-level turns that run here. */
  running(): number;
  /** Whether something of the tree is under way here, or watched: it is not given up then. */
  inUse(root: SessionId): boolean;
  /**
   * Called with each tree that is claimed, before anybody uses it: what its last owner left unfinished is taken up (16 §4.3).
   * @param how.wanted its turn goes on unasked; `swept` = no request asked for it
   */
  takeUp(root: SessionId, how: { readonly wanted: boolean; readonly swept: boolean }): Promise<void>;
  /**
   * Called with each tree that is held no longer: nothing of it is run or stored any more. Resolves when nothing runs.
   * @param patienceMs after which whatever still runs is to be killed
   */
  lost(root: SessionId, patienceMs: number): Promise<void>;
}

export interface Trees {
  /** Whether other nodes may own trees too. */
  readonly several: boolean;
  /** Id of this node at this moment. */
  readonly node: string;
  /** Where other nodes reach it; '' before it has joined them. */
  readonly url: string;
  /** Why this node may not serve; null while its lease is valid by its own clock. */
  unready(): string | null;
  /**
   * From now on trees are claimed, and others may send requests for them.
   * @param bound where this server listens
   * Throws `StartupError('node_name_in_use')`.
   */
  join(bound: { readonly url: string }, work: TreeWork): Promise<void>;
  /**
   * Claims a tree that nobody holds, unless it is only to be looked at. Null when there is no such tree.
   * @param how absent = `claim`
   */
  hold(root: SessionId, how?: 'claim' | 'look'): Promise<Hold | null> | Hold;
  /** Whether this node holds it at this moment. */
  holds(root: string): boolean;
  /** Drops a tree whose work could not be stored: the next sweep takes it up, here or elsewhere. Embedded: does nothing. */
  giveUp(root: SessionId): void;
  /** Tells of a tree that was taken away or dropped: nothing of it is to be written or run any more. */
  onLost(tell: (root: SessionId) => void): void;
  /** No more claims: the server goes down, and each tree is given up as its turns are put down. */
  drain(): void;
  /** Gives up all that is held; the trees of unfinished turns go on elsewhere. */
  releaseAll(): Promise<void>;
  nodes(): Promise<readonly NodeInfo[]>;
}
