CREATE TABLE `ledger_sessions` (
	`session_key` integer PRIMARY KEY NOT NULL,
	`session_id` text NOT NULL,
	`root_session_id` text NOT NULL,
	`parent_key` text NOT NULL,
	`is_worker` integer NOT NULL,
	`workspace_hash` text NOT NULL,
	`delegation_tier` text NOT NULL,
	`worker_name` text NOT NULL,
	`delegated_by_model` text NOT NULL,
	`door` text NOT NULL,
	`caller` text NOT NULL,
	CONSTRAINT "ledger_sessions_flags" CHECK(is_worker IN (0, 1))
) STRICT;
--> statement-breakpoint
INSERT INTO `ledger_sessions` (session_id, root_session_id, parent_key, is_worker, workspace_hash, delegation_tier,
  worker_name, delegated_by_model, door, caller)
SELECT session_id, root_session_id, parent_key, is_worker, workspace_hash, delegation_tier, worker_name,
  delegated_by_model, door, caller
FROM (
  -- The columns beside MIN are those of the row that it found: a session's first call.
  SELECT session_id, root_session_id, parent_key, is_worker, workspace_hash, delegation_tier, worker_name,
    delegated_by_model, door, caller, MIN(rowid) AS first
  FROM llm_calls GROUP BY session_id
) ORDER BY first;--> statement-breakpoint
CREATE UNIQUE INDEX `ledger_sessions_id` ON `ledger_sessions` (`session_id`);--> statement-breakpoint
CREATE INDEX `ledger_sessions_root` ON `ledger_sessions` (`root_session_id`);--> statement-breakpoint
CREATE INDEX `ledger_sessions_parent` ON `ledger_sessions` (`parent_key`);--> statement-breakpoint
CREATE TABLE `ledger_calls` (
	`seq` integer PRIMARY KEY NOT NULL,
	`event_id` text NOT NULL,
	`ts_ms` integer NOT NULL,
	`session_key` integer NOT NULL,
	`turn_id` text,
	`model` text NOT NULL,
	`provider` text NOT NULL,
	`pricing_version` text NOT NULL,
	`purpose` text NOT NULL,
	`input_tokens` integer NOT NULL,
	`cached_input_tokens` integer NOT NULL,
	`cache_creation_input_tokens` integer NOT NULL,
	`cache_creation_1h_input_tokens` integer NOT NULL,
	`output_tokens` integer NOT NULL,
	`reasoning_tokens` integer NOT NULL,
	`usage_estimated` integer NOT NULL,
	`priced` integer NOT NULL,
	`cancelled` integer NOT NULL,
	`latency_ms` integer,
	`cost_pusd` integer NOT NULL,
	CONSTRAINT "ledger_calls_purpose" CHECK(purpose IN ('turn', 'compaction', 'gateway')),
	CONSTRAINT "ledger_calls_flags" CHECK(usage_estimated IN (0, 1) AND priced IN (0, 1) AND cancelled IN (0, 1))
) STRICT;
--> statement-breakpoint
INSERT INTO `ledger_calls`
SELECT c.rowid, c.event_id, c.ts_ms, s.session_key, c.turn_id, c.model, c.provider, c.pricing_version, c.purpose,
  c.input_tokens, c.cached_input_tokens, c.cache_creation_input_tokens, c.cache_creation_1h_input_tokens,
  c.output_tokens, c.reasoning_tokens, c.usage_estimated, c.priced, c.cancelled, c.latency_ms, c.cost_pusd
FROM llm_calls c CROSS JOIN ledger_sessions s ON s.session_id = c.session_id ORDER BY c.rowid;--> statement-breakpoint
DROP TABLE `llm_calls`;--> statement-breakpoint
CREATE UNIQUE INDEX `ledger_calls_event` ON `ledger_calls` (`event_id`);--> statement-breakpoint
CREATE INDEX `ledger_calls_time` ON `ledger_calls` (`ts_ms`);--> statement-breakpoint
CREATE INDEX `ledger_calls_session` ON `ledger_calls` (`session_key`,`ts_ms`);--> statement-breakpoint
CREATE INDEX `ledger_calls_turn` ON `ledger_calls` (`turn_id`);--> statement-breakpoint
CREATE TABLE `__new_rollup_session_hour` (
	`hour` integer NOT NULL,
	`session_key` integer NOT NULL,
	`model` text NOT NULL,
	`provider` text NOT NULL,
	`calls` integer NOT NULL,
	`unpriced_calls` integer NOT NULL,
	`latency_sum` integer NOT NULL,
	`latency_n` integer NOT NULL,
	`input_tokens` integer NOT NULL,
	`cached_input_tokens` integer NOT NULL,
	`cache_creation_input_tokens` integer NOT NULL,
	`cache_creation_1h_input_tokens` integer NOT NULL,
	`output_tokens` integer NOT NULL,
	`reasoning_tokens` integer NOT NULL,
	`cost_pusd` integer NOT NULL,
	PRIMARY KEY(`hour`, `session_key`, `model`)
) STRICT, WITHOUT ROWID;
--> statement-breakpoint
INSERT INTO `__new_rollup_session_hour`
SELECT r.hour, s.session_key, r.model, r.provider, r.calls, r.unpriced_calls, r.latency_sum, r.latency_n,
  r.input_tokens, r.cached_input_tokens, r.cache_creation_input_tokens, r.cache_creation_1h_input_tokens,
  r.output_tokens, r.reasoning_tokens, r.cost_pusd
FROM rollup_session_hour r CROSS JOIN ledger_sessions s ON s.session_id = r.session_id ORDER BY 1, 2, 3;--> statement-breakpoint
DROP TABLE `rollup_session_hour`;--> statement-breakpoint
ALTER TABLE `__new_rollup_session_hour` RENAME TO `rollup_session_hour`;--> statement-breakpoint
CREATE INDEX `rollup_session_hour_session` ON `rollup_session_hour` (`session_key`,`hour`);--> statement-breakpoint
-- LEFT JOIN, so that SQLite looks sessions up by their calls unless a condition names the session.
CREATE VIEW `llm_calls` AS
SELECT c.seq, c.event_id, c.ts_ms, c.session_key, s.session_id, s.root_session_id, s.parent_key,
  CASE WHEN s.is_worker = 1 THEN s.parent_key END AS parent_session_id, s.is_worker, c.turn_id, s.workspace_hash,
  c.model, c.provider, c.pricing_version, c.purpose, c.input_tokens, c.cached_input_tokens,
  c.cache_creation_input_tokens, c.cache_creation_1h_input_tokens, c.output_tokens, c.reasoning_tokens,
  c.usage_estimated, c.priced, c.cancelled, s.delegation_tier, s.worker_name, s.delegated_by_model, c.latency_ms,
  c.cost_pusd, s.door, s.caller
FROM ledger_calls c LEFT JOIN ledger_sessions s ON s.session_key = c.session_key;--> statement-breakpoint
CREATE VIEW `session_hours` AS
SELECT r.hour, s.session_id, s.root_session_id, s.parent_key, s.is_worker, s.delegation_tier, s.worker_name,
  s.workspace_hash, r.model, r.provider, r.calls, r.unpriced_calls, r.latency_sum, r.latency_n, r.input_tokens,
  r.cached_input_tokens, r.cache_creation_input_tokens, r.cache_creation_1h_input_tokens, r.output_tokens,
  r.reasoning_tokens, r.cost_pusd, s.door, s.caller
FROM rollup_session_hour r LEFT JOIN ledger_sessions s ON s.session_key = r.session_key;--> statement-breakpoint
PRAGMA user_version = 10;
