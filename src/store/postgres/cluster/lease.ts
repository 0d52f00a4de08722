// This node's row and its lease: renewed in time or lost for good, by its own clock and the database's (16 §4.1, §4.4).
import type { Clock } from '../../../kernel/clock.ts';
import { StartupError } from '../../../kernel/errors.ts';
import type { IdGenerator } from '../../../kernel/ids.ts';
import type { Logger } from '../../../ports/log.ts';
import type { Send } from '../connection/client.ts';
import { beat, leave, type NodeSelf, register } from './nodes.ts';

export interface LeaseOptions {
  /** A connection of its own: heartbeats wait behind nothing. */
  readonly heartbeat: Send;
  readonly leaseMs: number;
  readonly ids: IdGenerator;
  readonly clock: Clock;
  readonly log: Logger;
}

export interface Lease {
  /** This node's id at this moment; another one after a lapse. */
  readonly node: string;
  /** By the monotonic clock of this node, which may be cut off from the database: false some time before the lease ends. */
  valid(): boolean;
  /** Until others may take what is held, ms. */
  leftMs(): number;
  /** Throws `StartupError('node_name_in_use')`. */
  join(self: NodeSelf): Promise<void>;
  /** @param lapsed called when the lease is lost, before the node registers under a new id */
  beat(how: { readonly turns: number; readonly draining: boolean }, lapsed: () => void): Promise<void>;
  leave(): Promise<void>;
}

/** Of the lease; after that, what is held is dropped. */
const SAFE = 0.8;

export function createLease({ heartbeat, leaseMs, ids, clock, log }: LeaseOptions): Lease {
  let self: NodeSelf | null = null;
  let node: string = ids.next();
  /** Start of the last good heartbeat, monotonic. */
  let goodAt = Number.NEGATIVE_INFINITY;

  async function registered(id: string, as: NodeSelf): Promise<boolean> {
    const from = clock.monotonic();
    if (!(await register(heartbeat, id, as, leaseMs))) return false;
    node = id;
    goodAt = from;
    return true;
  }

  return {
    get node() {
      return node;
    },
    valid: () => clock.monotonic() - goodAt < SAFE * leaseMs,
    leftMs: () => Math.max(0, goodAt + leaseMs - clock.monotonic()),
    async join(as) {
      self = as;
      if (await registered(node, as)) return;
      throw new StartupError('node_name_in_use', [
        `node_name_in_use: a live node is called ${as.name}; give this one another cluster.node_name, or wait ${leaseMs / 1000} s after a crash`,
      ]);
    },
    async beat({ turns, draining }, lapsed) {
      if (self === null) return;
      const from = clock.monotonic();
      if (await beat(heartbeat, node, { leaseMs, turns, draining })) {
        goodAt = from;
        return;
      }
      // A lapsed lease is never renewed: a new id, and nothing of what the old one held.
      goodAt = Number.NEGATIVE_INFINITY;
      lapsed();
      if (await registered(ids.next(), self)) log.warn({ node }, 'registered under a new id');
      else log.warn({ name: self.name }, 'another live node has this name; registered again as soon as it is gone');
    },
    leave: () => leave(heartbeat, node),
  };
}
