// Deletes a session tree: everything but its cost facts and rollups, and what was learned of it (01 §7.4).
import type Database from 'better-sqlite3';
import { DELETIONS, purgeable, TREE, type TreeRow } from '#store/write/purge.ts';
import { createUnlearner } from './pattern-writes.ts';

/** Runs inside a transaction; returns the ids that went, none for an unknown session. */
export function createPurger(db: Database.Database): (sessionId: string) => readonly string[] {
  const tree = db.prepare<[string], TreeRow>(TREE);
  const deletions = DELETIONS.map((sql) => db.prepare(sql));
  const unlearn = createUnlearner(db);
  return (sessionId) => {
    const ids = purgeable(sessionId, tree.all(sessionId));
    if (ids.length === 0) return ids;
    const all = JSON.stringify(ids);
    unlearn(all);
    for (const deletion of deletions) deletion.run(all);
    return ids;
  };
}
