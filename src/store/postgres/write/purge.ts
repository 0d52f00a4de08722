// Deletes a session tree: everything but its cost facts and rollups, and what was learned of it (01 §7.4).
import { TreeLost } from '#protocol/journal-batch.ts';
import type { HeldTrees } from '#store/cluster/held.ts';
import * as patterns from '#store/write/patterns.ts';
import { DELETIONS, purgeable, TREE, type TreeRow } from '#store/write/purge.ts';
import type { Pool, Tx } from '../connection/pool.ts';

const DROP_TREE = 'DELETE FROM trees WHERE root_session_id = ? AND owner_node = ? AND owner_epoch = ?';

/** Returns the ids that went, none for an unknown session. */
export async function purge(pool: Pool, trees: HeldTrees, sessionId: string): Promise<readonly string[]> {
  const ids = await pool.transaction(async (tx) => {
    const { rows } = await tx.send<TreeRow>(TREE, [sessionId]);
    const gone = purgeable(sessionId, rows);
    if (gone.length === 0) return gone;
    const held = trees.get(sessionId);
    if (held === null) throw new TreeLost(sessionId);
    tx.run(DROP_TREE, [sessionId, trees.node, held.epoch], ({ changes }) => {
      if (changes === 0) throw new TreeLost(sessionId);
    });
    const all = JSON.stringify(gone);
    await unlearn(tx, all);
    for (const deletion of DELETIONS) tx.run(deletion, [all]);
    return gone;
  });
  if (ids.length > 0) trees.lost(sessionId);
  return ids;
}

/** Before its rows go: cost facts and turns know what each turn added. */
async function unlearn(tx: Tx, sessionIds: string): Promise<void> {
  const left = await tx.send<{ fingerprint_id: string; sample_size: number }>(patterns.SUBTRACT, [sessionIds]);
  tx.run(patterns.FORGET_TURNS, [sessionIds]);
  for (const { fingerprint_id, sample_size } of left.rows) {
    if (sample_size > 0) continue;
    tx.run(patterns.FORGET_OUTCOMES, [fingerprint_id]);
    tx.run(patterns.DROP_EMPTY, [fingerprint_id]);
  }
}
