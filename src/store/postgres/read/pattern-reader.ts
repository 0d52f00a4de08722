// Learned patterns of a workspace, each with its outcomes (12 §12.3).
import type { PatternReader } from '#core/ports/patterns.ts';
import { pageOf } from '#store/read/page.ts';
import * as sql from '#store/read/patterns.ts';
import { BEHIND_ALL } from '#store/schema/words.ts';
import type { Reads } from '../connection/reads.ts';

export function createPatternReader({ all }: Reads): PatternReader {
  const withOutcomes = async (rows: readonly sql.FingerprintRow[]) =>
    sql.storedPatterns(rows, await all<sql.OutcomeRow>(sql.OUTCOMES, JSON.stringify(rows.map(({ id }) => id))));
  return {
    turns: async (turnIds) => sql.learnedTurns(await all<sql.TurnRow>(sql.TURNS, JSON.stringify(turnIds))),
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
