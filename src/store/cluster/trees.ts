// The trees of this node: claimed for requests and in sweeps, held under a lease, released when idle (16 §4).
import { findPlace, type Places } from '#core/policy/cluster/tree-place.ts';
import type { Logger } from '#core/ports/logger.ts';
import type { NodeFigures, TakeOverCause } from '#core/ports/meter.ts';
import type { Hold, Trees, TreeWork } from '#core/ports/tree-ownership.ts';
import type { Clock, Timer } from '#protocol/clock.ts';
import type { IdGenerator, SessionId } from '#protocol/ids.ts';
import type { Send } from '../postgres/connection/client.ts';
import { isTransient, journalFault } from '../postgres/connection/faults.ts';
import type { Pool } from '../postgres/connection/pool.ts';
import { createDeathWatch } from './dead-nodes.ts';
import { createLease, dropDead, type NodeSelf, readNodes, warnOfOthers } from './node-lease.ts';
import type { RootWatch } from './shared-roots.ts';
import {
  abandon,
  type Claimant,
  type Claimed,
  claim,
  claimLapsedTrees,
  claimOrphans,
  type Held,
  type HeldTrees,
  inspectTrees,
  listRoots,
  readOwner,
  releaseClaim,
} from './tree-claims.ts';

interface Unsettled {
  /** Called before the statement. The returned function is called once the outcome is known. */
  begin(root: string): () => void;
  /** Trees whose rows are written from now on, those of running statements included. The next watch ends the list. */
  watch(): ReadonlySet<string>;
}

function createUnsettled(): Unsettled {
  const now = new Set<string>();
  let seen = new Set<string>();
  return {
    begin(root) {
      now.add(root);
      seen.add(root);
      return () => void now.delete(root);
    },
    watch() {
      seen = new Set(now);
      return seen;
    },
  };
}

interface Upkeep {
  /** Repeats the work, `ms` after it last ended. */
  every(ms: number, work: () => Promise<void> | void): void;
  /** Does the work now. */
  once(work: () => Promise<void>): void;
  stop(): void;
}

function createUpkeep(clock: Clock, log: Logger): Upkeep {
  const timers = new Set<Timer>();
  const repeated = new Set<() => Promise<void> | void>();
  let stopped = false;
  /** Work whose last attempt failed: only the first failure and the end of the last one are worth a line. */
  const failing = new Set<() => Promise<void> | void>();
  async function attempt(work: () => Promise<void> | void): Promise<void> {
    try {
      await work();
      if (failing.delete(work) && failing.size === 0) log.info({}, 'the database answers the upkeep of the node again');
    } catch (err) {
      if (failing.size === 0 || !isTransient(err))
        log.warn({ err }, 'the database does not answer the upkeep of the node');
      if (repeated.has(work)) failing.add(work);
    }
  }
  return {
    once: (work) => void (stopped || attempt(work)),
    every(ms, work) {
      repeated.add(work);
      const scheduleNext = () => {
        if (stopped) return;
        const timer = clock.after(ms, () => {
          timers.delete(timer);
          void attempt(work).finally(scheduleNext);
        });
        timers.add(timer);
      };
      scheduleNext();
    },
    stop() {
      stopped = true;
      for (const timer of timers) timer.cancel();
    },
  };
}

interface TreesOptions {
  readonly pool: Pool;
  /** A separate connection, so that heartbeats never wait behind other statements. */
  readonly heartbeat: Send;
  /** Places that hold files of trees. */
  readonly files: Omit<Places, 'node_name'>;
  readonly roots: RootWatch;
  readonly leaseSeconds: number;
  readonly ids: IdGenerator;
  readonly clock: Clock;
  readonly log: Logger;
  /** Aborts a start that waits for its name; the signal's reason is thrown. */
  readonly leave?: AbortSignal;
  /** This node's announced address, once it listens. */
  readonly selfAt: (bound: { readonly url: string }) => NodeSelf;
}

export interface NodeTrees extends Trees, HeldTrees {
  figures(): Pick<NodeFigures, 'lease_age_seconds' | 'trees_held' | 'takeovers' | 'trees_dropped'>;
  close(): Promise<void>;
}

const SWEEP_MS = 1000;
const ROOTS_MS = 5000;
const IDLE_MS = 30_000;
/** Interval at which a node that shuts down releases unused trees. */
const LEAVING_MS = 100;
/** Maximum wait for a request to end after its tree was lost. */
const LONGEST_REQUEST_MS = 10_000;

const NO_WORK: TreeWork = {
  running: () => 0,
  inUse: () => false,
  watched: () => false,
  takeUp: async () => {},
  abandonTree: async () => {},
};

interface Entry {
  readonly held: Held;
  users: number;
  idleSince: number;
  /** Called when the last request that uses the tree has ended. */
  unused: () => void;
}

