// Changes of learned patterns. The database adds to the sums itself, so that a purge in between is not undone (12 §12.3).
import { JournalConflict } from '#core/ports/journal-writer.ts';
import { ZERO_PUSD } from '#protocol/money.ts';
import { sumIntegers } from '../schema/words.ts';
import { type Appliers, insertRow, type Tx } from './transaction.ts';

export const DROP_EMPTY = `
  DELETE FROM pattern_fingerprints
  WHERE id = ? AND NOT EXISTS (SELECT 1 FROM pattern_outcomes o WHERE o.fingerprint_id = pattern_fingerprints.id)`;
const insertFingerprint = insertRow(
  'pattern_fingerprints',
  ['id', 'workspace_path', 'structural_json', 'structural_sig', 'created_at'],
  'ON CONFLICT (workspace_path, structural_sig) DO NOTHING',
);
/** `@mean` is the turn's score and `@scored` 1, both 0 without one. */
export const OUTCOME = `
    INSERT INTO pattern_outcomes (fingerprint_id, primary_model, sample_size, success_score_mean, success_score_count,
      sum_cost_pusd, sum_latency_ms, pricing_version_last, last_updated_at, is_worker, cost_count, verified_mean,
      verified_count)
    VALUES (@fingerprint_id, @primary_model, 1, @mean, @scored, @counted_pusd, @latency_ms, @pricing_version, @at,
      @is_worker, @has_cost, 0.0, 0)
    ON CONFLICT (fingerprint_id, primary_model, is_worker) DO UPDATE SET sample_size = pattern_outcomes.sample_size + 1,
      success_score_count = pattern_outcomes.success_score_count + excluded.success_score_count,
      success_score_mean = {greatest}(0.0, {least}(1.0, pattern_outcomes.success_score_mean
        + excluded.success_score_count * (excluded.success_score_mean - pattern_outcomes.success_score_mean)
          / (pattern_outcomes.success_score_count + 1))),
      sum_cost_pusd = pattern_outcomes.sum_cost_pusd + excluded.sum_cost_pusd,
      cost_count = pattern_outcomes.cost_count + excluded.cost_count,
      sum_latency_ms = pattern_outcomes.sum_latency_ms + excluded.sum_latency_ms,
      pricing_version_last = excluded.pricing_version_last, last_updated_at = excluded.last_updated_at`;
export const TURN = `
    INSERT INTO pattern_turns (turn_id, fingerprint_id, primary_model, is_worker, score, is_verified, has_cost,
      recorded_at)
    SELECT @turn_id, @fingerprint_id, @primary_model, @is_worker, @score, 0, @has_cost, @at
    WHERE EXISTS (SELECT 1 FROM turns WHERE id = @turn_id)`;
/** The pattern that a turn counts in, and its score; null = it has no score yet. */
export interface Scored {
  readonly fingerprint_id: string;
  readonly primary_model: string;
  readonly is_worker: number;
  readonly before: number | null;
  /** The same where a check or a person gave it. */
  readonly verified_before: number | null;
}
export const SCORED = `
    SELECT fingerprint_id, primary_model, is_worker, score AS before,
      CASE WHEN is_verified = 1 THEN score END AS verified_before
    FROM pattern_turns WHERE turn_id = @turn_id`;
export const SCORE_TURN =
  'UPDATE pattern_turns SET score = @score, is_verified = @is_verified WHERE turn_id = @turn_id';
/** `@added` and `@verified_added` are 1 for a turn without such a score before, else 0. */
export const SCORE_OUTCOME = `
    UPDATE pattern_outcomes SET success_score_count = success_score_count + @added, last_updated_at = @at,
      success_score_mean = {greatest}(0.0, {least}(1.0, success_score_mean
        + (@score - coalesce(@before, success_score_mean)) / (success_score_count + @added))),
      verified_count = verified_count + @verified_added,
      verified_mean = CASE WHEN @is_verified = 0 THEN verified_mean ELSE {greatest}(0.0, {least}(1.0, verified_mean
        + (@score - coalesce(@verified_before, verified_mean)) / (verified_count + @verified_added))) END
    WHERE fingerprint_id = @fingerprint_id AND primary_model = @primary_model AND is_worker = @is_worker`;
