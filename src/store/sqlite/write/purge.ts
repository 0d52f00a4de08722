// Deletes a session and its workers (01 §7.4).
import type Database from 'better-sqlite3';
import { checkPurge, deleteSessions, TREE, type TreeRow } from '#store/write/purge.ts';
import type { Tx } from '#store/write/transaction.ts';

/** Runs inside a transaction; returns the deleted ids, none for an unknown session. */
export function createPurger(db: Database.Database, tx: Tx): (sessionId: string) => readonly string[] {
  const tree = db.prepare<[string], TreeRow>(TREE);
  return (sessionId) => {
    const ids = checkPurge(sessionId, tree.all(sessionId));
    if (ids.length > 0) deleteSessions(tx, ids);
    return ids;
  };
}
