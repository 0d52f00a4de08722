// Rows of `nodes` and this node's lease: renewed in time or lost for good. The database's clock decides which nodes are active (16 §4.1, §4.4).

import type { Logger } from '#core/ports/logger.ts';
import type { NodeInfo } from '#core/ports/tree-ownership.ts';
import { orAbort } from '#protocol/abort.ts';
import { type Clock, sleep } from '#protocol/clock.ts';
import { StartupError } from '#protocol/errors.ts';
import type { IdGenerator } from '#protocol/ids.ts';
import { sha256Hex } from '#protocol/text/canonical-json.ts';
import type { Send } from '../postgres/connection/client.ts';
import { journalFault } from '../postgres/connection/faults.ts';
import { AWAIT_TURN, type Pool, REGISTRATION } from '../postgres/connection/pool.ts';
import { TAKE_NODE_LOCK } from './dead-nodes.ts';

type ConfigKeys = Readonly<Record<string, string>>;

export interface NodeSelf {
  readonly name: string;
  readonly url: string;
  readonly version: string;
  /** Places whose trees the node can own: `node:<name>`, `shared:<root>`. */
  readonly places: readonly string[];
  /** A hash of each configuration key that must be alike. */
  readonly configKeys: ConfigKeys;
  /** The newest schema of the database that this node knows. */
  readonly schema: number;
}

/** A node's report in a heartbeat. */
interface NodeState {
  readonly turns: number;
  readonly draining: boolean;
  /** Places whose trees it can own at this moment. */
  readonly places: readonly string[];
}

/** The oldest schema that a node must know to write; a migration raises it. */
const COMPATIBLE_FROM = "(SELECT CAST(value AS bigint) FROM meta WHERE key = 'compatible_from')";
const REGISTER = `INSERT INTO nodes (id, name, url, version, places, config_hash, config_keys, schema_version, lease_until)
  SELECT @id, @name, @url, @version, CAST(@places AS text[]), @configHash, @configKeys, @schema, clock_timestamp() + CAST(@lease AS interval)
  WHERE NOT EXISTS (SELECT 1 FROM nodes WHERE name = @name AND lease_until > clock_timestamp())`;
const BEAT = `UPDATE nodes SET lease_until = now() + CAST(@lease AS interval), turns = @turns, draining = CAST(@draining AS boolean),
    places = CAST(@places AS text[])
  WHERE id = @id AND lease_until > now() RETURNING ${COMPATIBLE_FROM} AS "compatibleFrom", ${TAKE_NODE_LOCK} AS locked`;
const TAKE_LOCK = `SELECT ${TAKE_NODE_LOCK} AS locked FROM nodes WHERE id = ?`;
const NAME_HOLDER = `SELECT id, CAST(lease_until AS text) AS lease,
    CAST(extract(epoch FROM lease_until - now()) * 1000 AS double precision) AS "leftMs"
  FROM nodes WHERE name = ? AND lease_until > now() ORDER BY lease_until DESC LIMIT 1`;
const LIST = `SELECT n.id, n.name, n.version, n.url, n.draining, array_to_json(n.places) AS places, n.turns,
    (SELECT count(*) FROM trees t WHERE t.owner_node = n.id) AS trees, n.config_keys
  FROM nodes n WHERE n.lease_until > now() ORDER BY n.name`;

/** False when an active node has the name. One node at a time: of two that register one name, the second sees the first. */
export async function register(pool: Pool, id: string, self: NodeSelf, leaseMs: number): Promise<boolean> {
  return pool.transaction(async (tx) => {
    tx.run(AWAIT_TURN, [REGISTRATION]);
    const configKeys = JSON.stringify(self.configKeys);
    const values = { ...self, configKeys, configHash: sha256Hex(configKeys), id, lease: interval(leaseMs) };
    const { changes } = await tx.send(REGISTER, values);
    return changes === 1;
  });
}

interface NameHolder {
  readonly id: string;
  /** End of the lease in the database; it changes with each renewal. */
  readonly lease: string;
  readonly leftMs: number;
}

/** The active node of this name, null without one. */
async function findNameHolder(send: Send, name: string): Promise<NameHolder | null> {
  return (await send<NameHolder>(NAME_HOLDER, [name])).rows[0] ?? null;
}

