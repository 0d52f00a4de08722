// Rows of `nodes`: who lives, by the database's clock alone (16 §4.1).
import type { NodeInfo } from '#core/ports/tree-ownership.ts';
import { AWAIT_TURN, REGISTRATION } from '../postgres/connection/advisory.ts';
import type { Send } from '../postgres/connection/client.ts';
import type { Pool } from '../postgres/connection/pool.ts';
import { journalFault } from '../postgres/write/conflict.ts';

export interface NodeSelf {
  readonly name: string;
  readonly url: string;
  readonly version: string;
  /** What it can own: `node:<name>`, `shared:<root>`. */
  readonly places: readonly string[];
  readonly configHash: string;
  /** The newest schema of the database that this node knows. */
  readonly schema: number;
}

/** What a heartbeat reports of its node. */
export interface NodeState {
  readonly turns: number;
  readonly draining: boolean;
  /** What it can own at this moment. */
  readonly places: readonly string[];
}

/** The oldest schema that a node must know to write; a migration raises it. */
const COMPATIBLE_FROM = "(SELECT CAST(value AS bigint) FROM meta WHERE key = 'compatible_from')";
const REGISTER = `INSERT INTO nodes (id, name, url, version, places, config_hash, schema_version, lease_until)
  SELECT @id, @name, @url, @version, CAST(@places AS text[]), @configHash, @schema, clock_timestamp() + CAST(@lease AS interval)
  WHERE NOT EXISTS (SELECT 1 FROM nodes WHERE name = @name AND lease_until > clock_timestamp())`;
const BEAT = `UPDATE nodes SET lease_until = now() + CAST(@lease AS interval), turns = @turns, draining = CAST(@draining AS boolean),
    places = CAST(@places AS text[])
  WHERE id = @id AND lease_until > now() RETURNING ${COMPATIBLE_FROM} AS "compatibleFrom"`;
const NAME_HOLDER = `SELECT id, CAST(lease_until AS text) AS lease,
    CAST(extract(epoch FROM lease_until - now()) * 1000 AS double precision) AS "leftMs"
  FROM nodes WHERE name = ? AND lease_until > now() ORDER BY lease_until DESC LIMIT 1`;
const LIST = `SELECT n.id, n.name, n.version, n.url, n.draining, array_to_json(n.places) AS places, n.turns,
    (SELECT count(*) FROM trees t WHERE t.owner_node = n.id) AS trees, n.config_hash
  FROM nodes n WHERE n.lease_until > now() ORDER BY n.name`;

/** False when an active node has the name. One node at a time: of two that register one name, the second sees the first. */
export async function register(pool: Pool, id: string, self: NodeSelf, leaseMs: number): Promise<boolean> {
  return pool.transaction(async (tx) => {
    tx.run(AWAIT_TURN, [REGISTRATION]);
    const { changes } = await tx.send(REGISTER, { ...self, id, lease: interval(leaseMs) });
    return changes === 1;
  });
}

export interface NameHolder {
  readonly id: string;
  /** Its end as the database has it: another value after each renewal. */
  readonly lease: string;
  readonly leftMs: number;
}

/** The active node of this name, null without one. */
export async function findNameHolder(send: Send, name: string): Promise<NameHolder | null> {
  return (await send<NameHolder>(NAME_HOLDER, [name])).rows[0] ?? null;
}

/** The oldest schema that a node must know; null when the lease has lapsed: it is never renewed. */
export async function beat(
  send: Send,
  id: string,
  leaseMs: number,
  { turns, draining, places }: NodeState,
): Promise<number | null> {
  const values = { id, lease: interval(leaseMs), turns, draining: draining ? 'true' : 'false', places };
  const [row] = (await send<{ compatibleFrom: number | null }>(BEAT, values)).rows;
  return row === undefined ? null : (row.compatibleFrom ?? 0);
}

export async function readCompatibleFrom(send: Send): Promise<number> {
  const { rows } = await send<{ schema: number | null }>(`SELECT ${COMPATIBLE_FROM} AS schema`, []);
  return rows[0]?.schema ?? 0;
}

export async function leave(send: Send, id: string): Promise<void> {
  await send('DELETE FROM nodes WHERE id = ?', [id]);
}

/** Of a row of nodes that is kept for nobody. */
export const LONG_DEAD = `lease_until < now() - CAST('1 hour' AS interval)
  AND NOT EXISTS (SELECT 1 FROM trees t WHERE t.owner_node = nodes.id)`;

/** Rows of nodes that died long ago. */
export async function dropDead(send: Send): Promise<void> {
  await send(`DELETE FROM nodes WHERE ${LONG_DEAD}`, []);
}

export async function listNodes(send: Send, configHash: string): Promise<readonly NodeInfo[]> {
  interface Row extends Omit<NodeInfo, 'draining' | 'config_matches'> {
    readonly draining: number;
    readonly config_hash: string;
  }
  const { rows } = await send<Row>(LIST, []);
  return rows.map(({ config_hash, draining, ...node }) => ({
    ...node,
    draining: draining === 1,
    config_matches: config_hash === configHash,
  }));
}

/** The same for a running server. Throws `StorageFault` while the database cannot be reached. */
export async function readNodes(send: Send, configHash: string): Promise<readonly NodeInfo[]> {
  try {
    return await listNodes(send, configHash);
  } catch (error) {
    throw journalFault(error);
  }
}

function interval(ms: number): string {
  return `${ms} milliseconds`;
}
