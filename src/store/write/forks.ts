// A purge copies the messages that forks begin with into them, in its own transaction (21 §4).
import { COPY_CHECKPOINTS, COPY_MESSAGES } from '../schema/fork-prefix.ts';
import type { Tx } from './transaction.ts';

/** A fork that is being stored at this moment is stored first, or not at all. */
const LOCK = 'SELECT id FROM sessions WHERE id {in_list} {lock_rows}';

/** @param sessionIds JSON text of the sessions that are about to be deleted */
export function copyIntoForks(tx: Tx, sessionIds: string): void {
  tx.run(LOCK, [sessionIds]);
  tx.run(COPY_MESSAGES, [sessionIds]);
  tx.run(COPY_CHECKPOINTS, [sessionIds]);
}
