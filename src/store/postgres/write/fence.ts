// The fence is the first statement of a tree's commit: only the owner writes it, and once (16 §3.2, §3.4).
import type { PreparedBatch } from '#core/policy/journal/prepare.ts';
import { TreeLost } from '#protocol/journal-batch.ts';
import type { Held, HeldTrees } from '#store/cluster/tree-claims.ts';
import type { Tx } from '#store/write/transaction.ts';
import type { Send } from '../connection/client.ts';

/** One numbered commit of a tree. */
export interface Numbered {
  readonly held: Held;
  readonly seq: number;
  /** The last generated event id. */
  readonly lastId: string;
  /** Null = unchanged. */
  readonly wanted: boolean | null;
}

const MOVE = `UPDATE trees SET seq = @seq, last_id = @lastId, wanted = coalesce(CAST(@wanted AS boolean), wanted)
  WHERE root_session_id = @root AND owner_node = @node AND owner_epoch = @epoch AND seq = @before`;
const MAKE = `INSERT INTO trees (root_session_id, owner_node, owner_epoch, seq, last_id, wanted, place)
  VALUES (@root, @node, @epoch, @seq, @lastId, coalesce(CAST(@wanted AS boolean), false), @place)`;
const STANDS = 'SELECT owner_node, owner_epoch, seq FROM trees WHERE root_session_id = ?';

export function fence({ node }: HeldTrees, { held, seq, lastId, wanted }: Numbered, tx: Tx): void {
  const values = { root: held.root, node, epoch: held.epoch, seq, lastId, wanted, place: held.place };
  if (seq === 1) tx.run(MAKE, values);
  else {
    tx.change(MOVE, { ...values, before: seq - 1 }, () => {
      throw new TreeLost(held.root);
    });
  }
}

/** The outcome of a commit whose answer was lost. */
export async function readOutcome(
  { node }: HeldTrees,
  { held, seq }: Numbered,
  send: Send,
): Promise<'committed' | 'open' | 'lost'> {
  const { rows } = await send<{ owner_node: string | null; owner_epoch: number; seq: number }>(STANDS, [held.root]);
  const [row] = rows;
  if (row === undefined) {
    if (seq === 1) return 'open';
    return 'lost';
  }
  if (row.owner_node !== node || row.owner_epoch !== held.epoch) return 'lost';
  if (row.seq === seq) return 'committed';
  if (row.seq === seq - 1) return 'open';
  return 'lost';
}

/** The change of the root's open turn by a commit. While that turn runs or can resume by itself, a node must hold the tree (16 §2). */
export function afterwards(
  { root, turn: before }: Held,
  batches: readonly PreparedBatch[],
): { readonly wanted: boolean | null; readonly turn: string | null } {
  let wanted: boolean | null = null;
  let turn = before;
  for (const write of batches.flatMap((batch) => batch.writes)) {
    if (write.kind === 'turn.insert' && write.turn.session_id === root) {
      turn = write.turn.id;
      wanted = true;
    } else if (write.kind === 'turn.end' && write.session_id === root) {
      turn = null;
      wanted = false;
    } else if (write.kind === 'turn.interrupt' && write.turn_id === turn) wanted = write.reason !== 'budget';
    else if (write.kind === 'turn.resume' && write.turn_id === turn) wanted = true;
  }
  return { wanted, turn };
}
