DROP INDEX `sessions_active`;--> statement-breakpoint
CREATE INDEX `sessions_active` ON `sessions` (`is_worker`,`door`) WHERE ended_at IS NULL;--> statement-breakpoint
PRAGMA user_version = 12;
