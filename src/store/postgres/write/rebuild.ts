// Makes the rollups again from the ledger they derive from (07 §9.5, 16 §9).
import { ROLLUPS, rollupColumns, rollupFromCalls } from '#store/schema/rollups.ts';
import { maintenance } from '../connection/advisory.ts';
import type { Pool } from '../connection/pool.ts';

/** Empties and refills the rollups in one transaction; nodes wait with their calls. Throws `maintenance_running`. */
export function rebuildRollups(pool: Pool): Promise<void> {
  return maintenance(pool, () =>
    pool.transaction(async (tx) => {
      await tx.send(`LOCK TABLE ledger_calls, ${ROLLUPS.map(({ table }) => table).join(', ')} IN EXCLUSIVE MODE`, []);
      for (const rollup of ROLLUPS) {
        tx.run(`DELETE FROM ${rollup.table}`, []);
        tx.run(`INSERT INTO ${rollup.table} (${rollupColumns(rollup).join(', ')}) ${rollupFromCalls(rollup)}`, []);
      }
    }),
  );
}
