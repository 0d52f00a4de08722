// Learned patterns of a workspace, each with its outcomes (12 §12.3).
import type Database from 'better-sqlite3';
import type { PatternReader } from '#core/ports/patterns.ts';
import { pageOf } from '#store/read/page.ts';
import * as sql from '#store/read/patterns.ts';
import { BEHIND_ALL } from '#store/schema/words.ts';

export function createPatternReader(db: Database.Database): PatternReader {
  const turns = db.prepare<[string], sql.TurnRow>(sql.TURNS);
  const bySignature = db.prepare<[string, string, number], sql.FingerprintRow>(sql.BY_SIGNATURE);
  const newest = db.prepare<[string, string, number], sql.FingerprintRow>(sql.NEWEST);
  const outcomes = db.prepare<[string], sql.OutcomeRow>(sql.OUTCOMES);

  const withOutcomes = (rows: readonly sql.FingerprintRow[]) =>
    sql.storedPatterns(rows, outcomes.all(JSON.stringify(rows.map(({ id }) => id))));

  return {
    turns: async (turnIds) => sql.learnedTurns(turns.all(JSON.stringify(turnIds))),
    bySignature: async (workspacePath, after, limit) => withOutcomes(bySignature.all(workspacePath, after, limit)),
    newest: async (workspacePath, before, limit) => {
      const found = newest.all(workspacePath, before ?? BEHIND_ALL, limit + 1);
      const page = pageOf(
        found,
        limit,
        (row) => row.id,
        (row) => row,
      );
      return { rows: withOutcomes(page.rows), next: page.next };
    },
  };
}
