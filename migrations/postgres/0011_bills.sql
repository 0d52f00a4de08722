CREATE TABLE llm_call_rounds (
  event_id text COLLATE "C" NOT NULL,
  seq bigint NOT NULL,
  kind text COLLATE "C" NOT NULL,
  model text COLLATE "C" NOT NULL,
  input_tokens bigint NOT NULL,
  cached_input_tokens bigint NOT NULL,
  cache_creation_input_tokens bigint NOT NULL,
  cache_creation_1h_input_tokens bigint NOT NULL,
  output_tokens bigint NOT NULL,
  reasoning_tokens bigint NOT NULL,
  cost_pusd bigint NOT NULL,
  priced bigint NOT NULL,
  billed bigint NOT NULL,
  PRIMARY KEY (event_id, seq)
);
CREATE TABLE rollup_bill_hour (
  hour bigint NOT NULL,
  session_key bigint NOT NULL,
  model text COLLATE "C" NOT NULL,
  provider text COLLATE "C" NOT NULL,
  fees_pusd bigint NOT NULL,
  surcharge_pusd bigint NOT NULL,
  fees_unpriced_calls bigint NOT NULL,
  surcharge_unknown_calls bigint NOT NULL,
  rounds_unknown_calls bigint NOT NULL,
  PRIMARY KEY (hour, session_key, model)
);
CREATE INDEX rollup_bill_hour_session ON rollup_bill_hour (session_key, hour);
ALTER TABLE ledger_calls ADD COLUMN fees_pusd bigint;
ALTER TABLE ledger_calls ADD COLUMN surcharge_pusd bigint;
ALTER TABLE ledger_calls ADD COLUMN fees_unpriced bigint;
ALTER TABLE ledger_calls ADD COLUMN surcharge_unknown bigint;
ALTER TABLE ledger_calls ADD COLUMN rounds_unknown bigint;
ALTER TABLE ledger_calls ADD COLUMN bill_json text COLLATE "C";
CREATE INDEX ledger_calls_billed ON ledger_calls (ts_ms) WHERE bill_json IS NOT NULL;
DROP VIEW llm_calls;
CREATE VIEW llm_calls AS
SELECT c.seq, c.event_id, c.ts_ms, c.session_key, s.session_id, s.root_session_id, s.parent_key,
  CASE WHEN s.is_worker = 1 THEN s.parent_key END AS parent_session_id, s.is_worker, c.turn_id, s.workspace_hash,
  c.model, c.provider, c.pricing_version, c.purpose, c.input_tokens, c.cached_input_tokens,
  c.cache_creation_input_tokens, c.cache_creation_1h_input_tokens, c.output_tokens, c.reasoning_tokens,
  c.usage_estimated, c.priced, c.cancelled, s.delegation_tier, s.worker_name, s.delegated_by_model, c.latency_ms,
  c.cost_pusd, s.door, s.caller, c.effort, coalesce(c.fees_pusd, 0) AS fees_pusd,
  coalesce(c.surcharge_pusd, 0) AS surcharge_pusd, coalesce(c.fees_unpriced, 0) AS fees_unpriced,
  coalesce(c.surcharge_unknown, 0) AS surcharge_unknown, coalesce(c.rounds_unknown, 0) AS rounds_unknown, c.bill_json
FROM ledger_calls c LEFT JOIN ledger_sessions s ON s.session_key = c.session_key;
CREATE VIEW bill_hours AS
SELECT r.hour, s.session_id, s.root_session_id, s.parent_key, s.is_worker, s.delegation_tier, s.worker_name,
  s.workspace_hash, r.model, r.provider, r.fees_pusd, r.surcharge_pusd, r.fees_unpriced_calls,
  r.surcharge_unknown_calls, r.rounds_unknown_calls, s.door, s.caller
FROM rollup_bill_hour r LEFT JOIN ledger_sessions s ON s.session_key = r.session_key;
