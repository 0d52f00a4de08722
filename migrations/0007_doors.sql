ALTER TABLE `sessions` ADD `door` text DEFAULT 'api' NOT NULL CONSTRAINT "sessions_door" CHECK(door IN ('api', 'gateway', 'mcp', 'acp'));--> statement-breakpoint
ALTER TABLE `sessions` ADD `caller` text DEFAULT '' NOT NULL;--> statement-breakpoint
ALTER TABLE `sessions` ADD `client` text;--> statement-breakpoint
ALTER TABLE `sessions` ADD `client_ref` text;--> statement-breakpoint
ALTER TABLE `sessions` DROP CONSTRAINT "sessions_worker";--> statement-breakpoint
ALTER TABLE `sessions` ADD CONSTRAINT "sessions_worker" CHECK(is_worker = (parent_session_id IS NOT NULL) AND (is_worker AND door <> 'gateway') = (parent_tool_use_id IS NOT NULL));--> statement-breakpoint
CREATE UNIQUE INDEX `sessions_client` ON `sessions` (`caller`,`client_ref`) WHERE client_ref IS NOT NULL AND is_worker = 0;--> statement-breakpoint
CREATE UNIQUE INDEX `sessions_client_worker` ON `sessions` (`root_session_id`,`client_ref`) WHERE client_ref IS NOT NULL AND is_worker = 1;--> statement-breakpoint
ALTER TABLE `llm_calls` ADD `door` text DEFAULT 'api' NOT NULL;--> statement-breakpoint
ALTER TABLE `llm_calls` ADD `caller` text DEFAULT '' NOT NULL;--> statement-breakpoint
ALTER TABLE `llm_calls` DROP CONSTRAINT "llm_calls_purpose";--> statement-breakpoint
ALTER TABLE `llm_calls` ADD CONSTRAINT "llm_calls_purpose" CHECK(purpose IN ('turn', 'compaction', 'gateway'));--> statement-breakpoint
ALTER TABLE `rollup_session_hour` ADD `door` text DEFAULT 'api' NOT NULL;--> statement-breakpoint
ALTER TABLE `rollup_session_hour` ADD `caller` text DEFAULT '' NOT NULL;--> statement-breakpoint
PRAGMA user_version = 8;
