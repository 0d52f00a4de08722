// Prunes events, purges sessions, rebuilds and verifies rollups (01 §7.4, 02 §6, 07 §9.5, 16 §9).

import type { PruneReport } from '#core/ports/journal-writer.ts';
import { TreeLost } from '#protocol/journal-batch.ts';
import type { HeldTrees } from '#store/cluster/tree-claims.ts';
import {
  CALL_EVENTS,
  type CallEvent,
  COMPARISONS,
  FACT,
  factDifferences,
  MAX_DIFFERENCES,
} from '#store/report/verify.ts';
import { ROLLUPS, rollupColumns, rollupFromCalls } from '#store/schema/rollups.ts';
import * as sql from '#store/write/deletions.ts';
import { checkPurge, deleteSessions, TREE, type TreeRow } from '#store/write/deletions.ts';
import type { Send } from '../connection/client.ts';
import { isTransient } from '../connection/faults.ts';
import { maintenance, type Pool, type PoolTx } from '../connection/pool.ts';

const REMOVE = `DELETE FROM event_rows e USING event_sessions s
  WHERE s.session_key = e.session_key AND e.id {in_list} RETURNING e.id, s.session_id`;
/** Cursors belong to a tree, so each tree stores the greatest id that pruning deleted from it. */
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
      const rows = await retryTransient(() => pool.transaction((tx) => slice(tx, cutoff, last, dryRun)));
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

/** It locks rows of many trees, as nodes may: PostgreSQL resolves a deadlock by aborting one of them. */
async function retryTransient<T>(work: () => Promise<T>): Promise<T> {
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

const DROP_TREE = 'DELETE FROM trees WHERE root_session_id = ? AND owner_node = ? AND owner_epoch = ?';

/** Returns the deleted ids, none for an unknown session. */
export async function purge(pool: Pool, trees: HeldTrees, sessionId: string): Promise<readonly string[]> {
  const ids = await pool.transaction(async (tx) => {
    const { rows } = await tx.send<TreeRow>(TREE, [sessionId]);
    const gone = checkPurge(sessionId, rows);
    if (gone.length === 0) return gone;
    const held = trees.get(sessionId);
    if (held === null) throw new TreeLost(sessionId);
    tx.run(DROP_TREE, [sessionId, trees.node, held.epoch], ({ changes }) => {
      if (changes === 0) throw new TreeLost(sessionId);
    });
    deleteSessions(tx, gone);
    return gone;
  });
  if (ids.length > 0) trees.lost(sessionId);
  return ids;
}

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

const PAGE = 1000;

/** One line per difference, none when all agree. Reads one state of the database, also beside running nodes. */
export function verifyPostgresRollups(pool: Pool): Promise<readonly string[]> {
  return pool.report(async (send) => {
    const differences: string[] = [];
    for (const { sql, line } of COMPARISONS) {
      const { rows } = await send<Record<string, unknown>>(sql, [], 'exact');
      differences.push(...rows.map(line));
    }
    return [...differences, ...(await ledgerDifferences(send))];
  });
}

async function ledgerDifferences(send: Send): Promise<string[]> {
  const differences: string[] = [];
  let after = '';
  for (;;) {
    const { rows } = await send<CallEvent>(`${CALL_EVENTS} AND id > ? ORDER BY id LIMIT ${PAGE}`, [after], 'exact');
    for (const event of rows) {
      const fact = await send<Record<string, unknown>>(FACT, [event.id], 'exact');
      differences.push(...factDifferences(event, fact.rows[0]));
      if (differences.length >= MAX_DIFFERENCES) return differences;
    }
    if (rows.length < PAGE) return differences;
    after = rows.at(-1)!.id;
  }
}
