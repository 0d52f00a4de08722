// This node's row and its lease: renewed in time or lost for good, by its own clock and the database's (16 §4.1, §4.4).

import type { Logger } from '#core/ports/logger.ts';
import { orAbort } from '#protocol/abort.ts';
import type { Clock } from '#protocol/clock.ts';
import { StartupError } from '#protocol/errors.ts';
import type { IdGenerator } from '#protocol/ids.ts';
import type { Send } from '../postgres/connection/client.ts';
import { pause } from '../postgres/connection/pause.ts';
import type { Pool } from '../postgres/connection/pool.ts';
import { beat, findNameHolder, leave, type NodeSelf, type NodeState, readCompatibleFrom, register } from './nodes.ts';

export interface LeaseOptions {
  readonly pool: Pool;
  /** A connection of its own: heartbeats wait behind nothing. */
  readonly heartbeat: Send;
  readonly leaseMs: number;
  readonly ids: IdGenerator;
  readonly clock: Clock;
  readonly log: Logger;
  /** Ends a start that waits for its name, with its reason. */
  readonly leave?: AbortSignal;
}

export interface Lease {
  /** This node's id at this moment; another one after a lapse. */
  readonly node: string;
  /** By the monotonic clock of this node, which may be cut off from the database: false some time before the lease ends. */
  valid(): boolean;
  /** Why it is false; null while it is true. */
  fault(): string | null;
  /** Until others may take what is held, ms. */
  leftMs(): number;
  /**
   * Waits while a node that no longer renews its lease has the name.
   * Throws `StartupError('node_name_in_use')` where a running node has it.
   */
  join(self: NodeSelf): Promise<void>;
  /**
   * A node that a migration has made too old renews its lease no more.
   * @param lapsed called with the reason when the lease is lost, before the node registers under a new id
   */
  beat(how: NodeState, lapsed: (reason: string) => void): Promise<void>;
  leave(): Promise<void>;
}

/** Of the lease; after that, what is held is dropped. */
const SAFE = 0.8;
const JOIN_AGAIN_MS = 500;
const OUTDATED =
  'a newer version has changed the database, which this node is too old to write; stop it and start the newer version';

export function createLease(options: LeaseOptions): Lease {
  const { pool, heartbeat, leaseMs, ids, clock, log, leave: stopWaiting = new AbortController().signal } = options;
  let self: NodeSelf | null = null;
  let node: string = ids.next();
  /** Start of the last good heartbeat, monotonic. */
  let goodAt = Number.NEGATIVE_INFINITY;
  let isOutdated = false;

  const isValid = () => !isOutdated && clock.monotonic() - goodAt < SAFE * leaseMs;

  /** For good: what this node writes may break what newer nodes have stored. */
  function checkVersion(compatibleFrom: number, { schema }: NodeSelf, lapsed: (reason: string) => void): void {
    if (compatibleFrom <= schema) return;
    isOutdated = true;
    log.error({ needed: compatibleFrom, known: schema }, OUTDATED);
    lapsed('the database has a newer schema');
  }

  async function registered(id: string, as: NodeSelf): Promise<boolean> {
    const from = clock.monotonic();
    if (!(await register(pool, id, as, leaseMs))) return false;
    node = id;
    goodAt = from;
    return true;
  }

  return {
    get node() {
      return node;
    },
    valid: isValid,
    fault() {
      if (isOutdated) return OUTDATED;
      return isValid() ? null : 'this node has no valid lease: PostgreSQL did not confirm it in time';
    },
    leftMs: () => Math.max(0, goodAt + leaseMs - clock.monotonic()),
    async join(as) {
      self = as;
      let firstLease: string | null = null;
      while (!(await registered(node, as))) {
        const holder = await findNameHolder(pool.send, as.name);
        if (holder !== null && firstLease === null) {
          firstLease = holder.lease;
          log.warn(
            { name: as.name, node: holder.id, seconds: Math.ceil(holder.leftMs / 1000) },
            'the lease of an earlier node of this name has not ended; waiting for its end',
          );
        } else if (holder !== null && holder.lease !== firstLease) {
          throw new StartupError('node_name_in_use', [
            `node_name_in_use: a running node is called ${as.name}; give this one another cluster.node_name`,
          ]);
        }
        await orAbort(pause(clock, JOIN_AGAIN_MS), stopWaiting);
      }
    },
    async beat(state, lapsed) {
      if (self === null || isOutdated) return;
      const from = clock.monotonic();
      const compatibleFrom = await beat(heartbeat, node, leaseMs, state);
      if (compatibleFrom !== null) {
        goodAt = from;
        checkVersion(compatibleFrom, self, lapsed);
        return;
      }
      // A lapsed lease is never renewed: a new id, and nothing of what the old one held.
      goodAt = Number.NEGATIVE_INFINITY;
      lapsed('the lease has lapsed');
      checkVersion(await readCompatibleFrom(heartbeat), self, lapsed);
      if (isOutdated) return;
      if (await registered(ids.next(), self)) log.warn({ node }, 'registered under a new id');
      else log.warn({ name: self.name }, 'another live node has this name; registered again as soon as it is gone');
    },
    leave: () => leave(heartbeat, node),
  };
}
