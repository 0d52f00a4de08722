ALTER TABLE `sessions` ADD `continues_session_id` text;--> statement-breakpoint
PRAGMA user_version = 24;
