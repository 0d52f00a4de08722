-- Tokens made at run time, owners of sessions, money by owner and day, and the audit (23).
CREATE TABLE audit (
  id text COLLATE "C" PRIMARY KEY,
  at bigint NOT NULL,
  actor text COLLATE "C",
  action text COLLATE "C" NOT NULL,
  subject text COLLATE "C",
  details_json text COLLATE "C" NOT NULL
);
CREATE INDEX audit_time ON audit (at);
CREATE TABLE owner_days (
  owner text COLLATE "C" NOT NULL,
  day bigint NOT NULL,
  cost_pusd bigint NOT NULL,
  PRIMARY KEY (owner, day)
);
CREATE TABLE tokens (
  id text COLLATE "C" PRIMARY KEY,
  name text COLLATE "C" NOT NULL,
  token_sha256 text COLLATE "C" NOT NULL,
  role text COLLATE "C" NOT NULL,
  daily_usd text COLLATE "C",
  monthly_usd text COLLATE "C",
  workspaces_json text COLLATE "C",
  expires_at bigint,
  created_by text COLLATE "C",
  created_at bigint NOT NULL,
  revoked_at bigint,
  CONSTRAINT tokens_role CHECK (role IN ('viewer', 'member', 'admin'))
);
CREATE UNIQUE INDEX tokens_name ON tokens (name);
ALTER TABLE confirmations ADD COLUMN answered_by text COLLATE "C";
ALTER TABLE sessions ADD COLUMN owner text COLLATE "C";
ALTER TABLE sessions ADD COLUMN share text COLLATE "C" NOT NULL DEFAULT 'read'
  CONSTRAINT sessions_share CHECK (share IN ('private', 'read', 'write'));
ALTER TABLE turns ADD COLUMN submitted_by text COLLATE "C";
ALTER TABLE ledger_sessions ADD COLUMN owner text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE ledger_sessions ADD COLUMN share text COLLATE "C" NOT NULL DEFAULT 'read';
DROP VIEW llm_calls;
DROP VIEW session_hours;
DROP VIEW bill_hours;
CREATE VIEW llm_calls AS
SELECT c.seq, c.event_id, c.ts_ms, c.session_key, s.session_id, s.root_session_id, s.parent_key,
  CASE WHEN s.is_worker = 1 THEN s.parent_key END AS parent_session_id, s.is_worker, c.turn_id, s.workspace_hash,
  c.model, c.provider, c.pricing_version, c.purpose, c.input_tokens, c.cached_input_tokens,
  c.cache_creation_input_tokens, c.cache_creation_1h_input_tokens, c.output_tokens, c.reasoning_tokens,
  c.usage_estimated, c.priced, c.cancelled, s.delegation_tier, s.worker_name, s.delegated_by_model, c.latency_ms,
  c.cost_pusd, s.door, s.caller, c.effort, coalesce(c.fees_pusd, 0) AS fees_pusd,
  coalesce(c.surcharge_pusd, 0) AS surcharge_pusd, coalesce(c.fees_unpriced, 0) AS fees_unpriced,
  coalesce(c.surcharge_unknown, 0) AS surcharge_unknown, coalesce(c.rounds_unknown, 0) AS rounds_unknown, c.bill_json,
  s.owner, s.share
FROM ledger_calls c LEFT JOIN ledger_sessions s ON s.session_key = c.session_key;
CREATE VIEW session_hours AS
SELECT r.hour, s.session_id, s.root_session_id, s.parent_key, s.is_worker, s.delegation_tier, s.worker_name,
  s.workspace_hash, r.model, r.provider, r.calls, r.unpriced_calls, r.latency_sum, r.latency_n, r.input_tokens,
  r.cached_input_tokens, r.cache_creation_input_tokens, r.cache_creation_1h_input_tokens, r.output_tokens,
  r.reasoning_tokens, r.cost_pusd, s.door, s.caller, s.owner, s.share
FROM rollup_session_hour r LEFT JOIN ledger_sessions s ON s.session_key = r.session_key;
CREATE VIEW bill_hours AS
SELECT r.hour, s.session_id, s.root_session_id, s.parent_key, s.is_worker, s.delegation_tier, s.worker_name,
  s.workspace_hash, r.model, r.provider, r.fees_pusd, r.surcharge_pusd, r.fees_unpriced_calls,
  r.surcharge_unknown_calls, r.rounds_unknown_calls, s.door, s.caller, s.owner, s.share
FROM rollup_bill_hour r LEFT JOIN ledger_sessions s ON s.session_key = r.session_key;
