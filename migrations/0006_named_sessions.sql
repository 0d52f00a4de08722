CREATE INDEX `sessions_named` ON `sessions` (`worker_name`,id DESC) WHERE worker_name IS NOT NULL;--> statement-breakpoint
PRAGMA user_version = 7;