/** The oldest schema that a node must know; null when the lease has lapsed: it is never renewed. */
async function renewLease(
  send: Send,
  id: string,
  leaseMs: number,
  { turns, draining, places }: NodeState,
): Promise<number | null> {
  const values = { id, lease: interval(leaseMs), turns, draining: draining ? 'true' : 'false', places };
  const [row] = (await send<{ compatibleFrom: number | null }>(BEAT, values)).rows;
  if (row === undefined) return null;
  return row.compatibleFrom ?? 0;
}

async function readCompatibleFrom(send: Send): Promise<number> {
  const { rows } = await send<{ schema: number | null }>(`SELECT ${COMPATIBLE_FROM} AS schema`, []);
  return rows[0]?.schema ?? 0;
}

async function leaveCluster(send: Send, id: string): Promise<void> {
  await send('DELETE FROM nodes WHERE id = ?', [id]);
}

/** Condition of rows of nodes that no tree refers to. */
export const LONG_DEAD = `lease_until < now() - CAST('1 hour' AS interval)
  AND NOT EXISTS (SELECT 1 FROM trees t WHERE t.owner_node = nodes.id)`;

/** Rows of nodes that died long ago. */
export async function dropDead(send: Send): Promise<void> {
  await send(`DELETE FROM nodes WHERE ${LONG_DEAD}`, []);
}

export async function listNodes(send: Send, own: ConfigKeys): Promise<readonly NodeInfo[]> {
  interface Row extends Omit<NodeInfo, 'draining' | 'config_matches' | 'config_differs'> {
    readonly draining: number;
    readonly config_keys: string;
  }
  const { rows } = await send<Row>(LIST, []);
  return rows.map(({ config_keys, draining, ...node }) => {
    const keys = JSON.parse(config_keys) as ConfigKeys;
    const config_differs = listDifferentKeys(own, keys);
    // A node of an older version has no keys.
    const config_matches = config_differs.length === 0 && Object.keys(keys).length === Object.keys(own).length;
    return { ...node, draining: draining === 1, config_matches, config_differs };
  });
}

function listDifferentKeys(own: ConfigKeys, other: ConfigKeys): readonly string[] {
  if (Object.keys(other).length === 0) return [];
  return [...new Set([...Object.keys(own), ...Object.keys(other)])].filter((key) => own[key] !== other[key]).sort();
}

/** The same for a running server. Throws `StorageFault` while the database cannot be reached. */
export async function readNodes(send: Send, own: ConfigKeys): Promise<readonly NodeInfo[]> {
  try {
    return await listNodes(send, own);
  } catch (error) {
    throw journalFault(error);
  }
}

function interval(ms: number): string {
  return `${ms} milliseconds`;
}

const NOT_ALIKE =
  'configuration, registry or prices of this node differ from those of other nodes; make them alike (config_differs in GET /nodes)';
const NOT_REACHED =
  'other nodes give out the address of this one, so that neither is reached by the other; give each a cluster.advertise_url, or bind it to more than the loopback address';

/** Warns of nodes with another configuration, and of nodes that announce this node's address. */
export async function warnOfOthers(send: Send, self: NodeSelf, log: Logger): Promise<void> {
  const others = (await readNodes(send, self.configKeys)).filter(({ name }) => name !== self.name);
  const toNodeNames = (nodes: readonly NodeInfo[]) => nodes.map(({ name }) => name);
  const unlike = others.filter((each) => !each.config_matches);
  const keys = [...new Set(unlike.flatMap((each) => each.config_differs))].sort();
  if (unlike.length > 0) log.warn({ nodes: toNodeNames(unlike), keys }, NOT_ALIKE);
  const unreached = others.filter(({ url }) => url === self.url);
  if (unreached.length > 0) log.warn({ nodes: toNodeNames(unreached) }, NOT_REACHED);
}

interface LeaseOptions {
  readonly pool: Pool;
  /** A separate connection, so that heartbeats never wait behind other statements. */
  readonly heartbeat: Send;
  readonly leaseMs: number;
  readonly ids: IdGenerator;
  readonly clock: Clock;
  readonly log: Logger;
  /** Aborts a start that waits for its name; the signal's reason is thrown. */
  readonly leave?: AbortSignal;
}

