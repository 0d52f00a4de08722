// The trees of this node: claimed for requests and in sweeps, held under a lease, released when idle (16 §4).
import type { Clock, Timer } from '../../../kernel/clock.ts';
import { StartupError } from '../../../kernel/errors.ts';
import type { IdGenerator, SessionId } from '../../../kernel/ids.ts';
import { type Places, placeOf } from '../../../policy/cluster/place.ts';
import type { Logger } from '../../../ports/log.ts';
import type { Hold, Trees, TreeWork } from '../../../ports/trees.ts';
import type { Send } from '../connection/client.ts';
import type { Pool } from '../connection/pool.ts';
import {
  abandon,
  type Claimant,
  type Claimed,
  claim,
  claimOf,
  claimOrphans,
  lapsedOwners,
  ownerOf,
  release,
  rootsOf,
} from './claim.ts';
import type { Held, HeldTrees } from './held.ts';
import { beat, dropDead, leave, listNodes, type NodeSelf, register } from './nodes.ts';

export interface TreesOptions {
  readonly pool: Pool;
  /** A connection of its own: heartbeats wait behind nothing. */
  readonly heartbeat: Send;
  /** Where files of trees may lie. */
  readonly files: Omit<Places, 'node_name'>;
  readonly leaseSeconds: number;
  readonly ids: IdGenerator;
  readonly clock: Clock;
  readonly log: Logger;
  /** How this node is known, once it is known where it listens. */
  readonly selfAt: (bound: { readonly url: string }) => NodeSelf;
}

export interface NodeTrees extends Trees, HeldTrees {
  close(): Promise<void>;
}

const SWEEP_MS = 1000;
const IDLE_MS = 30_000;
/** Of the lease; after that, what is held is dropped (16 §4.4). */
const SAFE = 0.8;

const NOT_ALIKE =
  'configuration, registry or prices of this node differ from those of other nodes; make them alike (config_matches in GET /nodes)';

interface Entry {
  readonly held: Held;
  users: number;
  idleSince: number;
}

