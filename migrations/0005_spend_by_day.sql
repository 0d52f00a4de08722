CREATE TABLE `rollup_day` (
	`day` integer NOT NULL,
	`is_worker` integer NOT NULL,
	`delegation_tier` text NOT NULL,
	`worker_name` text NOT NULL,
	`workspace_hash` text NOT NULL,
	`model` text NOT NULL,
	`delegated_by_model` text NOT NULL,
	`prompt_class` integer NOT NULL,
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
	`billed_1h_tokens` integer NOT NULL,
	PRIMARY KEY(`day`, `is_worker`, `delegation_tier`, `worker_name`, `workspace_hash`, `model`, `delegated_by_model`, `prompt_class`)
) STRICT, WITHOUT ROWID;
--> statement-breakpoint
CREATE TABLE `rollup_parent` (
	`parent_key` text PRIMARY KEY NOT NULL,
	`calls` integer NOT NULL,
	`input_tokens` integer NOT NULL,
	`cached_input_tokens` integer NOT NULL,
	`cache_creation_input_tokens` integer NOT NULL,
	`output_tokens` integer NOT NULL,
	`cost_pusd` integer NOT NULL
) STRICT, WITHOUT ROWID;
--> statement-breakpoint
CREATE INDEX `rollup_parent_cost` ON `rollup_parent` (cost_pusd DESC,`parent_key`);--> statement-breakpoint
CREATE INDEX `rollup_parent_day_parent` ON `rollup_parent_day` (`parent_key`,`day`);--> statement-breakpoint
INSERT INTO `rollup_day`
SELECT ts_ms / 86400000, is_worker, delegation_tier, worker_name, workspace_hash, model, delegated_by_model,
  (input_tokens + cached_input_tokens + cache_creation_input_tokens > 128000)
    + (input_tokens + cached_input_tokens + cache_creation_input_tokens > 200000)
    + (input_tokens + cached_input_tokens + cache_creation_input_tokens > 256000)
    + (input_tokens + cached_input_tokens + cache_creation_input_tokens > 272000)
    + (input_tokens + cached_input_tokens + cache_creation_input_tokens > 512000),
  MIN(provider), COUNT(*), SUM(1 - priced), SUM(iif(cancelled, 0, coalesce(latency_ms, 0))),
  SUM(iif(cancelled OR latency_ms IS NULL, 0, 1)), SUM(input_tokens), SUM(cached_input_tokens),
  SUM(cache_creation_input_tokens), SUM(cache_creation_1h_input_tokens), SUM(output_tokens), SUM(reasoning_tokens),
  SUM(cost_pusd), SUM(min(cache_creation_1h_input_tokens, cache_creation_input_tokens))
FROM llm_calls GROUP BY 1, 2, 3, 4, 5, 6, 7, 8;--> statement-breakpoint
INSERT INTO `rollup_parent`
SELECT parent_key, COUNT(*), SUM(input_tokens), SUM(cached_input_tokens), SUM(cache_creation_input_tokens),
  SUM(output_tokens), SUM(cost_pusd)
FROM llm_calls GROUP BY parent_key;--> statement-breakpoint
PRAGMA user_version = 6;
