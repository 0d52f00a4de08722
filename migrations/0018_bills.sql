CREATE TABLE `llm_call_rounds` (
	`event_id` text NOT NULL,
	`seq` integer NOT NULL,
	`kind` text NOT NULL,
	`model` text NOT NULL,
	`input_tokens` integer NOT NULL,
	`cached_input_tokens` integer NOT NULL,
	`cache_creation_input_tokens` integer NOT NULL,
	`cache_creation_1h_input_tokens` integer NOT NULL,
	`output_tokens` integer NOT NULL,
	`reasoning_tokens` integer NOT NULL,
	`cost_pusd` integer NOT NULL,
	`priced` integer NOT NULL,
	`billed` integer NOT NULL,
	PRIMARY KEY(`event_id`, `seq`)
) STRICT, WITHOUT ROWID;
--> statement-breakpoint
CREATE TABLE `rollup_bill_hour` (
	`hour` integer NOT NULL,
	`session_key` integer NOT NULL,
	`model` text NOT NULL,
	`provider` text NOT NULL,
	`fees_pusd` integer NOT NULL,
	`surcharge_pusd` integer NOT NULL,
	`fees_unpriced_calls` integer NOT NULL,
	`surcharge_unknown_calls` integer NOT NULL,
	`rounds_unknown_calls` integer NOT NULL,
	PRIMARY KEY(`hour`, `session_key`, `model`)
) STRICT, WITHOUT ROWID;
--> statement-breakpoint
CREATE INDEX `rollup_bill_hour_session` ON `rollup_bill_hour` (`session_key`,`hour`);--> statement-breakpoint
ALTER TABLE `ledger_calls` ADD `fees_pusd` integer;--> statement-breakpoint
ALTER TABLE `ledger_calls` ADD `surcharge_pusd` integer;--> statement-breakpoint
ALTER TABLE `ledger_calls` ADD `fees_unpriced` integer;--> statement-breakpoint
ALTER TABLE `ledger_calls` ADD `surcharge_unknown` integer;--> statement-breakpoint
ALTER TABLE `ledger_calls` ADD `rounds_unknown` integer;--> statement-breakpoint
ALTER TABLE `ledger_calls` ADD `bill_json` text;--> statement-breakpoint
CREATE INDEX `ledger_calls_billed` ON `ledger_calls` (`ts_ms`) WHERE bill_json IS NOT NULL;--> statement-breakpoint
DROP VIEW `llm_calls`;--> statement-breakpoint
-- LEFT JOIN, so that SQLite looks sessions up by their calls unless a condition names the session.
CREATE VIEW `llm_calls` AS
SELECT c.seq, c.event_id, c.ts_ms, c.session_key, s.session_id, s.root_session_id, s.parent_key,
  CASE WHEN s.is_worker = 1 THEN s.parent_key END AS parent_session_id, s.is_worker, c.turn_id, s.workspace_hash,
  c.model, c.provider, c.pricing_version, c.purpose, c.input_tokens, c.cached_input_tokens,
  c.cache_creation_input_tokens, c.cache_creation_1h_input_tokens, c.output_tokens, c.reasoning_tokens,
  c.usage_estimated, c.priced, c.cancelled, s.delegation_tier, s.worker_name, s.delegated_by_model, c.latency_ms,
  c.cost_pusd, s.door, s.caller, c.effort, coalesce(c.fees_pusd, 0) AS fees_pusd,
  coalesce(c.surcharge_pusd, 0) AS surcharge_pusd, coalesce(c.fees_unpriced, 0) AS fees_unpriced,
  coalesce(c.surcharge_unknown, 0) AS surcharge_unknown, coalesce(c.rounds_unknown, 0) AS rounds_unknown, c.bill_json
FROM ledger_calls c LEFT JOIN ledger_sessions s ON s.session_key = c.session_key;--> statement-breakpoint
CREATE VIEW `bill_hours` AS
SELECT r.hour, s.session_id, s.root_session_id, s.parent_key, s.is_worker, s.delegation_tier, s.worker_name,
  s.workspace_hash, r.model, r.provider, r.fees_pusd, r.surcharge_pusd, r.fees_unpriced_calls,
  r.surcharge_unknown_calls, r.rounds_unknown_calls, s.door, s.caller
FROM rollup_bill_hour r LEFT JOIN ledger_sessions s ON s.session_key = r.session_key;--> statement-breakpoint
PRAGMA user_version = 19;
