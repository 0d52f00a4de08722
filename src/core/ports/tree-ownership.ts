// Ownership of session trees: the owner writes a tree and runs its turns. In a cluster one node at a time, embedded always this process (16 §4).
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
  /** Keys whose values differ, and `registry` and `prices`; empty where they match, and for a node of an older version. */
  readonly config_differs: readonly string[];
}

/** The position of a tree's last commit in the database. */
export interface Standing {
  readonly root: string;
  readonly epoch: number;
  readonly seq: number;
}

export type Hold =
  /** Held here for as long as `release` has not been called. */
  | { readonly own: true; readonly epoch: number; release(): void }
  /** Owned by the node at `url`, or by no node if `url` is null; `place` is where its files are. */
  | { readonly own: false; readonly url: string | null; readonly epoch: number; readonly place: string };

/** Work on the trees that this node owns. */
export interface TreeWork {
  /** Top-level turns that run here. */
  running(): number;
  /** Whether work on the tree runs here. Such a tree is not released. */
  inUse(root: SessionId): boolean;
  /** Whether a client of this node watches the tree. It is released only if this node stops. */
  watched(root: SessionId): boolean;
  /**
   * Called with each tree that is claimed, before any other use: work that its last owner left unfinished is resumed (16 §4.3).
   * @param how.wanted its turn goes on unasked; `swept` = no request asked for it
   */
  takeUp(root: SessionId, how: { readonly wanted: boolean; readonly swept: boolean }): Promise<void>;
  /**
   * Called with each tree that this node no longer owns: it must neither run nor store it. Resolves when nothing runs.
   * @param patienceMs milliseconds after which work that still runs is killed
   */
  abandonTree(root: SessionId, patienceMs: number): Promise<void>;
}

export interface Trees {
  /** Whether other nodes may own trees too. */
  readonly several: boolean;
  /** Id of this node at this moment. */
  readonly node: string;
  /** The address at which other nodes reach this node; '' before it has joined. */
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
   * Claims a tree without an owner, or with `look` only reads its owner. Null when there is no such tree.
   * @param how absent = `claim`
   */
  hold(root: SessionId, how?: 'claim' | 'look'): Promise<Hold | null> | Hold;
  /** Whether this node holds it at this moment. */
  holds(root: string): boolean;
  /** Releases a tree whose work could not be stored: the next sweep claims it again, here or on another node. Embedded: does nothing. */
  release(root: SessionId): void;
  /** Registers a callback for lost or dropped trees: the process must neither write nor run them any more. */
  onLost(notify: (root: SessionId) => void): void;
  /** Stops claiming: the server shuts down, other nodes learn of it at once, and each tree is released when nothing of it runs here. */
  drain(): void;
  /** Releases all trees; other nodes continue the trees of unfinished turns. */
  releaseAll(): Promise<void>;
  nodes(): Promise<readonly NodeInfo[]>;
}
