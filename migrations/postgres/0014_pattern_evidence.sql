-- Until now an outcome had the turns of workers and top-level turns in one sum: it is summed again over its turns.
LOCK TABLE pattern_turns, pattern_outcomes IN ACCESS EXCLUSIVE MODE;
CREATE TEMPORARY TABLE learned ON COMMIT DROP AS
SELECT p.turn_id, p.fingerprint_id, p.primary_model, s.is_worker, p.score, p.recorded_at,
  CASE WHEN p.score IS NOT NULL AND t.user_score_json IS NOT NULL THEN 1 ELSE 0 END AS is_verified,
  CASE WHEN coalesce(t.stop_reason, '') <> 'budget_exceeded' THEN 1 ELSE 0 END AS has_cost,
  coalesce((SELECT sum(c.cost_pusd) FROM ledger_calls c WHERE c.turn_id = t.id), 0) AS cost_pusd,
  coalesce(t.wall_time_seconds, 0.0) * 1000.0 AS latency_ms, o.pricing_version_last, o.last_updated_at
FROM pattern_turns p JOIN turns t ON t.id = p.turn_id JOIN sessions s ON s.id = t.session_id
  JOIN pattern_outcomes o ON o.fingerprint_id = p.fingerprint_id AND o.primary_model = p.primary_model;
DELETE FROM pattern_outcomes;
DROP TABLE pattern_turns;
ALTER TABLE pattern_outcomes
  ADD COLUMN is_worker bigint NOT NULL,
  ADD COLUMN cost_count bigint NOT NULL,
  ADD COLUMN verified_mean double precision NOT NULL,
  ADD COLUMN verified_count bigint NOT NULL,
  DROP CONSTRAINT pattern_outcomes_pkey,
  ADD PRIMARY KEY (fingerprint_id, primary_model, is_worker);
CREATE TABLE pattern_turns (
  turn_id text COLLATE "C" PRIMARY KEY,
  fingerprint_id text COLLATE "C" NOT NULL,
  primary_model text COLLATE "C" NOT NULL,
  is_worker bigint NOT NULL,
  score double precision,
  is_verified bigint NOT NULL,
  has_cost bigint NOT NULL,
  recorded_at bigint NOT NULL,
  FOREIGN KEY (fingerprint_id, primary_model, is_worker)
    REFERENCES pattern_outcomes(fingerprint_id, primary_model, is_worker) ON DELETE CASCADE
);
CREATE INDEX pattern_turns_outcome ON pattern_turns (fingerprint_id, primary_model, is_worker, recorded_at);
INSERT INTO pattern_outcomes (fingerprint_id, primary_model, is_worker, sample_size, success_score_mean,
  success_score_count, sum_cost_pusd, sum_latency_ms, pricing_version_last, last_updated_at, cost_count, verified_mean,
  verified_count)
SELECT fingerprint_id, primary_model, is_worker, count(*), coalesce(avg(score), 0.0), count(score),
  CAST(sum(has_cost * cost_pusd) AS bigint), sum(latency_ms), min(pricing_version_last), max(last_updated_at),
  CAST(sum(has_cost) AS bigint), coalesce(avg(score) FILTER (WHERE is_verified = 1), 0.0),
  count(score) FILTER (WHERE is_verified = 1)
FROM learned GROUP BY fingerprint_id, primary_model, is_worker;
INSERT INTO pattern_turns (turn_id, fingerprint_id, primary_model, is_worker, score, is_verified, has_cost, recorded_at)
SELECT turn_id, fingerprint_id, primary_model, is_worker, score, is_verified, has_cost, recorded_at FROM learned;
DELETE FROM pattern_fingerprints f
WHERE NOT EXISTS (SELECT 1 FROM pattern_outcomes o WHERE o.fingerprint_id = f.id);
