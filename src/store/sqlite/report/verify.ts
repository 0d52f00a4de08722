// Compares the rollups with the ledger, and the ledger with the events that are still there (07 §9.5).
import type Database from 'better-sqlite3';
import {
  CALL_EVENTS,
  type CallEvent,
  COMPARISONS,
  FACT,
  factDifferences,
  MAX_DIFFERENCES,
} from '#store/report/verify.ts';

/** One line per difference, none when all agree. Reads one state of the database, also beside a running server. */
export function verifyRollups(db: Database.Database): readonly string[] {
  return db.transaction(() => [
    ...COMPARISONS.flatMap(({ sql, line }) => {
      const rows = db.prepare<[], Record<string, unknown>>(sql).safeIntegers().all();
      return rows.map(line);
    }),
    ...ledgerDifferences(db),
  ])();
}

function ledgerDifferences(db: Database.Database): string[] {
  const differences: string[] = [];
  const factOf = db.prepare<[string], Record<string, unknown>>(FACT).safeIntegers();
  for (const event of db.prepare<[], CallEvent>(CALL_EVENTS).iterate()) {
    differences.push(...factDifferences(event, factOf.get(event.id)));
    if (differences.length >= MAX_DIFFERENCES) break;
  }
  return differences;
}
