CREATE INDEX `pattern_fingerprints_newest` ON `pattern_fingerprints` (`workspace_path`,`id`);--> statement-breakpoint
PRAGMA user_version = 13;
