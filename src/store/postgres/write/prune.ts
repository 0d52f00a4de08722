// Deletes old events in slices; messages, cost facts and rollups stay (02 §6, 16 §9).
import type { PruneReport } from '#core/ports/journal-writer.ts';
import * as sql from '#store/write/prune.ts';
import { maintenance } from '../connection/advisory.ts';
import { isTransient } from '../connection/faults.ts';
import type { Pool, PoolTx } from '../connection/pool.ts';

const REMOVE = `DELETE FROM event_rows e USING event_sessions s
  WHERE s.session_key = e.session_key AND e.id IN (SELECT value FROM json_each(?)) RETURNING e.id, s.session_id`;
/** Cursors are of a tree: each keeps the greatest id that it lost. */
const MARK = `UPDATE trees SET pruned_through_id = greatest(pruned_through_id, gone.id)
  FROM (SELECT s.root_session_id, max(g.id) AS id
    FROM unnest(CAST(? AS text[]), CAST(? AS text[])) AS g (id, session_id) JOIN sessions s ON s.id = g.session_id
    GROUP BY s.root_session_id) AS gone
  WHERE trees.root_session_id = gone.root_session_id`;

const MAX_ATTEMPTS = 5;

/** A dry run walks the same rows. Throws `maintenance_running`. */
export function prune(pool: Pool, cutoff: number, dryRun: boolean): Promise<PruneReport> {
  return maintenance(pool, async () => {
    let last = { timestamp_ms: -1, id: '' };
    let rows_deleted = 0;
    for (;;) {
      const rows = await again(() => pool.transaction((tx) => slice(tx, cutoff, last, dryRun)));
      rows_deleted += rows.length;
      last = rows.at(-1) ?? last;
      if (rows.length < sql.SLICE_ROWS) break;
    }
    const [skipped, oldest] = await Promise.all([
      pool.send<{ n: number }>(sql.SKIPPED, [cutoff]),
      pool.send<{ t: number | null }>(sql.OLDEST_KEPT, [cutoff]),
    ]);
    return {
      cutoff,
      rows_deleted,
      sessions_skipped: skipped.rows[0]?.n ?? 0,
      oldest_kept: oldest.rows[0]?.t ?? null,
    };
  });
}

/** It takes rows of many trees, and so may nodes: the database breaks a deadlock by giving one of them up. */
async function again<T>(work: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await work();
    } catch (error) {
      if (!isTransient(error) || attempt >= MAX_ATTEMPTS) throw error;
    }
  }
}

async function slice(
  tx: PoolTx,
  cutoff: number,
  from: sql.OldEvent,
  dryRun: boolean,
): Promise<readonly sql.OldEvent[]> {
  const { rows } = await tx.send<sql.OldEvent>(sql.OLD, [cutoff, from.timestamp_ms, from.id]);
  if (rows.length > 0 && !dryRun) {
    const gone = await tx.send<{ id: string; session_id: string }>(REMOVE, [JSON.stringify(rows.map(({ id }) => id))]);
    tx.run(MARK, [gone.rows.map(({ id }) => id), gone.rows.map(({ session_id }) => session_id)]);
  }
  return rows;
}
