// Rows of `nodes`: who lives, by the database's clock alone (16 §4.1).
import type { NodeInfo } from '../../../ports/trees.ts';
import type { Send } from '../connection/client.ts';

export interface NodeSelf {
  readonly name: string;
  readonly url: string;
  readonly version: string;
  /** What it can own: `node:<name>`, `shared:<root>`. */
  readonly places: readonly string[];
  readonly configHash: string;
}

const REGISTER = `INSERT INTO nodes (id, name, url, version, places, config_hash, lease_until)
  SELECT @id, @name, @url, @version, CAST(@places AS text[]), @configHash, now() + CAST(@lease AS interval)
  WHERE NOT EXISTS (SELECT 1 FROM nodes WHERE name = @name AND lease_until > now())`;
const BEAT = `UPDATE nodes SET lease_until = now() + CAST(@lease AS interval), turns = @turns, draining = CAST(@draining AS boolean)
  WHERE id = @id AND lease_until > now()`;
const LIST = `SELECT n.id, n.name, n.version, n.url, n.draining, array_to_json(n.places) AS places, n.turns,
    (SELECT count(*) FROM trees t WHERE t.owner_node = n.id) AS trees, n.config_hash
  FROM nodes n WHERE n.lease_until > now() ORDER BY n.name`;

/** False when a live node bears the name. */
export async function register(send: Send, id: string, self: NodeSelf, leaseMs: number): Promise<boolean> {
  const { changes } = await send(REGISTER, { ...self, id, lease: interval(leaseMs) });
  return changes === 1;
}

/** False when the lease has lapsed: it is never renewed. */
export async function beat(
  send: Send,
  id: string,
  { leaseMs, turns, draining }: { readonly leaseMs: number; readonly turns: number; readonly draining: boolean },
): Promise<boolean> {
  const { changes } = await send(BEAT, { id, lease: interval(leaseMs), turns, draining: draining ? 'true' : 'false' });
  return changes === 1;
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

function interval(ms: number): string {
  return `${ms} milliseconds`;
}