export const SUBTRACT = `
    UPDATE pattern_outcomes SET
      sample_size = sample_size - gone.turns,
      sum_cost_pusd = sum_cost_pusd - gone.cost_pusd,
      sum_latency_ms = {greatest}(0.0, sum_latency_ms - gone.latency_ms),
      success_score_count = success_score_count - gone.scored,
      success_score_mean = CASE WHEN success_score_count <= gone.scored THEN 0.0 ELSE {greatest}(0.0, {least}(1.0,
        (success_score_mean * success_score_count - gone.score_sum) / (success_score_count - gone.scored))) END,
      cost_count = cost_count - gone.costs,
      verified_count = verified_count - gone.verified,
      verified_mean = CASE WHEN verified_count <= gone.verified THEN 0.0 ELSE {greatest}(0.0, {least}(1.0,
        (verified_mean * verified_count - gone.verified_sum) / (verified_count - gone.verified))) END
    FROM (
      SELECT p.fingerprint_id, p.primary_model, p.is_worker, count(*) AS turns, count(p.score) AS scored,
        coalesce(sum(p.score), 0.0) AS score_sum, 
        ${sumIntegers('p.has_cost')} AS costs, ${sumIntegers('p.is_verified')} AS verified,
        coalesce(sum(CASE WHEN p.is_verified = 1 THEN p.score END), 0.0) AS verified_sum,
        ${sumIntegers(`p.has_cost * coalesce((SELECT ${sumIntegers('c.cost_pusd')} FROM ledger_calls c WHERE c.turn_id = t.id), 0)`)} AS cost_pusd,
        sum(coalesce(t.wall_time_seconds, 0.0)) * 1000.0 AS latency_ms
      FROM turns t {join_in_order} pattern_turns p ON p.turn_id = t.id
      WHERE t.session_id {in_list}
      GROUP BY p.fingerprint_id, p.primary_model, p.is_worker
    ) AS gone
    WHERE pattern_outcomes.fingerprint_id = gone.fingerprint_id
      AND pattern_outcomes.primary_model = gone.primary_model AND pattern_outcomes.is_worker = gone.is_worker
    RETURNING pattern_outcomes.fingerprint_id, sample_size`;
export const FORGET_TURNS = `
    DELETE FROM pattern_turns WHERE turn_id IN (
      SELECT id FROM turns WHERE session_id {in_list})`;
export const FORGET =
  'DELETE FROM pattern_outcomes WHERE fingerprint_id = @fingerprint_id AND primary_model = @primary_model AND is_worker = @is_worker';
export const FORGET_OUTCOMES = 'DELETE FROM pattern_outcomes WHERE fingerprint_id = ? AND sample_size <= 0';

export const patternWrites: Appliers<Extract<keyof Appliers, `pattern.${string}`>> = {
  'pattern.record': ({ record }, { tx }) => {
    insertFingerprint(tx, { ...record, id: record.fingerprint_id, created_at: record.at });
    const scored = record.score === null ? 0 : 1;
    const flags = { is_worker: Number(record.is_worker), has_cost: Number(record.has_cost) };
    const counted_pusd = record.has_cost ? record.cost_pusd : ZERO_PUSD;
    tx.run(OUTCOME, { ...record, ...flags, counted_pusd, mean: record.score ?? 0, scored });
    tx.change(TURN, { ...record, ...flags }, () => {
      throw new JournalConflict('turn_gone', `no turn ${record.turn_id}`);
    });
  },
  'pattern.score': (write, { tx }) => {
    tx.run(SCORED, write, ({ rows }) => {
      const place = rows[0] as Scored | undefined;
      if (place === undefined || (place.before !== null && !write.replaces))
        throw new Error(`turn ${write.turn_id} takes no score`);
      const is_verified = Number(write.is_verified);
      const verified_added = write.is_verified && place.verified_before === null ? 1 : 0;
      tx.run(SCORE_TURN, { ...write, is_verified });
      tx.run(SCORE_OUTCOME, { ...write, ...place, is_verified, verified_added, added: place.before === null ? 1 : 0 });
    });
  },
  'pattern.forget': ({ fingerprint_id, primary_model, is_worker }, { tx }) => {
    tx.run(FORGET, { fingerprint_id, primary_model, is_worker: Number(is_worker) });
    tx.run(DROP_EMPTY, [fingerprint_id]);
  },
};

/** Removes the turns of sessions from the learned patterns. A purge calls it first, while cost facts and turns still show what each turn added. */
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
