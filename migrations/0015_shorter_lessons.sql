ALTER TABLE `pattern_turns` DROP COLUMN `session_id`;--> statement-breakpoint
ALTER TABLE `pattern_turns` DROP COLUMN `workspace_path`;--> statement-breakpoint
PRAGMA user_version = 16;
