// Changes of learned patterns; sums are kept by the database, so that a purge in between is not undone (12 §12.3).
import { JournalConflict } from '#core/ports/journal-writer.ts';
import { toPusd } from '#protocol/money.ts';
import { sumIntegers } from '../schema/words.ts';
import type { Appliers, Tx } from './transaction.ts';

export const DROP_EMPTY = `
  DELETE FROM pattern_fingerprints
  WHERE id = ? AND NOT EXISTS (SELECT 1 FROM pattern_outcomes o WHERE o.fingerprint_id = pattern_fingerprints.id)`;
export const FINGERPRINT = `
    INSERT INTO pattern_fingerprints (id, workspace_path, structural_json, structural_sig, created_at)
    VALUES (@fingerprint_id, @workspace_path, @structural_json, @structural_sig, @at)
    ON CONFLICT (workspace_path, structural_sig) DO NOTHING`;
/** `@mean` is the turn's score and `@scored` 1, both 0 without one. */
export const OUTCOME = `
    INSERT INTO pattern_outcomes (fingerprint_id, primary_model, sample_size, success_score_mean, success_score_count,
      sum_cost_pusd, sum_latency_ms, pricing_version_last, last_updated_at)
    VALUES (@fingerprint_id, @primary_model, 1, @mean, @scored, @cost_pusd, @latency_ms, @pricing_version, @at)
    ON CONFLICT (fingerprint_id, primary_model) DO UPDATE SET sample_size = pattern_outcomes.sample_size + 1,
      success_score_count = pattern_outcomes.success_score_count + excluded.success_score_count,
      success_score_mean = max(0.0, min(1.0, pattern_outcomes.success_score_mean
        + excluded.success_score_count * (excluded.success_score_mean - pattern_outcomes.success_score_mean)
          / (pattern_outcomes.success_score_count + 1))),
      sum_cost_pusd = pattern_outcomes.sum_cost_pusd + excluded.sum_cost_pusd,
      sum_latency_ms = pattern_outcomes.sum_latency_ms + excluded.sum_latency_ms,
      pricing_version_last = excluded.pricing_version_last, last_updated_at = excluded.last_updated_at`;
export const TURN = `
    INSERT INTO pattern_turns (turn_id, fingerprint_id, primary_model, score, recorded_at)
    SELECT @turn_id, @fingerprint_id, @primary_model, @score, @at
    WHERE EXISTS (SELECT 1 FROM turns WHERE id = @turn_id)`;
/** Where a turn counts, and with what; null = it has no score yet. */
export interface Scored {
  readonly fingerprint_id: string;
  readonly primary_model: string;
  readonly before: number | null;
}
export const SCORED =
  'SELECT fingerprint_id, primary_model, score AS before FROM pattern_turns WHERE turn_id = @turn_id';
export const SCORE_TURN = 'UPDATE pattern_turns SET score = @score WHERE turn_id = @turn_id';
/** `@added` is 1 for a turn without a score before, else 0. */
export const SCORE_OUTCOME = `
    UPDATE pattern_outcomes SET success_score_count = success_score_count + @added, last_updated_at = @at,
      success_score_mean = max(0.0, min(1.0, success_score_mean
        + (@score - coalesce(@before, success_score_mean)) / (success_score_count + @added)))
    WHERE fingerprint_id = @fingerprint_id AND primary_model = @primary_model`;
export const SUBTRACT = `
    UPDATE pattern_outcomes SET
      sample_size = sample_size - gone.turns,
      sum_cost_pusd = sum_cost_pusd - gone.cost_pusd,
      sum_latency_ms = max(0.0, sum_latency_ms - gone.latency_ms),
      success_score_count = success_score_count - gone.scored,
      success_score_mean = CASE WHEN success_score_count <= gone.scored THEN 0.0 ELSE max(0.0, min(1.0,
        (success_score_mean * success_score_count - gone.score_sum) / (success_score_count - gone.scored))) END
    FROM (
      SELECT p.fingerprint_id, p.primary_model, count(*) AS turns, count(p.score) AS scored,
        coalesce(sum(p.score), 0.0) AS score_sum,
        ${sumIntegers(`coalesce((SELECT ${sumIntegers('c.cost_pusd')} FROM ledger_calls c WHERE c.turn_id = t.id), 0)`)} AS cost_pusd,
        sum(coalesce(t.wall_time_seconds, 0.0)) * 1000.0 AS latency_ms
      FROM turns t CROSS JOIN pattern_turns p ON p.turn_id = t.id
      WHERE t.session_id IN (SELECT value FROM json_each(?))
      GROUP BY p.fingerprint_id, p.primary_model
    ) AS gone
    WHERE pattern_outcomes.fingerprint_id = gone.fingerprint_id
      AND pattern_outcomes.primary_model = gone.primary_model
    RETURNING pattern_outcomes.fingerprint_id, sample_size`;
export const FORGET_TURNS = `
    DELETE FROM pattern_turns WHERE turn_id IN (
      SELECT id FROM turns WHERE session_id IN (SELECT value FROM json_each(?)))`;
export const FORGET =
  'DELETE FROM pattern_outcomes WHERE fingerprint_id = @fingerprint_id AND primary_model = @primary_model';
export const FORGET_OUTCOMES = 'DELETE FROM pattern_outcomes WHERE fingerprint_id = ? AND sample_size <= 0';

export const patternWrites: Appliers<Extract<keyof Appliers, `pattern.${string}`>> = {
  'pattern.record': ({ record }, { tx }) => {
    tx.run(FINGERPRINT, record);
    const scored = record.score === null ? 0 : 1;
    tx.run(OUTCOME, { ...record, cost_pusd: toPusd(record.cost_usd), mean: record.score ?? 0, scored });
    tx.run(TURN, record, ({ changes }) => {
      if (changes === 0) throw new JournalConflict('turn_gone', `no turn ${record.turn_id}`);
    });
  },
  'pattern.score': (write, { tx }) => {
    tx.run(SCORED, write, ({ rows }) => {
      const place = rows[0] as Scored | undefined;
      if (place === undefined || (place.before !== null && !write.replaces))
        throw new Error(`turn ${write.turn_id} takes no score`);
      tx.run(SCORE_TURN, write);
      tx.run(SCORE_OUTCOME, { ...write, ...place, added: place.before === null ? 1 : 0 });
    });
  },
  'pattern.forget': ({ fingerprint_id, primary_model }, { tx }) => {
    tx.run(FORGET, { fingerprint_id, primary_model });
    tx.run(DROP_EMPTY, [fingerprint_id]);
  },
};

/** Takes the turns of sessions out of what was learned. A purge calls it first: cost facts and turns know what each turn added. */
export function unlearnTurns(tx: Tx, sessionIds: string): void {
  tx.run(SUBTRACT, [sessionIds], ({ rows }) => {
    for (const { fingerprint_id, sample_size } of rows) {
      if ((sample_size as number) > 0) continue;
      tx.run(FORGET_OUTCOMES, [fingerprint_id]);
      tx.run(DROP_EMPTY, [fingerprint_id]);
    }
  });
  tx.run(FORGET_TURNS, [sessionIds]);
}
