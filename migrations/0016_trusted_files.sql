CREATE TABLE `trusted_files` (
	`workspace_path` text NOT NULL,
	`path` text NOT NULL,
	`sha256` text NOT NULL,
	`trusted_by` text NOT NULL,
	`trusted_at` integer NOT NULL,
	PRIMARY KEY(`workspace_path`, `path`)
) STRICT;--> statement-breakpoint
PRAGMA user_version = 17;
