// Statements that claim, release and look up the ownership of trees (16 §4.2).
import type { Standing, Trees } from '#core/ports/tree-ownership.ts';
import { OPEN_TURN_STATUSES } from '#protocol/turn.ts';
import type { Send } from '../postgres/connection/client.ts';
import type { Pool } from '../postgres/connection/pool.ts';
import { PEERS, type Peer } from './dead-nodes.ts';
import { LONG_DEAD } from './node-lease.ts';

export interface Held {
  readonly root: string;
  readonly epoch: number;
  readonly place: string;
  /** Number of the last commit. */
  seq: number;
  /** The root's turn that has not ended. */
  turn: string | null;
}

/** `onLost` reports a lost tree when nothing of it runs here any more. */
export interface HeldTrees extends Pick<Trees, 'onLost'> {
  readonly node: string;
  /** Whether this node can hold trees: false some time before the lease ends. */
  valid(): boolean;
  /** Null for a tree that this node does not hold. */
  get(root: string): Held | null;
  /** Called before the commit that creates a tree. The returned function is called once the outcome of the commit is known. */
  opening(root: string): () => void;
  /** Adds a tree that this node has just created. */
  adopt(root: string, place: string): Held;
  /** Another node turned out to own the tree. */
  lost(root: string): void;
  /** Where a tree's files lie (16 §7). */
  placeOf(workspacePath: string): string;
}

export interface Claimed extends Held {
  /** The greatest event id of the tree. */
  readonly lastId: string;
  readonly wanted: boolean;
  /** Whose row it was until now; null = it had been released. */
  readonly lastOwner: string | null;
}

interface Owner {
  readonly node: string | null;
  /** Null without a valid lease. */
  readonly url: string | null;
  readonly epoch: number;
  readonly place: string;
}

const ALIVE = 'EXISTS (SELECT 1 FROM nodes n WHERE n.id = @node AND n.lease_until > now())';
const OPEN = OPEN_TURN_STATUSES.map((status) => `'${status}'`).join(', ');
const TAKE = `UPDATE trees t SET owner_node = @node, owner_epoch = t.owner_epoch + 1`;
const GIVES = `RETURNING t.root_session_id AS root, t.owner_epoch AS epoch, t.seq, t.last_id AS "lastId", t.wanted, t.place,
  (SELECT u.id FROM turns u WHERE u.session_id = t.root_session_id AND u.status IN (${OPEN})) AS turn,
  (SELECT b.owner_node FROM trees b WHERE b.root_session_id = t.root_session_id) AS "lastOwner"`;
/** A row can name this node for a tree that it does not hold: the answer to the claim was lost. */
const CLAIM = `${TAKE} WHERE t.root_session_id = @root AND t.place = ANY (CAST(@places AS text[])) AND ${ALIVE}
  AND (t.owner_node IS NULL OR t.owner_node = @node
    OR NOT EXISTS (SELECT 1 FROM nodes o WHERE o.id = t.owner_node AND o.lease_until > now()))
  ${GIVES}`;

const SWEPT_AT_ONCE = 50;
const claimWhere = (where: string) => `
  ${TAKE} FROM (
    SELECT root_session_id FROM trees WHERE ${where} AND wanted AND place = ANY (CAST(@places AS text[]))
    LIMIT ${SWEPT_AT_ONCE} FOR UPDATE SKIP LOCKED) AS found
  WHERE t.root_session_id = found.root_session_id AND ${ALIVE} ${GIVES}`;
/** Two look-ups, each by an index of its own. */
const CLAIM_ORPHANS = claimWhere('owner_node IS NULL');
const CLAIM_OF = claimWhere('owner_node = @lapsed');
/** Trees that need no owner. */
const ABANDON = `UPDATE trees t SET owner_node = NULL FROM (
    SELECT root_session_id FROM trees WHERE owner_node = @lapsed AND NOT wanted FOR UPDATE SKIP LOCKED) AS found
  WHERE t.root_session_id = found.root_session_id`;
/** Each part uses an index, and no row is locked. */
const LOOK = `SELECT
  EXISTS (SELECT 1 FROM trees WHERE owner_node IS NULL AND wanted AND place = ANY (CAST(@places AS text[]))) AS orphans,
  (SELECT count(*) FROM trees WHERE owner_node = @node) AS own,
  ARRAY(SELECT DISTINCT t.owner_node FROM trees t WHERE t.owner_node IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.id = t.owner_node AND n.lease_until > now())) AS lapsed,
  EXISTS (SELECT 1 FROM nodes WHERE ${LONG_DEAD}) AS dead,
  ${PEERS} AS peers`;
