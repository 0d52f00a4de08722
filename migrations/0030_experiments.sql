ALTER TABLE `sessions` ADD `experiment_id` text;--> statement-breakpoint
ALTER TABLE `sessions` ADD `experiment_json` text;--> statement-breakpoint
CREATE INDEX `sessions_experiment` ON `sessions` (`experiment_id`) WHERE experiment_id IS NOT NULL;--> statement-breakpoint
PRAGMA user_version = 31;