export function createTrees(options: TreesOptions): NodeTrees {
  const { pool, clock, ids, log } = options;
  const leaseMs = options.leaseSeconds * 1000;
  const lease = createLease({ ...options, leaseMs });
  const upkeep = createUpkeep(clock, log);
  const deaths = createDeathWatch(pool.send, log);
  const entries = new Map<string, Entry>();
  const claims = new Map<string, Promise<Entry | null>>();
  /** Dropped trees whose work still runs here. */
  const leaving = new Map<string, Promise<void>>();
  /** Rows with a statement under way: of new trees and of released ones. */
  const unsettled = createUnsettled();
  /** Rows may name this node for trees that it dropped: the next sweep looks for them. */
  let dropped = false;
  const lostListeners: ((root: SessionId) => void)[] = [];
  let self: NodeSelf = options.selfAt({ url: '' });
  let work: TreeWork = NO_WORK;
  let draining = false;
  const takeovers = { released: 0, lapsed: 0 };
  let treesDropped = 0;

  const places = () => options.roots.filterPlaces(self.places);
  const claimant = (): Claimant => ({ node: lease.node, places: places() });

  function drop(root: string): void {
    const entry = entries.get(root);
    if (entry === undefined) return;
    entries.delete(root);
    dropped = true;
    const stopped = Promise.all([work.abandonTree(root as SessionId, lease.leftMs()), unused(entry)])
      .catch((err: unknown) => log.error({ err, session_id: root }, 'a tree that was lost did not stop'))
      .then(() => {
        leaving.delete(root);
        for (const listener of lostListeners) listener(root as SessionId);
      });
    leaving.set(root, stopped);
  }
  function dropAll(reason: string): void {
    if (entries.size > 0) log.warn({ trees: entries.size }, `trees dropped: ${reason}`);
    for (const root of [...entries.keys()]) lose(root);
  }
  function lose(root: string): void {
    if (entries.has(root)) treesDropped += 1;
    drop(root);
  }
  function unused(entry: Entry): Promise<void> {
    if (entry.users === 0) return Promise.resolve();
    return new Promise((resolve) => {
      const timer = clock.after(LONGEST_REQUEST_MS, resolve);
      entry.unused = () => {
        timer.cancel();
        resolve();
      };
    });
  }

  const beat = () => lease.beat({ turns: work.running(), draining, places: places() }, dropAll);

  async function enterTree(claimed: Claimed, swept: boolean): Promise<Entry> {
    const { lastId, wanted, lastOwner: _, ...held } = claimed;
    // Work of the tree that still runs here belongs to the earlier claim: none of it may be stored under this one.
    await leaving.get(held.root);
    // Ids of the tree keep rising, independently of its last owner's clock.
    ids.seed(lastId);
    const entry: Entry = { held, users: 1, idleSince: clock.monotonic(), unused: () => {} };
    entries.set(held.root, entry);
    try {
      await work.takeUp(held.root as SessionId, { wanted, swept });
    } catch (error) {
      // A claimed tree whose work was not resumed is released; the sweep finds it again.
      if (entries.get(held.root) === entry) drop(held.root);
      throw error;
    } finally {
      leaveTree(entry);
    }
    return entry;
  }
  function leaveTree(entry: Entry): void {
    entry.users -= 1;
    entry.idleSince = clock.monotonic();
    if (entry.users === 0) entry.unused();
  }

  /** One claim at a time of each tree. */
  function claimOne(root: string): Promise<Entry | null> {
    const under = claims.get(root);
    if (under !== undefined) return under;
    const claiming = (async () => {
      await leaving.get(root);
      const claimed = await claim(pool, claimant(), root);
      if (claimed === null) return null;
      if (claimed.lastOwner !== null && claimed.lastOwner !== lease.node) takeovers.lapsed += 1;
      else if (claimed.lastOwner === null && claimed.wanted) takeovers.released += 1;
      return enterTree(claimed, false);
    })().finally(() => claims.delete(root));
    claims.set(root, claiming);
    return claiming;
  }

  async function sweep(): Promise<void> {
    if (draining || !lease.valid()) return;
    const here = entries.size;
    const written = unsettled.watch();
    const found = await inspectTrees(pool.send, claimant());
    if (found.orphans) await takeAll('released', () => claimOrphans(pool, claimant()));
    for (const lapsed of found.lapsed) await takeFrom(lapsed);
    // A claim with a lost answer and a dropped tree each leave a row behind.
    if (dropped || found.own !== here) {
      dropped = leaving.size > 0;
      for (const root of await listRoots(pool.send, lease.node)) {
        // The row may have changed since it was read: the next sweep reads it again.
        if (written.has(root)) dropped = true;
        else if (!entries.has(root) && !claims.has(root) && !leaving.has(root)) {
          claimOne(root).catch(notTakenUp(root));
        }
      }
    }
    if (found.dead) await dropDead(pool.send);
    deaths.observe(found.peers, (died) => upkeep.once(() => takeFrom(died)));
  }
  /** Takes trees of a node whose lease has ended. */
  async function takeFrom(lapsed: string): Promise<void> {
    if (draining || !lease.valid()) return;
    await abandon(pool.send, lapsed);
    await takeAll('lapsed', () => claimLapsedTrees(pool, claimant(), lapsed));
  }
  async function takeAll(cause: TakeOverCause, find: () => Promise<Claimed[]>): Promise<void> {
    for (const claimed of await find()) {
      const { root } = claimed;
      if (entries.has(root) || claims.has(root)) continue;
      takeovers[cause] += 1;
      const entering = enterTree(claimed, true).finally(() => claims.delete(root));
      claims.set(root, entering);
      entering.catch(notTakenUp(root));
    }
  }
  const notTakenUp = (root: string) => (err: unknown) => {
    dropped = true;
    log.warn({ err, session_id: root }, 'a tree could not be taken up; tried again');
  };

  async function releaseIdle(): Promise<void> {
    const now = clock.monotonic();
    for (const [root, entry] of entries) {
      if (entry.users > 0 || entry.held.turn !== null || isOfUse(root as SessionId)) entry.idleSince = now;
      else if (now - entry.idleSince >= IDLE_MS) await letGo(root, entry);
    }
  }
  const isOfUse = (root: SessionId) => work.inUse(root) || work.watched(root);
  /** Used by a node that stops: its turns are interrupted and no request uses the tree. Who watches it here goes on watching. */
  async function releaseUnused(): Promise<void> {
    for (const [root, entry] of entries) {
      if (entry.users === 0 && !work.inUse(root as SessionId)) await letGo(root, entry);
    }
  }
  async function letGo(root: string, { held }: Entry): Promise<void> {
    const settled = unsettled.begin(root);
    drop(root);
    await releaseClaim(pool.send, lease.node, held).finally(settled);
  }

  function own(entry: Entry): Hold {
    entry.users += 1;
    let released = false;
    return {
      own: true,
      epoch: entry.held.epoch,
      release() {
        if (released) return;
        released = true;
        leaveTree(entry);
      },
    };
  }

  return {
    several: true,
    get node() {
      return lease.node;
    },
    get url() {
      return self.url;
    },
    valid: lease.valid,
    get: (root) => (lease.valid() ? (entries.get(root)?.held ?? null) : null),
    opening: unsettled.begin,
    adopt(root, place) {
      const held: Held = { root, epoch: 1, place, seq: 0, turn: null };
      entries.set(root, { held, users: 0, idleSince: clock.monotonic(), unused: () => {} });
      return held;
    },
    lost: lose,
    release: drop,
    placeOf: (workspacePath) => findPlace(workspacePath, { node_name: self.name, ...options.files }),
    holds: (root) => lease.valid() && entries.has(root),
    async hold(root, how = 'claim') {
      const known = lease.valid() ? entries.get(root) : undefined;
      if (known !== undefined) {
        // Requests during a claim wait for its end.
        await claims.get(root);
        if (entries.get(root) === known) return own(known);
      }
      try {
        if (how === 'claim' && !draining && lease.valid()) {
          const claimed = await claimOne(root);
          if (claimed !== null && entries.get(root) === claimed) return own(claimed);
        }
        const owner = await readOwner(pool.send, root);
        return owner && { own: false, url: owner.url, epoch: owner.epoch, place: owner.place };
      } catch (error) {
        throw journalFault(error);
      }
    },
    figures: () => ({
      lease_age_seconds: lease.ageMs() / 1000,
      trees_held: entries.size,
      takeovers: { ...takeovers },
      trees_dropped: treesDropped,
    }),
    onLost: (notify) => void lostListeners.push(notify),
    async releaseAll() {
      for (const [root, entry] of [...entries]) await letGo(root, entry);
    },
    nodes: () => readNodes(pool.send, self.configKeys),
    drain() {
      draining = true;
      // If this heartbeat fails, the next one reports it.
      beat().catch((err: unknown) => log.warn({ err }, 'the other nodes learn later that this one goes down'));
      upkeep.every(LEAVING_MS, releaseUnused);
    },
    unready: () => (draining ? 'this node goes down' : (lease.fault() ?? options.roots.fault())),
    async join(bound, treeWork) {
      self = options.selfAt(bound);
      work = treeWork;
      await lease.join(self);
      await warnOfOthers(pool.send, self, log);
      upkeep.every(leaseMs / 5, beat);
      upkeep.every(leaseMs / 20, () => {
        if (!lease.valid()) dropAll('no heartbeat in time');
      });
      upkeep.every(ROOTS_MS, options.roots.check);
      upkeep.every(SWEEP_MS, sweep);
      upkeep.every(SWEEP_MS, releaseIdle);
    },
    async close() {
      upkeep.stop();
      await Promise.allSettled(claims.values());
      for (const [root, entry] of [...entries]) await letGo(root, entry).catch(() => {});
      await Promise.all(leaving.values());
      await lease.leave().catch(() => {});
    },
  };
}
