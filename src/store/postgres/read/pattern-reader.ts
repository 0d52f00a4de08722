// Learned patterns of a workspace, each with its outcomes (12 §12.3).
import type { PatternReader } from '../../../ports/patterns.ts';
import { pageOf } from '../../sql/page.ts';
import * as sql from '../../sql/patterns.ts';
import { BEHIND_ALL } from '../../sql/schema/words.ts';
import type { Reads } from '../connection/reads.ts';

export function createPatternReader({ all, get }: Reads): PatternReader {
  const withOutcomes = async (rows: readonly sql.FingerprintRow[]) =>
    sql.storedPatterns(rows, await all<sql.OutcomeRow>(sql.OUTCOMES, JSON.stringify(rows.map(({ id }) => id))));
  return {
    turn: async (turnId) => {
      const row = await get<sql.TurnRow>(sql.TURN, turnId);
      return row === undefined ? null : sql.learnedTurn(row);
    },
    bySignature: async (workspacePath, after, limit) =>
      withOutcomes(await all<sql.FingerprintRow>(sql.BY_SIGNATURE, workspacePath, after, limit)),
    newest: async (workspacePath, before, limit) => {
      const found = await all<sql.FingerprintRow>(sql.NEWEST, workspacePath, before ?? BEHIND_ALL, limit + 1);
      const page = pageOf(
        found,
        limit,
        (row) => row.id,
        (row) => row,
      );
      return { rows: await withOutcomes(page.rows), next: page.next };
    },
  };
}
