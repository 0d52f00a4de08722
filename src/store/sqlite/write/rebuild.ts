// Makes the rollups again from the ledger they derive from (07 §9.5).
import type Database from 'better-sqlite3';
import { CALL_MEASURES } from '../report/cost-sql.ts';
import { MEASURES, ROLLUPS } from './ledger.ts';

type Rollup = (typeof ROLLUPS)[number];

/** Columns of a rollup in the order of `rollupFromCalls`. */
export function rollupColumns({ bucket, key, attributes }: Rollup): readonly string[] {
  return [bucket, ...key, ...attributes, ...MEASURES];
}

/** What the ledger says the rollup must hold. */
export function rollupFromCalls({ bucket, bucket_ms, key, attributes }: Rollup): string {
  const columns = [
    `ts_ms / ${bucket_ms} AS ${bucket}`,
    ...key,
    // The key determines them: they are fixed at the creation of the session.
    ...attributes.map((column) => `MIN(${column}) AS ${column}`),
    ...MEASURES.map((measure) => `SUM(${CALL_MEASURES[measure]}) AS ${measure}`),
  ];
  return `SELECT ${columns.join(', ')} FROM llm_calls GROUP BY ${[bucket, ...key].join(', ')}`;
}

/** Empties and refills both rollups in one transaction. The caller owns the database. */
export function rebuildRollups(db: Database.Database): void {
  const rebuild = db.transaction(() => {
    for (const rollup of ROLLUPS) {
      db.prepare(`DELETE FROM ${rollup.table}`).run();
      db.prepare(`INSERT INTO ${rollup.table} (${rollupColumns(rollup).join(', ')}) ${rollupFromCalls(rollup)}`).run();
    }
  });
  rebuild.immediate();
}
