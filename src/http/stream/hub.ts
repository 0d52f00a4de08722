// The open streams of this process: delivery of events, heartbeats, the limit, and shutdown (06 §4.3, §10, §12).

import type { People } from '#core/engine/manage-people.ts';
import type { LiveBus, Published } from '#core/ports/live-bus.ts';
import type { Logger } from '#core/ports/logger.ts';
import type { Store } from '#core/ports/store-reader.ts';
import type { Clock, Timer } from '#protocol/clock.ts';
import type { SessionId } from '#protocol/ids.ts';
import type { Person } from '#protocol/people/person.ts';
import { canSee } from '#protocol/people/rights.ts';
import type { CloseReason } from './frames.ts';
import { getSessionId, getWorkerLink } from './scope.ts';

const HEARTBEAT_MS = 30_000;
/** Below the 5 s within which a revoked token loses its streams, on every node (23 §2). */
const CHECK_RIGHTS_MS = 2000;

export interface HubPorts {
  readonly store: Store;
  readonly bus: LiveBus;
  readonly clock: Clock;
  readonly log: Logger;
  readonly people: People;
  readonly maxConnections: number;
}

/** A session stream that is subscribed to one tree. */
export interface Member {
  /** Takes one published item of the member's tree. Must return quickly. */
  offer(item: Published): void;
  /**
   * Some items of the tree were missed. The member reads committed events from the store, after the last event that it sent.
   * @param known resolves when the list of the tree's sessions is complete again
   */
  gap(known: Promise<void>): void;
  close(reason: CloseReason): void;
}

/** An open socket or SSE response, subscribed or not. */
export interface Connection {
  /** Called every 30 s. */
  sendHeartbeat(): unknown;
  /** Called when the server shuts down. */
  shutdown(): unknown;
}

/** A connection that is open as long as its token may see the session, or, without a token, as long as none is required. */
export interface Guarded {
  /** Of the token, empty without one. */
  readonly digest: string;
  readonly person: Person;
  /** Null = of no session. */
  readonly sessionId: string | null;
  end(reason: CloseReason): unknown;
}

export interface StreamHub extends HubPorts {
  /** @returns a function that removes it */
  guard(connection: Guarded): () => void;
  /**
   * Ends the connections of tokens that are not accepted any more, those without a token once one is required, and those
   * of sessions that were made private.
   */
  checkRights(): Promise<void>;
  /** The caller checks `isFull` first. After `close` the connection is shut down at once. @returns a function that removes it */
  connect(connection: Connection): () => void;
  isFull(): boolean;
  /** The number of open connections. */
  size(): number;
  /** Delivers every item of this tree to the member from now on. Resolves, once the tree's sessions are loaded, with a test for them. */
  join(root: SessionId, member: Member): Promise<(sessionId: string) => boolean>;
  leave(root: SessionId, member: Member): void;
  /** Closes the streams of a session that was deleted with its descendants. */
  closePurged(root: string): void;
  /** Closes every connection and stops listening to the bus. Idempotent. */
  close(): void;
}

interface Tree {
  readonly root: SessionId;
  readonly members: Set<Member>;
  /** Sessions of the tree known so far. */
  readonly sessions: Set<string>;
  ready: Promise<void>;
  /** Ends the subscription to items of other nodes. */
  stop: () => void;
}

/** Subscribes to the bus once for all clients. An event costs one look-up and reaches only the members of its tree. */
export function createStreamHub(ports: HubPorts): StreamHub {
  const { store, bus, clock, log, people, maxConnections } = ports;
  const trees = new Map<string, Tree>();
  const treeOf = new Map<string, Tree>();
  const connections = new Set<Connection>();
  const guarded = new Set<Guarded>();
  let heartbeat: Timer | null = null;
  let check: Timer | null = null;
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
    // These clients may have missed the item. They reconnect and resume after their last event.
    if (failed.length > 0) each(failed, (member) => member.close('internal_error'));
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
    // Each member awaits this promise itself. Without members a failure is ignored.
    tree.ready.catch(() => {});
    each(tree.members, (member) => member.gap(tree.ready));
  }
  function closePurged(root: string): void {
    each([...(trees.get(root)?.members ?? [])], (member) => member.close('session_purged'));
  }

  /** Continues after an element whose step throws. @returns the elements that failed */
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

  async function checkRights(): Promise<void> {
    if (guarded.size === 0) return;
    try {
      await (people.isRequired() ? people.refresh() : people.keepCurrent());
    } finally {
      // A token expires on a node without its database too.
      for (const one of [...guarded]) if (!people.isAccepted(one.digest)) one.end('unauthorized');
    }
    for (const one of [...guarded])
      if (one.sessionId !== null && (await isHiddenFrom(one.person, one.sessionId))) one.end('not_found');
  }
  async function isHiddenFrom(person: Person, sessionId: string): Promise<boolean> {
    const session = await store.sessions.record(sessionId);
    return session !== null && !canSee(person, session);
  }
  function scheduleCheck(): void {
    if (check !== null || guarded.size === 0 || closed) return;
    check = clock.after(CHECK_RIGHTS_MS, () => {
      checkRights()
        // The next check may find the database again.
        .catch((err: unknown) => log.warn({ err }, 'the rights of streams could not be checked'))
        .finally(() => {
          check = null;
          scheduleCheck();
        });
    });
  }

  function sendHeartbeats(): void {
    each([...connections], (connection) => connection.sendHeartbeat());
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
    guard(connection) {
      guarded.add(connection);
      scheduleCheck();
      return () => void guarded.delete(connection);
    },
    checkRights,
    closePurged,
    close() {
      unsubscribe();
      heartbeat?.cancel();
      check?.cancel();
      closed = true;
      each([...connections], (connection) => connection.shutdown());
    },
  };
}
