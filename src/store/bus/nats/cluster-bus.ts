// Live fan-out over several nodes: this node sends its publications as frames and delivers frames of other nodes to its watchers (16 §6).
import type { LiveBus, Position, Published, Watcher } from '#core/ports/live-bus.ts';
import type { Logger } from '#core/ports/logger.ts';
import type { Store } from '#core/ports/store-reader.ts';
import type { Standing } from '#core/ports/tree-ownership.ts';
import { type Clock, sleep, type Timer } from '#protocol/clock.ts';
import { createSubscribers } from '../memory/local-bus.ts';
import type { Link } from './link.ts';
import { createInbox, createOutbox, type Inbox } from './mailbox.ts';
import { createTree, settleMessage, type Tree } from './tree.ts';

export interface ClusterBusOptions {
  /** Prefix of the subjects. */
  readonly cluster: string;
  /** Null = no NATS: nothing is encoded, and commits of other nodes are found by polling the database. */
  readonly link: Link | null;
  /** The secret that only the nodes of this cluster know. */
  readonly key: Buffer;
  /** Whether this node holds the tree. */
  readonly owns: (root: string) => boolean;
  /** Of the given trees, those that exist. */
  readonly standings: (roots: readonly string[]) => Promise<readonly Standing[]>;
  readonly store: Pick<Store, 'messages' | 'turns'>;
  readonly clock: Clock;
  readonly log: Logger;
}

export interface ClusterBus extends LiveBus {
  /** This node holds the tree no longer. */
  forget(root: string): void;
  close(): Promise<void>;
}

const POLL_MS = 1000;
/** After this time, a commit that the database has and whose frame did not arrive counts as missed. */
const LATE_FRAME_MS = 250;

interface Followed {
  readonly tree: Tree;
  readonly watcher: Watcher;
  readonly inbox: Inbox;
  /** Ends the subscription. */
  readonly deaf: () => void;
}

export function createClusterBus(options: ClusterBusOptions): ClusterBus {
  const { link, owns, standings, clock, log } = options;
  const subscribers = createSubscribers(log);
  /** Trees of which this node has published, and trees that it watches. */
  const trees = new Map<string, Tree>();
  const followed = new Map<string, Followed>();
  const outbox = link && createOutbox({ ...options, link }, (root) => trees.get(root) ?? null);
  let timer: Timer | null = null;
  let polling = false;
  /** The last poll failed. */
  let isUnanswered = false;

  link?.onChange((up) => {
    const others = [...followed.values()].filter(({ tree }) => !owns(tree.root));
    for (const { tree } of others) {
      // Frames that were sent meanwhile are lost.
      tree.breakOff();
      if (up) ask(tree);
    }
    if (up) void poll();
  });

  function getTree(root: string): Tree {
    const tree = trees.get(root) ?? createTree(root);
    trees.set(root, tree);
    return tree;
  }
  function ask({ root }: Tree): void {
    if (!owns(root)) outbox?.ask(root);
  }
  function deliverTo({ root }: Tree, items: readonly Published[]): void {
    if (items.length > 0) followed.get(root)?.watcher.deliver(items);
  }
  function reportGap(tree: Tree): void {
    tree.breakOff();
    followed.get(tree.root)?.watcher.gap();
    ask(tree);
  }

  function publishCommit(items: readonly Published[], at: Position): void {
    const tree = getTree(at.root);
    const { ends, gap } = tree.own(items, at, clock.now());
    deliverTo(tree, ends);
    if (gap) followed.get(at.root)?.watcher.gap();
    outbox?.send(tree, items, at);
  }

  function follow(root: string, watcher: Watcher): Followed {
    const tree = getTree(root);
    tree.watch();
    const inbox = createInbox(tree, options, {
      deliver: (items) => deliverTo(tree, items),
      gap: () => reportGap(tree),
      ask: () => ask(tree),
    });
    const one = { tree, watcher, inbox, deaf: outbox?.listen(root, inbox.enqueue) ?? (() => {}) };
    followed.set(root, one);
    timer ??= clock.after(POLL_MS, pollNext);
    return one;
  }
  /** The subscription precedes the read, so no later commit is missed. */
  async function begin(one: Followed): Promise<void> {
    const { tree, watcher, inbox } = one;
    await link?.flush();
    const [standing] = await standings([tree.root]);
    if (followed.get(tree.root) !== one) return;
    if (standing === undefined) return watcher.gone();
    deliverTo(tree, tree.place(standing, clock.now()));
    inbox.open();
    ask(tree);
  }
  function unfollow(one: Followed): void {
    one.deaf();
    one.inbox.close();
    const { tree } = one;
    if (followed.get(tree.root) !== one) return;
    followed.delete(tree.root);
    tree.unwatch();
    if (!owns(tree.root)) trees.delete(tree.root);
  }

  function pollNext(): void {
    timer = followed.size === 0 ? null : clock.after(POLL_MS, pollNext);
    void poll();
  }
  async function poll(): Promise<void> {
    if (polling) return;
    polling = true;
    try {
      const others = [...followed.values()].filter(({ tree }) => tree.placed && !owns(tree.root));
      if (others.length === 0) return;
      await catchUp(others);
      isUnanswered = false;
    } catch (err) {
      if (!isUnanswered) log.warn({ err }, 'the database does not say how far the trees of other nodes have come');
      isUnanswered = true;
    } finally {
      polling = false;
    }
  }
  async function catchUp(others: readonly Followed[]): Promise<void> {
    const behind = await findBehind(others);
    // Without NATS nothing is on its way.
    if (behind.size > 0 && link?.up()) await sleep(clock, LATE_FRAME_MS);
    for (const [{ tree }, seq] of behind) if (tree.skipTo(seq)) reportGap(tree);
    for (const { tree } of others) if (tree.watched) deliverTo(tree, await settleMessage(tree, options));
  }
  /** Trees with a commit whose frame was not received, by the number of that commit. */
  async function findBehind(others: readonly Followed[]): Promise<ReadonlyMap<Followed, number>> {
    const before = others.map(({ tree }) => tree.seen);
    const found = await standings(others.map(({ tree }) => tree.root));
    const byRoot = new Map(found.map((standing) => [standing.root, standing]));
    const behind = new Map<Followed, number>();
    for (const [i, one] of others.entries()) {
      const { tree, watcher } = one;
      if (followed.get(tree.root) !== one) continue;
      const standing = byRoot.get(tree.root);
      if (standing === undefined) {
        watcher.gone();
        continue;
      }
      deliverTo(tree, tree.raise(standing.epoch, clock.now()));
      if (standing.seq > tree.seen) behind.set(one, standing.seq);
      else if (standing.seq < before[i]!) {
        tree.fallBack(standing.seq);
        reportGap(tree);
      }
    }
    return behind;
  }

  return {
    publish(items, at) {
      // Nothing is published for a tree of another node: watchers read its commits there.
      if (at !== undefined && (owns(at.root) || followed.has(at.root))) publishCommit(items, at);
      if (items.length > 0) subscribers.call(items);
    },
    subscribe: subscribers.add,
    openMessages: (inScope) => [...trees.values()].flatMap((tree) => tree.listed(inScope)),
    watch(root, watcher) {
      const one = follow(root, watcher);
      return { ready: begin(one), stop: () => unfollow(one) };
    },
    forget(root) {
      if (!followed.has(root)) trees.delete(root);
    },
    isWatched: (root) => followed.has(root),
    async close() {
      timer?.cancel();
      for (const one of [...followed.values()]) unfollow(one);
      // The last published frames are still being sent.
      await link?.flush();
      await link?.close();
    },
  };
}
