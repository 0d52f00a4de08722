CREATE TABLE `audit` (
	`id` text PRIMARY KEY NOT NULL,
	`at` integer NOT NULL,
	`actor` text,
	`action` text NOT NULL,
	`subject` text,
	`details_json` text NOT NULL
) STRICT;
--> statement-breakpoint
CREATE INDEX `audit_time` ON `audit` (`at`);--> statement-breakpoint
CREATE TABLE `owner_days` (
	`owner` text NOT NULL,
	`day` integer NOT NULL,
	`cost_pusd` integer NOT NULL,
	PRIMARY KEY(`owner`, `day`)
) STRICT, WITHOUT ROWID;
--> statement-breakpoint
CREATE TABLE `tokens` (
	`id` text PRIMARY KEY NOT NULL,
	`name` text NOT NULL,
	`token_sha256` text NOT NULL,
	`role` text NOT NULL,
	`daily_usd` text,
	`monthly_usd` text,
	`workspaces_json` text,
	`expires_at` integer,
	`created_by` text,
	`created_at` integer NOT NULL,
	`revoked_at` integer,
	CONSTRAINT "tokens_role" CHECK(role IN ('viewer', 'member', 'admin'))
) STRICT;
--> statement-breakpoint
CREATE UNIQUE INDEX `tokens_name` ON `tokens` (`name`);--> statement-breakpoint
ALTER TABLE `confirmations` ADD `answered_by` text;--> statement-breakpoint
ALTER TABLE `sessions` ADD `owner` text;--> statement-breakpoint
ALTER TABLE `sessions` ADD `share` text DEFAULT 'read' NOT NULL CONSTRAINT "sessions_share" CHECK(share IN ('private', 'read', 'write'));--> statement-breakpoint
ALTER TABLE `turns` ADD `submitted_by` text;--> statement-breakpoint
ALTER TABLE `ledger_sessions` ADD `owner` text DEFAULT '' NOT NULL;--> statement-breakpoint
ALTER TABLE `ledger_sessions` ADD `share` text DEFAULT 'read' NOT NULL;--> statement-breakpoint
DROP VIEW `llm_calls`;--> statement-breakpoint
DROP VIEW `session_hours`;--> statement-breakpoint
DROP VIEW `bill_hours`;--> statement-breakpoint
-- LEFT JOIN, so that SQLite looks sessions up by their calls unless a condition names the session.
CREATE VIEW `llm_calls` AS
SELECT c.seq, c.event_id, c.ts_ms, c.session_key, s.session_id, s.root_session_id, s.parent_key,
  CASE WHEN s.is_worker = 1 THEN s.parent_key END AS parent_session_id, s.is_worker, c.turn_id, s.workspace_hash,
  c.model, c.provider, c.pricing_version, c.purpose, c.input_tokens, c.cached_input_tokens,
  c.cache_creation_input_tokens, c.cache_creation_1h_input_tokens, c.output_tokens, c.reasoning_tokens,
  c.usage_estimated, c.priced, c.cancelled, s.delegation_tier, s.worker_name, s.delegated_by_model, c.latency_ms,
  c.cost_pusd, s.door, s.caller, c.effort, coalesce(c.fees_pusd, 0) AS fees_pusd,
  coalesce(c.surcharge_pusd, 0) AS surcharge_pusd, coalesce(c.fees_unpriced, 0) AS fees_unpriced,
  coalesce(c.surcharge_unknown, 0) AS surcharge_unknown, coalesce(c.rounds_unknown, 0) AS rounds_unknown, c.bill_json,
  s.owner, s.share
FROM ledger_calls c LEFT JOIN ledger_sessions s ON s.session_key = c.session_key;--> statement-breakpoint
CREATE VIEW `session_hours` AS
SELECT r.hour, s.session_id, s.root_session_id, s.parent_key, s.is_worker, s.delegation_tier, s.worker_name,
  s.workspace_hash, r.model, r.provider, r.calls, r.unpriced_calls, r.latency_sum, r.latency_n, r.input_tokens,
  r.cached_input_tokens, r.cache_creation_input_tokens, r.cache_creation_1h_input_tokens, r.output_tokens,
  r.reasoning_tokens, r.cost_pusd, s.door, s.caller, s.owner, s.share
FROM rollup_session_hour r LEFT JOIN ledger_sessions s ON s.session_key = r.session_key;--> statement-breakpoint
CREATE VIEW `bill_hours` AS
SELECT r.hour, s.session_id, s.root_session_id, s.parent_key, s.is_worker, s.delegation_tier, s.worker_name,
  s.workspace_hash, r.model, r.provider, r.fees_pusd, r.surcharge_pusd, r.fees_unpriced_calls,
  r.surcharge_unknown_calls, r.rounds_unknown_calls, s.door, s.caller, s.owner, s.share
FROM rollup_bill_hour r LEFT JOIN ledger_sessions s ON s.session_key = r.session_key;--> statement-breakpoint
PRAGMA user_version = 28;
