// Prunes events, purges sessions, rebuilds and verifies rollups (01 §7.4, 02 §6, 07 §9.5).
import type Database from 'better-sqlite3';
import type { PruneReport } from '#core/ports/journal-writer.ts';
import {
  CALL_EVENTS,
  type CallEvent,
  COMPARISONS,
  FACT,
  factDifferences,
  MAX_DIFFERENCES,
} from '#store/report/verify.ts';
import { ROLLUPS, rollupColumns, rollupFromCalls } from '#store/schema/rollups.ts';
import { PRUNED_THROUGH } from '#store/schema/words.ts';
import {
  checkPurge,
  deleteSessions,
  OLD,
  OLDEST_KEPT,
  type OldEvent,
  SKIPPED,
  SLICE_ROWS,
  TREE,
  type TreeRow,
} from '#store/write/deletions.ts';
import type { Tx } from '#store/write/transaction.ts';

/** Progress of a run of slices. */
interface PruneSlice {
  readonly report: PruneReport;
  readonly done: boolean;
  readonly last: OldEvent;
}

/** One slice after `before` (null starts); runs inside a transaction. A dry run walks the same rows. */
export function createPruner(
  db: Database.Database,
): (before: PruneSlice | null, cutoff: number, dryRun: boolean) => PruneSlice {
  const old = db.prepare<[number, number, string], OldEvent>(OLD);
  const remove = db.prepare('DELETE FROM event_rows WHERE id {in_list}');
  const mark = db.prepare(`
    INSERT INTO meta (key, value) VALUES ('${PRUNED_THROUGH}', ?)
    ON CONFLICT (key) DO UPDATE SET value = max(value, excluded.value)`);
  const skipped = db.prepare<[number], { n: number }>(SKIPPED);
  const oldestKept = db.prepare<[number], { t: number | null }>(OLDEST_KEPT);

  return (before, cutoff, dryRun) => {
    const from = before?.last ?? { timestamp_ms: -1, id: '' };
    const rows = old.all(cutoff, from.timestamp_ms, from.id);
    if (rows.length > 0 && !dryRun) {
      const ids = rows.map((row) => row.id).sort();
      remove.run(JSON.stringify(ids));
      mark.run(ids.at(-1));
    }
    const done = rows.length < SLICE_ROWS;
    return {
      done,
      last: rows.at(-1) ?? from,
      report: {
        cutoff,
        rows_deleted: (before?.report.rows_deleted ?? 0) + rows.length,
        sessions_skipped: done ? (skipped.get(cutoff)?.n ?? 0) : 0,
        oldest_kept: done ? (oldestKept.get(cutoff)?.t ?? null) : null,
      },
    };
  };
}

/** Runs inside a transaction; returns the deleted ids, none for an unknown session. */
export function createPurger(db: Database.Database, tx: Tx): (sessionId: string) => readonly string[] {
  const tree = db.prepare<[string], TreeRow>(TREE);
  return (sessionId) => {
    const ids = checkPurge(sessionId, tree.all(sessionId));
    if (ids.length > 0) deleteSessions(tx, ids);
    return ids;
  };
}

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

/** One line per difference, none when all agree. Reads one state of the database, also beside a running server. */
export function verifySqliteRollups(db: Database.Database): readonly string[] {
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