const OWN = 'SELECT root_session_id AS root FROM trees WHERE owner_node = ?';
const OWNER = `SELECT t.owner_node AS node, n.url, t.owner_epoch AS epoch, t.place
  FROM trees t LEFT JOIN nodes n ON n.id = t.owner_node AND n.lease_until > now() WHERE t.root_session_id = ?`;
const RELEASE = `UPDATE trees SET owner_node = NULL WHERE root_session_id = @root AND owner_node = @node
  AND owner_epoch = @epoch`;

type Row = Omit<Claimed, 'wanted'> & { readonly wanted: number };

/** Durable before it is answered, whatever commits are: two owners would be worse than a lost tail (16 §3.5). */
async function take(pool: Pool, sql: string, values: object): Promise<Claimed[]> {
  return pool.transaction(async (tx) => {
    tx.run('SET LOCAL synchronous_commit = on', []);
    const { rows } = await tx.send<Row>(sql, values);
    return rows.map((row) => ({ ...row, wanted: row.wanted === 1 }));
  });
}

export interface Claimant {
  readonly node: string;
  readonly places: readonly string[];
}

export async function claim(pool: Pool, by: Claimant, root: string): Promise<Claimed | null> {
  return (await take(pool, CLAIM, { ...by, root }))[0] ?? null;
}

export const claimOrphans = (pool: Pool, by: Claimant) => take(pool, CLAIM_ORPHANS, by);

export const claimLapsedTrees = (pool: Pool, by: Claimant, lapsed: string) => take(pool, CLAIM_OF, { ...by, lapsed });

export async function abandon(send: Send, lapsed: string): Promise<void> {
  await send(ABANDON, { lapsed });
}

/** Work that a sweep finds; usually none. */
interface Look {
  /** Trees with open work and without an owner. */
  readonly orphans: boolean;
  /** Number of trees that the database records as owned by this node. */
  readonly own: number;
  /** Owners without a valid lease. */
  readonly lapsed: readonly string[];
  /** Rows of nodes that died long ago. */
  readonly dead: boolean;
  readonly peers: readonly Peer[];
}

export async function inspectTrees(send: Send, by: Claimant): Promise<Look> {
  type Row = Omit<Look, 'orphans' | 'dead'> & { readonly orphans: number; readonly dead: number };
  const row = (await send<Row>(LOOK, by)).rows[0]!;
  return { ...row, orphans: row.orphans === 1, dead: row.dead === 1 };
}

export async function listRoots(send: Send, node: string): Promise<readonly string[]> {
  return (await send<{ root: string }>(OWN, [node])).rows.map(({ root }) => root);
}

export async function readOwner(send: Send, root: string): Promise<Owner | null> {
  return (await send<Owner>(OWNER, [root])).rows[0] ?? null;
}

export async function releaseClaim(send: Send, node: string, { root, epoch }: Held): Promise<void> {
  await send(RELEASE, { root, node, epoch });
}

// For nodes that watch a tree of another node (16 §6).

const STANDINGS = `SELECT root_session_id AS root, owner_epoch AS epoch, seq FROM trees
  WHERE root_session_id = ANY (CAST(? AS text[]))`;
/** 244 random bits. */
const MAKE_KEY = `INSERT INTO meta (key, value)
  VALUES ('frame_key', CAST(gen_random_uuid() AS text) || CAST(gen_random_uuid() AS text)) ON CONFLICT DO NOTHING`;
const KEY = `SELECT value FROM meta WHERE key = 'frame_key'`;

/** Of the given trees, those that exist, in one query. */
export async function standings(send: Send, roots: readonly string[]): Promise<readonly Standing[]> {
  return (await send<Standing>(STANDINGS, [roots])).rows;
}

/** The key that seals frames between the nodes of this database; the first node creates it. */
export async function frameKey(send: Send): Promise<Buffer> {
  await send(MAKE_KEY, []);
  const { rows } = await send<{ value: string }>(KEY, []);
  return Buffer.from(rows[0]!.value);
}
