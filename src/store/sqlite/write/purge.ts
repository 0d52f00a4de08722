// Deletes a session tree: everything but its cost facts and rollups (01 §7.4).
import type Database from 'better-sqlite3';
import { AppError } from '../../../kernel/errors.ts';
import { JournalConflict } from '../../../ports/journal.ts';
import { TURN_IS_OPEN, WITH_TREE } from '../schema/words.ts';

// Children before their parents in the order of the foreign keys.
const OWNED_BY_SESSION = [
  ['tool_calls', 'session_id'],
  ['delegations', 'parent_session_id'],
  ['confirmations', 'session_id'],
  ['worker_definitions', 'root_session_id'],
  ['compaction_checkpoints', 'session_id'],
  ['events', 'session_id'],
  ['idempotency_keys', 'session_id'],
  ['messages', 'session_id'],
  ['turns', 'session_id'],
  ['sessions', 'id'],
] as const;

/** Runs inside a transaction; returns the ids that went, none for an unknown session. */
export function createPurger(db: Database.Database): (sessionId: string) => readonly string[] {
  const tree = db.prepare<[string], { id: string; is_worker: number; depth: number; open: number }>(`${WITH_TREE}
    SELECT s.id, s.is_worker, tree.depth,
      EXISTS (SELECT 1 FROM turns t WHERE t.session_id = s.id AND ${TURN_IS_OPEN}) AS open
    FROM tree CROSS JOIN sessions s ON s.id = tree.id`);
  const deletions = OWNED_BY_SESSION.map(([table, column]) =>
    db.prepare(`DELETE FROM ${table} WHERE ${column} IN (SELECT value FROM json_each(?))`),
  );
  return (sessionId) => {
    const rows = tree.all(sessionId);
    if (rows.some((row) => row.depth === 0 && row.is_worker === 1)) {
      throw new AppError('session_is_worker', 'a worker session goes with its planner; purge the planner');
    }
    if (rows.some((row) => row.open === 1)) {
      throw new JournalConflict('turn_in_flight', `session ${sessionId} or a worker of it has a turn that runs`);
    }
    const ids = rows.map((row) => row.id);
    if (ids.length > 0) for (const deletion of deletions) deletion.run(JSON.stringify(ids));
    return ids;
  };
}
