// What commands do with the database of a cluster, beside its nodes (16 §9). Loaded only when `database.url` is set.
import path from 'node:path';
import type { PruneReport } from '#core/ports/journal.ts';
import type { Logger } from '#core/ports/log.ts';
import { systemClock } from '#protocol/clock.ts';
import { openDatabase } from '#store/postgres/connection/open.ts';
import type { Pool } from '#store/postgres/connection/pool.ts';
import { verifyRollups } from '#store/postgres/report/verify.ts';
import { prune } from '#store/postgres/write/prune.ts';
import { rebuildRollups } from '#store/postgres/write/rebuild.ts';

export interface ClusterUpkeep {
  /** Throws `maintenance_running`. @param cutoff Unix ms */
  prune(cutoff: number, dryRun: boolean): Promise<PruneReport>;
  /** One line per difference. */
  verifyRollups(): Promise<readonly string[]>;
  /** Throws `maintenance_running`. */
  rebuildRollups(): Promise<void>;
  calls(): Promise<number>;
}

/** Whoever asked waits for it. */
const STATEMENT_MS = 3_600_000;

/** Opens the database for `work` alone. Throws `StartupError`. */
export async function withCluster<T>(
  at: { readonly url: string; readonly packageDir: string; readonly log: Logger },
  work: (upkeep: ClusterUpkeep) => Promise<T>,
): Promise<T> {
  const pool = await openDatabase({
    url: at.url,
    size: 2,
    synchronousCommit: 'on',
    statementMs: STATEMENT_MS,
    migrationsDir: path.join(at.packageDir, 'migrations', 'postgres'),
    clock: systemClock,
    patienceMs: 0,
    log: at.log,
  });
  try {
    return await work(createUpkeep(pool));
  } finally {
    await pool.close();
  }
}

function createUpkeep(pool: Pool): ClusterUpkeep {
  return {
    prune: (cutoff, dryRun) => prune(pool, cutoff, dryRun),
    verifyRollups: () => verifyRollups(pool),
    rebuildRollups: () => rebuildRollups(pool),
    calls: async () => (await pool.send<{ n: number }>('SELECT count(*) AS n FROM ledger_calls', [])).rows[0]!.n,
  };
}
