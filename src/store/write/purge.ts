// What a purge looks at and takes (01 §7.4).

import { JournalConflict } from '#core/ports/journal-writer.ts';
import { AppError } from '#protocol/errors.ts';
import { TURN_IS_OPEN, WITH_TREE } from '../schema/words.ts';
import { unlearnTurns } from './patterns.ts';
import type { Tx } from './transaction.ts';

const IDS = 'IN (SELECT value FROM json_each(?))';
/** Children before their parents in the order of the foreign keys; each takes the ids of the sessions. */
const DELETIONS = [
  ['tool_calls', `session_id ${IDS}`],
  ['delegations', `parent_session_id ${IDS}`],
  ['confirmations', `session_id ${IDS}`],
  ['worker_definitions', `root_session_id ${IDS}`],
  ['compaction_checkpoints', `session_id ${IDS}`],
  ['event_rows', `session_key IN (SELECT session_key FROM event_sessions WHERE session_id ${IDS})`],
  ['event_sessions', `session_id ${IDS}`],
  ['idempotency_keys', `session_id ${IDS}`],
  ['turn_inputs', `session_id ${IDS}`],
  ['messages', `session_id ${IDS}`],
  ['turns', `session_id ${IDS}`],
  ['sessions', `id ${IDS}`],
].map(([table, where]) => `DELETE FROM ${table} WHERE ${where}`);

export const TREE = `${WITH_TREE}
  SELECT s.id, s.is_worker, tree.depth,
    EXISTS (SELECT 1 FROM turns t WHERE t.session_id = s.id AND ${TURN_IS_OPEN}) AS open
  FROM tree CROSS JOIN sessions s ON s.id = tree.id`;

export interface TreeRow {
  readonly id: string;
  readonly is_worker: number;
  readonly depth: number;
  readonly open: number;
}

/** The ids that go; throws where they must not. */
export function checkPurge(sessionId: string, rows: readonly TreeRow[]): readonly string[] {
  if (rows.some((row) => row.depth === 0 && row.is_worker === 1)) {
    throw new AppError('session_is_worker', 'a worker session goes with its planner; purge the planner');
  }
  if (rows.some((row) => row.open === 1)) {
    throw new JournalConflict('turn_in_flight', `session ${sessionId} or a worker of it has a turn that runs`);
  }
  return rows.map((row) => row.id);
}

/** Deletes the rows of sessions: everything but their cost facts and rollups, and what was learned of them. */
export function deleteSessions(tx: Tx, sessionIds: readonly string[]): void {
  const ids = JSON.stringify(sessionIds);
  unlearnTurns(tx, ids);
  for (const deletion of DELETIONS) tx.run(deletion, [ids]);
}
