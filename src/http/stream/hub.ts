// All connected stream clients of the process: event distribution, heartbeats, the limit, and shutdown (06 §4.3, §10, §12).

import type { LiveBus, Published } from '#core/ports/live-bus.ts';
import type { Logger } from '#core/ports/logger.ts';
import type { Store } from '#core/ports/store-reader.ts';
import type { Clock, Timer } from '#protocol/clock.ts';
import type { SessionId } from '#protocol/ids.ts';
import type { CloseReason } from './frames.ts';
import { getSessionId, getWorkerLink } from './scope.ts';

const HEARTBEAT_MS = 30_000;

export interface HubPorts {
  readonly store: Store;
  readonly bus: LiveBus;
  readonly clock: Clock;
  readonly log: Logger;
  readonly maxConnections: number;
}

/** A stream as the hub sees it. */
export interface Member {
  /** One published item of the member's tree. Synchronous and quick. */
  offer(item: Published): void;
  /**
   * Items of the tree were missed: what was committed is read again, from the last event that was sent.
   * @param known resolves when the hub knows the sessions of the tree again
   */
  gap(known: Promise<void>): void;
  close(reason: CloseReason): void;
}

/** An open socket or SSE response, subscribed or not. */
export interface Connection {
  /** Every 30 s. */
  beat(): unknown;
  /** The server goes down. */
  shutdown(): unknown;
}

export interface StreamHub extends HubPorts {
  /** The caller checks `full` first. Returns the way out. Shut down at once when the hub has closed. */
  connect(connection: Connection): () => void;
  isFull(): boolean;
  /** Open connections. */
  size(): number;
  /** Hands the member every item of this tree from now on. Resolves, when its sessions are known, with a test for them. */
  join(root: SessionId, member: Member): Promise<(sessionId: string) => boolean>;
  leave(root: SessionId, member: Member): void;
  /** The session and its descendants are gone. */
  purged(root: string): void;
  /** Closes every connection and stops listening to the bus. Idempotent. */
  close(): void;
}

interface Tree {
  readonly root: SessionId;
  readonly members: Set<Member>;
  /** Sessions of the tree known so far. */
  readonly sessions: Set<string>;
  ready: Promise<void>;
  /** Ends what is heard from other nodes. */
  stop: () => void;
}

/** One subscriber of the bus for all clients. An event costs one look-up, and touches only the members of its tree. */
export function createStreamHub(ports: HubPorts): StreamHub {
  const { store, bus, clock, log, maxConnections } = ports;
  const trees = new Map<string, Tree>();
  const treeOf = new Map<string, Tree>();
  const connections = new Set<Connection>();
  let heartbeat: Timer | null = null;
  let closed = false;

  const unsubscribe = bus.subscribe('stream-hub', (items) => {
    if (trees.size === 0) return;
    each(items, deliverItem);
  });

  function deliverItem(item: Published): void {
    const link = getWorkerLink(item);
    const joined = link === null ? undefined : trees.get(link.root);
    if (link !== null && joined !== undefined) adopt(joined, link.session);
    const tree = treeOf.get(getSessionId(item));
    if (tree === undefined) return;
    const failed = each(tree.members, (member) => member.offer(item));
    // They may have missed it: their clients resume after the last event they have.
    each(failed, (member) => member.close('internal_error'));
  }

  function adopt(tree: Tree, sessionId: string): void {
    tree.sessions.add(sessionId);
    treeOf.set(sessionId, tree);
  }

  async function load(tree: Tree): Promise<void> {
    for (const id of await store.sessions.descendants(tree.root)) if (trees.get(tree.root) === tree) adopt(tree, id);
  }

  function watchTree(root: SessionId): Tree {
    const tree: Tree = { root, members: new Set(), sessions: new Set(), ready: Promise.resolve(), stop: () => {} };
    trees.set(root, tree);
    adopt(tree, root);
    const { ready, stop } = bus.watch(root, {
      deliver: (items) => each(items, deliverItem),
      gap: () => reloadTree(tree),
      gone: () => closePurged(root),
    });
    tree.stop = stop;
    tree.ready = ready.then(() => load(tree));
    return tree;
  }

  function reloadTree(tree: Tree): void {
    tree.ready = load(tree);
    // Each member awaits it by itself; without members the failure is ignored.
    tree.ready.catch(() => {});
    each(tree.members, (member) => member.gap(tree.ready));
  }
  function closePurged(root: string): void {
    each([...(trees.get(root)?.members ?? [])], (member) => member.close('session_purged'));
  }

  /** What goes wrong with one must not keep the rest from theirs. Returns those that failed. */
  function each<T>(all: Iterable<T>, step: (one: T) => unknown): T[] {
    const failed: T[] = [];
    for (const one of all) {
      try {
        step(one);
      } catch (err) {
        log.error({ err }, 'a stream failed');
        failed.push(one);
      }
    }
    return failed;
  }

  function sendHeartbeats(): void {
    each([...connections], (connection) => connection.beat());
    heartbeat = connections.size === 0 ? null : clock.after(HEARTBEAT_MS, sendHeartbeats);
  }

  return {
    ...ports,
    isFull: () => connections.size >= maxConnections,
    size: () => connections.size,
    connect(connection) {
      connections.add(connection);
      heartbeat ??= clock.after(HEARTBEAT_MS, sendHeartbeats);
      if (closed) connection.shutdown();
      return () => void connections.delete(connection);
    },
    async join(root, member) {
      const tree = trees.get(root) ?? watchTree(root);
      tree.members.add(member);
      await tree.ready;
      return (sessionId) => tree.sessions.has(sessionId);
    },
    leave(root, member) {
      const tree = trees.get(root);
      if (tree === undefined || !tree.members.delete(member) || tree.members.size > 0) return;
      trees.delete(root);
      tree.stop();
      for (const id of tree.sessions) treeOf.delete(id);
    },
    purged: closePurged,
    close() {
      unsubscribe();
      heartbeat?.cancel();
      closed = true;
      each([...connections], (connection) => connection.shutdown());
    },
  };
}
