CREATE INDEX `turns_failed` ON `turns` (`session_id`) WHERE status = 'failed';--> statement-breakpoint
PRAGMA user_version = 23;
