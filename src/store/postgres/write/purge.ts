// Deletes a session tree: everything but its cost facts and rollups, and what was learned of it (01 §7.4).
import { TreeLost } from '#protocol/journal-batch.ts';
import type { HeldTrees } from '#store/cluster/held.ts';
import { checkPurge, deleteSessions, TREE, type TreeRow } from '#store/write/purge.ts';
import type { Pool } from '../connection/pool.ts';

const DROP_TREE = 'DELETE FROM trees WHERE root_session_id = ? AND owner_node = ? AND owner_epoch = ?';

/** Returns the ids that went, none for an unknown session. */
export async function purge(pool: Pool, trees: HeldTrees, sessionId: string): Promise<readonly string[]> {
  const ids = await pool.transaction(async (tx) => {
    const { rows } = await tx.send<TreeRow>(TREE, [sessionId]);
    const gone = checkPurge(sessionId, rows);
    if (gone.length === 0) return gone;
    const held = trees.get(sessionId);
    if (held === null) throw new TreeLost(sessionId);
    tx.run(DROP_TREE, [sessionId, trees.node, held.epoch], ({ changes }) => {
      if (changes === 0) throw new TreeLost(sessionId);
    });
    deleteSessions(tx, gone);
    return gone;
  });
  if (ids.length > 0) trees.lost(sessionId);
  return ids;
}