export function createTrees(options: TreesOptions): NodeTrees {
  const { pool, heartbeat, clock, ids, log } = options;
  const leaseMs = options.leaseSeconds * 1000;
  const entries = new Map<string, Entry>();
  const claims = new Map<string, Promise<Entry | null>>();
  const lostListeners: ((root: SessionId) => void)[] = [];
  let self: NodeSelf = options.selfAt({ url: '' });
  let work: TreeWork = { running: () => 0, inUse: () => false, takeUp: async () => {} };
  let node: string = ids.next();
  /** Start of the last good heartbeat, monotonic. */
  let goodAt = Number.NEGATIVE_INFINITY;
  let draining = false;
  let closed = false;
  const timers = new Set<Timer>();

  const claimant = (): Claimant => ({ node, places: self.places });
  const valid = () => clock.monotonic() - goodAt < SAFE * leaseMs;

  function every(ms: number, upkeep: () => Promise<void>): void {
    const again = () => {
      const timer = clock.after(ms, () => {
        timers.delete(timer);
        if (closed) return;
        void upkeep()
          .catch((err: unknown) => log.warn({ err }, 'the database did not answer the upkeep of the node'))
          .finally(again);
      });
      timers.add(timer);
    };
    again();
  }

  function drop(root: string): void {
    if (!entries.delete(root)) return;
    for (const tell of lostListeners) tell(root as SessionId);
  }
  function dropAll(reason: string): void {
    if (entries.size > 0) log.warn({ trees: entries.size }, `trees dropped: ${reason}`);
    for (const root of [...entries.keys()]) drop(root);
  }

  async function heartbeatNow(): Promise<void> {
    const from = clock.monotonic();
    const alive = await beat(heartbeat, node, { leaseMs, turns: work.running(), draining });
    if (alive) {
      goodAt = from;
      return;
    }
    // A lapsed lease is never renewed: a new id, and nothing of what the old one held.
    dropAll('the lease has lapsed');
    const fresh = ids.next();
    const at = clock.monotonic();
    if (!(await register(heartbeat, fresh, self, leaseMs))) {
      log.warn({ name: self.name }, 'another live node has this name; registered again as soon as it is gone');
      return;
    }
    node = fresh;
    goodAt = at;
    log.warn({ node }, 'registered under a new id');
  }
  /** By this node's own clock: it may be cut off from the database. */
  function watchLease(): void {
    if (!valid()) dropAll('no heartbeat in time');
  }

  async function enter(claimed: Claimed, swept: boolean): Promise<Entry> {
    const { lastId, wanted, ...held } = claimed;
    // Ids of the tree go on rising, whatever the clock of its last owner said.
    ids.seed(lastId);
    const entry: Entry = { held, users: 1, idleSince: clock.monotonic() };
    entries.set(held.root, entry);
    try {
      await work.takeUp(held.root as SessionId, { wanted, swept });
    } finally {
      leaveEntry(entry);
    }
    return entry;
  }
  function leaveEntry(entry: Entry): void {
    entry.users -= 1;
    entry.idleSince = clock.monotonic();
  }

  /** One claim at a time of each tree. */
  function claimOne(root: string): Promise<Entry | null> {
    const under = claims.get(root);
    if (under !== undefined) return under;
    const claiming = (async () => {
      const claimed = await claim(pool, claimant(), root);
      return claimed && enter(claimed, false);
    })().finally(() => claims.delete(root));
    claims.set(root, claiming);
    return claiming;
  }

  async function sweep(): Promise<void> {
    if (draining || !valid()) return;
    await takeAll(() => claimOrphans(pool, claimant()));
    for (const lapsed of await lapsedOwners(pool.send)) {
      await abandon(pool.send, lapsed);
      await takeAll(() => claimOf(pool, claimant(), lapsed));
    }
    // A claim whose answer was lost left a row behind.
    for (const root of await rootsOf(pool.send, node)) {
      if (!entries.has(root) && !claims.has(root)) await claimOne(root);
    }
    await dropDead(pool.send);
  }
  async function takeAll(find: () => Promise<Claimed[]>): Promise<void> {
    for (const claimed of await find()) {
      if (entries.has(claimed.root) || claims.has(claimed.root)) continue;
      const entering = enter(claimed, true).finally(() => claims.delete(claimed.root));
      claims.set(claimed.root, entering);
      entering.catch((err: unknown) => log.error({ err, session_id: claimed.root }, 'a tree could not be taken up'));
    }
  }

  async function releaseIdle(): Promise<void> {
    const now = clock.monotonic();
    for (const [root, entry] of entries) {
      if (entry.users > 0 || entry.held.turn !== null || work.inUse(root as SessionId)) entry.idleSince = now;
      else if (now - entry.idleSince >= IDLE_MS) await letGo(root, entry);
    }
  }
  async function letGo(root: string, { held }: Entry): Promise<void> {
    entries.delete(root);
    await release(pool.send, node, held);
    for (const tell of lostListeners) tell(root as SessionId);
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
        leaveEntry(entry);
      },
    };
  }

  return {
    several: true,
    get node() {
      return node;
    },
    get url() {
      return self.url;
    },
    get: (root) => (valid() ? (entries.get(root)?.held ?? null) : null),
    adopt(root, place) {
      const held: Held = { root, epoch: 1, place, seq: 0, turn: null };
      entries.set(root, { held, users: 0, idleSince: clock.monotonic() });
      return held;
    },
    lost: drop,
    placeOf: (workspacePath) => placeOf(workspacePath, { node_name: self.name, ...options.files }),
    holds: (root) => valid() && entries.has(root),
    async hold(root, how = 'claim') {
      const known = valid() ? entries.get(root) : undefined;
      if (known !== undefined) {
        // Whoever comes while it is being taken up waits for that.
        await claims.get(root);
        if (entries.get(root) === known) return own(known);
      }
      if (how === 'claim' && !draining && valid()) {
        const claimed = await claimOne(root);
        if (claimed !== null && entries.get(root) === claimed) return own(claimed);
      }
      const owner = await ownerOf(pool.send, root);
      return owner && { own: false, url: owner.url, epoch: owner.epoch, place: owner.place };
    },
    onLost: (tell) => void lostListeners.push(tell),
    async releaseAll() {
      for (const [root, entry] of [...entries]) await letGo(root, entry);
    },
    nodes: () => listNodes(pool.send, self.configHash),
    drain() {
      draining = true;
    },
    ready: () => !draining && valid(),
    async join(bound, treeWork) {
      self = options.selfAt(bound);
      work = treeWork;
      const from = clock.monotonic();
      if (!(await register(heartbeat, node, self, leaseMs))) {
        throw new StartupError('node_name_in_use', [
          `node_name_in_use: a live node is called ${self.name}; give this one another cluster.node_name, or wait ${options.leaseSeconds} s after a crash`,
        ]);
      }
      goodAt = from;
      const others = (await listNodes(pool.send, self.configHash)).filter((each) => !each.config_matches);
      if (others.length > 0) log.warn({ nodes: others.map(({ name }) => name) }, NOT_ALIKE);
      every(leaseMs / 5, heartbeatNow);
      every(leaseMs / 20, async () => watchLease());
      every(SWEEP_MS, sweep);
      every(SWEEP_MS, releaseIdle);
    },
    async close() {
      closed = true;
      for (const timer of timers) timer.cancel();
      await Promise.allSettled(claims.values());
      for (const [root, { held }] of [...entries]) {
        entries.delete(root);
        await release(pool.send, node, held).catch(() => {});
      }
      await leave(heartbeat, node).catch(() => {});
    },
  };
}
