// Deletes old events in slices; messages, cost facts and rollups stay (02 §6).
import type Database from 'better-sqlite3';
import type { PruneReport } from '#core/ports/journal-writer.ts';
import { PRUNED_THROUGH } from '#store/schema/words.ts';
import { OLD, OLDEST_KEPT, type OldEvent, SKIPPED, SLICE_ROWS } from '#store/write/prune.ts';

/** Where a run of slices stands. */
export interface PruneSlice {
  readonly report: PruneReport;
  readonly done: boolean;
  readonly last: OldEvent;
}

/** One slice after `before` (null starts); runs inside a transaction. A dry run walks the same rows. */
export function createPruner(
  db: Database.Database,
): (before: PruneSlice | null, cutoff: number, dryRun: boolean) => PruneSlice {
  const old = db.prepare<[number, number, string], OldEvent>(OLD);
  const remove = db.prepare('DELETE FROM event_rows WHERE id IN (SELECT value FROM json_each(?))');
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
