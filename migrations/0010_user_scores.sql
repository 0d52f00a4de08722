DROP INDEX `pattern_turns_outcome`;--> statement-breakpoint
CREATE INDEX `pattern_turns_outcome` ON `pattern_turns` (`fingerprint_id`,`primary_model`,`recorded_at`);--> statement-breakpoint
ALTER TABLE `turns` ADD `user_score_json` text;--> statement-breakpoint
PRAGMA user_version = 11;
