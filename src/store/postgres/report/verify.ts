// Compares the rollups with the ledger, and the ledger with the events that are still there (07 §9.5).
import {
  CALL_EVENTS,
  type CallEvent,
  COMPARISONS,
  FACT,
  factDifferences,
  MAX_DIFFERENCES,
} from '#store/report/verify.ts';
import type { Send } from '../connection/client.ts';
import type { Pool } from '../connection/pool.ts';

const PAGE = 1000;

/** One line per difference, none when all agree. Reads one state of the database, also beside running nodes. */
export function verifyRollups(pool: Pool): Promise<readonly string[]> {
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
