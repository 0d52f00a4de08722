// Makes the rollups again from the ledger they derive from (07 §9.5).
import type Database from 'better-sqlite3';
import { ROLLUPS, rollupColumns, rollupFromCalls } from '#store/schema/rollups.ts';

/** Empties and refills the rollups in one transaction. The caller owns the database. */
export function rebuildRollups(db: Database.Database): void {
  const rebuild = db.transaction(() => {
    for (const rollup of ROLLUPS) {
      db.prepare(`DELETE FROM ${rollup.table}`).run();
      db.prepare(`INSERT INTO ${rollup.table} (${rollupColumns(rollup).join(', ')}) ${rollupFromCalls(rollup)}`).run();
    }
  });
  rebuild.immediate();
}
