// Learned patterns of a workspace, each with its outcomes (12 §12.3).
import { restoreFingerprint } from '#core/policy/learning/fingerprint.ts';
import type { LearnedTurn, PatternPage, PatternReader } from '#core/ports/learned-turns.ts';
import type { PatternOutcome, StoredPattern } from '#protocol/learned-pattern.ts';
import type { Pusd } from '#protocol/money.ts';
import { BEHIND_ALL } from '../schema/words.ts';
import { whereSeen } from './people.ts';
import { type Reads, toPage } from './read-database.ts';

export interface FingerprintRow {
  readonly id: string;
  readonly structural_sig: string;
  readonly structural_json: string;
}
/** Money as text: a JS number would lose picodollars. */
export type OutcomeRow = Omit<PatternOutcome, 'sum_cost_pusd' | 'is_worker'> & {
  readonly fingerprint_id: string;
  readonly is_worker: number;
  readonly sum_cost_text: string;
};
type Recorded = Omit<NonNullable<LearnedTurn['recorded']>, 'is_verified'> & { readonly is_verified: number };
export type TurnRow = Omit<LearnedTurn, 'fingerprint' | 'recorded' | 'is_worker'> & {
  readonly id: string;
  readonly is_worker: number;
  readonly workspace_hash: string;
  readonly fingerprint_json: string | null;
} & (Recorded | { readonly [K in keyof Recorded]: null });

const FINGERPRINTS = 'SELECT id, structural_sig, structural_json FROM pattern_fingerprints WHERE workspace_path = ?';

export const TURNS = `
  SELECT t.id, t.session_id, s.workspace_path, s.workspace_hash, s.is_worker,
    CASE WHEN t.chosen_effort IS NULL THEN t.chosen_model ELSE t.chosen_model || ':' || t.chosen_effort END AS chosen_model,
    t.fingerprint_json, p.fingerprint_id, p.primary_model,
    p.score, p.is_verified, f.structural_sig, o.pricing_version_last AS pricing_version
  FROM turns t JOIN sessions s ON s.id = t.session_id
    LEFT JOIN pattern_turns p ON p.turn_id = t.id LEFT JOIN pattern_fingerprints f ON f.id = p.fingerprint_id
    LEFT JOIN pattern_outcomes o ON o.fingerprint_id = p.fingerprint_id AND o.primary_model = p.primary_model
      AND o.is_worker = p.is_worker
  WHERE t.id {in_list}`;
export const BY_SIGNATURE = `${FINGERPRINTS} AND structural_sig > ? ORDER BY structural_sig LIMIT ?`;
export const OUTCOMES = `
  SELECT fingerprint_id, primary_model AS model, is_worker, cost_count, verified_mean, verified_count, sample_size, success_score_mean, success_score_count,
    CAST(sum_cost_pusd AS TEXT) AS sum_cost_text, sum_latency_ms, last_updated_at
  FROM pattern_outcomes WHERE fingerprint_id {in_list}`;
const BY_MODEL = 'ORDER BY primary_model, is_worker';

/** @param seen of `whereLearnedSeen` */
export function selectNewest(seen: string): string {
  return `${FINGERPRINTS} AND id < ? ${seen} ORDER BY id DESC LIMIT ?`;
}

/** The condition that a turn of a session that exists for the reader was learned in a shape, or in one outcome of it. */
export function whereLearnedSeen(
  reader: PatternPage['reader'],
  row: { readonly shape: string; readonly outcome?: string },
) {
  const seen = whereSeen(reader, 's');
  if (seen === null) return { sql: '', values: [] };
  const { shape, outcome } = row;
  const ofModel =
    outcome === undefined
      ? ''
      : `AND p.primary_model = ${outcome}.primary_model AND p.is_worker = ${outcome}.is_worker`;
  const sql = `AND EXISTS (SELECT 1 FROM pattern_turns p JOIN turns t ON t.id = p.turn_id
    JOIN sessions s ON s.id = t.session_id WHERE p.fingerprint_id = ${shape} ${ofModel} AND ${seen.sql})`;
  return { sql, values: seen.values };
}

export function learnedTurns(rows: readonly TurnRow[]): ReadonlyMap<string, LearnedTurn> {
  const turns = new Map<string, LearnedTurn>();
  for (const row of rows) {
    const { id, session_id, workspace_path, workspace_hash, is_worker, chosen_model, fingerprint_json, ...recorded } =
      row;
    const fingerprint =
      fingerprint_json === null ? null : restoreFingerprint(JSON.parse(fingerprint_json), workspace_hash);
    const known = recorded.fingerprint_id === null ? null : { ...recorded, is_verified: recorded.is_verified === 1 };
    turns.set(id, {
      session_id,
      workspace_path,
      is_worker: is_worker === 1,
      chosen_model,
      fingerprint,
      recorded: known,
    });
  }
  return turns;
}

export function storedPatterns(rows: readonly FingerprintRow[], outcomes: readonly OutcomeRow[]): StoredPattern[] {
  const found = new Map<string, PatternOutcome[]>(rows.map(({ id }) => [id, []]));
  for (const { fingerprint_id, sum_cost_text, is_worker, ...row } of outcomes)
    found
      .get(fingerprint_id)
      ?.push({ ...row, is_worker: is_worker === 1, sum_cost_pusd: BigInt(sum_cost_text) as Pusd });
  return rows.map(({ id, structural_sig, structural_json }) => ({
    fingerprint_id: id,
    structural_sig,
    fingerprint: JSON.parse(structural_json),
    outcomes: found.get(id) ?? [],
  }));
}

export function createPatternReader({ all }: Reads): PatternReader {
  const withOutcomes = async (rows: readonly FingerprintRow[], reader: PatternPage['reader']) => {
    const seen = whereLearnedSeen(reader, { shape: 'pattern_outcomes.fingerprint_id', outcome: 'pattern_outcomes' });
    const ids = JSON.stringify(rows.map(({ id }) => id));
    return storedPatterns(rows, await all<OutcomeRow>(`${OUTCOMES} ${seen.sql} ${BY_MODEL}`, ids, ...seen.values));
  };
  return {
    turns: async (turnIds) => learnedTurns(await all<TurnRow>(TURNS, JSON.stringify(turnIds))),
    bySignature: async (workspacePath, after, limit) =>
      withOutcomes(await all<FingerprintRow>(BY_SIGNATURE, workspacePath, after, limit), null),
    newest: async (workspacePath, { before, limit, reader }) => {
      const seen = whereLearnedSeen(reader, { shape: 'pattern_fingerprints.id' });
      const values = [workspacePath, before ?? BEHIND_ALL, ...seen.values, limit + 1];
      const found = await all<FingerprintRow>(selectNewest(seen.sql), ...values);
      const page = toPage(
        found,
        limit,
        (row) => row.id,
        (row) => row,
      );
      return { rows: await withOutcomes(page.rows, reader), next: page.next };
    },
  };
}
