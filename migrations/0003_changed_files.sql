ALTER TABLE `delegations` ADD `changes_json` text;--> statement-breakpoint
ALTER TABLE `tool_calls` ADD `changed_json` text;--> statement-breakpoint
PRAGMA user_version = 4;
