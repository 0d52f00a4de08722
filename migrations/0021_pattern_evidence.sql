CREATE TABLE `pattern_outcomes_new` (
	`fingerprint_id` text NOT NULL,
	`primary_model` text NOT NULL,
	`is_worker` integer NOT NULL,
	`sample_size` integer NOT NULL,
	`success_score_mean` real NOT NULL,
	`success_score_count` integer NOT NULL,
	`sum_cost_pusd` integer NOT NULL,
	`sum_latency_ms` real NOT NULL,
	`pricing_version_last` text NOT NULL,
	`last_updated_at` integer NOT NULL,
	`cost_count` integer NOT NULL,
	`verified_mean` real NOT NULL,
	`verified_count` integer NOT NULL,
	PRIMARY KEY(`fingerprint_id`, `primary_model`, `is_worker`),
	FOREIGN KEY (`fingerprint_id`) REFERENCES `pattern_fingerprints`(`id`) ON UPDATE no action ON DELETE cascade
) STRICT;
--> statement-breakpoint
CREATE TABLE `pattern_turns_new` (
	`turn_id` text PRIMARY KEY NOT NULL,
	`fingerprint_id` text NOT NULL,
	`primary_model` text NOT NULL,
	`is_worker` integer NOT NULL,
	`score` real,
	`is_verified` integer NOT NULL,
	`has_cost` integer NOT NULL,
	`recorded_at` integer NOT NULL,
	FOREIGN KEY (`fingerprint_id`,`primary_model`,`is_worker`) REFERENCES `pattern_outcomes_new`(`fingerprint_id`,`primary_model`,`is_worker`) ON UPDATE no action ON DELETE cascade
) STRICT;
--> statement-breakpoint
-- Until now an outcome had the turns of workers and top-level turns in one sum: it is summed again over its turns.
INSERT INTO pattern_outcomes_new
SELECT p.fingerprint_id, p.primary_model, s.is_worker, count(*), coalesce(avg(p.score), 0.0), count(p.score),
  coalesce(sum(CASE WHEN t.stop_reason = 'budget_exceeded' THEN 0 ELSE
    coalesce((SELECT sum(c.cost_pusd) FROM ledger_calls c WHERE c.turn_id = t.id), 0) END), 0),
  sum(coalesce(t.wall_time_seconds, 0.0)) * 1000.0, o.pricing_version_last, o.last_updated_at,
  sum(CASE WHEN t.stop_reason = 'budget_exceeded' THEN 0 ELSE 1 END),
  coalesce(avg(CASE WHEN t.user_score_json IS NOT NULL THEN p.score END), 0.0),
  count(CASE WHEN t.user_score_json IS NOT NULL THEN p.score END)
FROM pattern_turns p JOIN turns t ON t.id = p.turn_id JOIN sessions s ON s.id = t.session_id
  JOIN pattern_outcomes o ON o.fingerprint_id = p.fingerprint_id AND o.primary_model = p.primary_model
GROUP BY p.fingerprint_id, p.primary_model, s.is_worker;
--> statement-breakpoint
INSERT INTO pattern_turns_new
SELECT p.turn_id, p.fingerprint_id, p.primary_model, s.is_worker, p.score,
  p.score IS NOT NULL AND t.user_score_json IS NOT NULL, coalesce(t.stop_reason, '') <> 'budget_exceeded', p.recorded_at
FROM pattern_turns p JOIN turns t ON t.id = p.turn_id JOIN sessions s ON s.id = t.session_id;
--> statement-breakpoint
DROP TABLE `pattern_turns`;--> statement-breakpoint
DROP TABLE `pattern_outcomes`;--> statement-breakpoint
ALTER TABLE `pattern_outcomes_new` RENAME TO `pattern_outcomes`;--> statement-breakpoint
ALTER TABLE `pattern_turns_new` RENAME TO `pattern_turns`;--> statement-breakpoint
CREATE INDEX `pattern_turns_outcome` ON `pattern_turns` (`fingerprint_id`,`primary_model`,`is_worker`,`recorded_at`);--> statement-breakpoint
DELETE FROM pattern_fingerprints
WHERE NOT EXISTS (SELECT 1 FROM pattern_outcomes o WHERE o.fingerprint_id = pattern_fingerprints.id);--> statement-breakpoint
PRAGMA user_version = 22;
