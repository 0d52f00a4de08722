CREATE TABLE `worktrees` (
	`session_id` text PRIMARY KEY NOT NULL,
	`caller_path` text NOT NULL,
	`repository` text NOT NULL,
	`folder` text NOT NULL,
	`tree_path` text NOT NULL,
	`base_tree` text NOT NULL,
	`result_tree` text,
	`merged_from` text,
	`merged_tree` text,
	`applied` integer,
	`created_at` integer NOT NULL,
	CONSTRAINT "worktrees_applied" CHECK(applied IN (0, 1))
) STRICT;
--> statement-breakpoint
ALTER TABLE `sessions` ADD `tree_path` text;--> statement-breakpoint
PRAGMA user_version = 21;
