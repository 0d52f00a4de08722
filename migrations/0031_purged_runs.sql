CREATE TABLE `purged_runs` (
	`experiment_id` text NOT NULL,
	`session_id` text NOT NULL,
	PRIMARY KEY(`experiment_id`, `session_id`)
) STRICT, WITHOUT ROWID;
--> statement-breakpoint
PRAGMA user_version = 32;