interface Lease {
  /** This node's current id; a new one after a lapsed lease. */
  readonly node: string;
  /** Whether the lease is valid by this node's monotonic clock. False some time before it ends, since the database may be unreachable. */
  valid(): boolean;
  /** Why the lease is not valid; null while it is. */
  fault(): string | null;
  /** Milliseconds since the start of the last heartbeat that was confirmed; since the start of the node before the first. */
  ageMs(): number;
  /** Milliseconds until other nodes may take the held trees. */
  leftMs(): number;
  /**
   * Waits while a node that no longer renews its lease has the name.
   * Throws `StartupError('node_name_in_use')` where a running node has it.
   */
  join(self: NodeSelf): Promise<void>;
  /**
   * A node that is too old for a migration's schema stops renewing its lease.
   * @param lapsed called with the reason when the lease is lost, before the node registers under a new id
   */
  beat(how: NodeState, lapsed: (reason: string) => void): Promise<void>;
  leave(): Promise<void>;
}

/** Part of the lease after which held trees are dropped. */
const SAFE = 0.8;
const JOIN_AGAIN_MS = 500;
const OUTDATED =
  'a newer version has changed the database, which this node is too old to write; stop it and start the newer version';

export function createLease(options: LeaseOptions): Lease {
  const { pool, heartbeat, leaseMs, ids, clock, log, leave: stopWaiting = new AbortController().signal } = options;
  let self: NodeSelf | null = null;
  let node: string = ids.next();
  /** Start of the last successful heartbeat, monotonic milliseconds. */
  let goodAt = Number.NEGATIVE_INFINITY;
  let isOutdated = false;
  const startedAt = clock.monotonic();

  const isValid = () => !isOutdated && clock.monotonic() - goodAt < SAFE * leaseMs;

  /** Permanent: this node's writes could damage what newer nodes have stored. */
  function checkVersion(compatibleFrom: number, { schema }: NodeSelf, lapsed: (reason: string) => void): void {
    if (compatibleFrom <= schema) return;
    isOutdated = true;
    log.error({ needed: compatibleFrom, known: schema }, OUTDATED);
    lapsed('the database has a newer schema');
  }

  async function tryRegister(id: string, as: NodeSelf): Promise<boolean> {
    const from = clock.monotonic();
    if (!(await register(pool, id, as, leaseMs))) return false;
    node = id;
    goodAt = from;
    // If it fails, the next heartbeat takes the lock.
    await heartbeat(TAKE_LOCK, [id]).catch(() => {});
    return true;
  }

  return {
    get node() {
      return node;
    },
    valid: isValid,
    fault() {
      if (isOutdated) return OUTDATED;
      if (isValid()) return null;
      return 'this node has no valid lease: PostgreSQL did not confirm it in time';
    },
    ageMs: () => clock.monotonic() - Math.max(goodAt, startedAt),
    leftMs: () => Math.max(0, goodAt + leaseMs - clock.monotonic()),
    async join(as) {
      self = as;
      let firstLease: string | null = null;
      while (!(await tryRegister(node, as))) {
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
        await orAbort(sleep(clock, JOIN_AGAIN_MS), stopWaiting);
      }
    },
    async beat(state, lapsed) {
      if (self === null || isOutdated) return;
      const from = clock.monotonic();
      const compatibleFrom = await renewLease(heartbeat, node, leaseMs, state);
      if (compatibleFrom !== null) {
        goodAt = from;
        checkVersion(compatibleFrom, self, lapsed);
        return;
      }
      // A lapsed lease is never renewed: the node gets a new id and none of the trees that the old id held.
      goodAt = Number.NEGATIVE_INFINITY;
      lapsed('the lease has lapsed');
      checkVersion(await readCompatibleFrom(heartbeat), self, lapsed);
      if (isOutdated) return;
      if (await tryRegister(ids.next(), self)) log.warn({ node }, 'registered under a new id');
      else log.warn({ name: self.name }, 'another live node has this name; registered again as soon as it is gone');
    },
    leave: () => leaveCluster(heartbeat, node),
  };
}
