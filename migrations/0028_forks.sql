CREATE TABLE `fork_messages` (
	`fork_session_id` text NOT NULL,
	`position` integer NOT NULL,
	`id` text NOT NULL,
	`session_id` text NOT NULL,
	`turn_id` text,
	`role` text NOT NULL,
	`status` text NOT NULL,
	`created_at` integer NOT NULL,
	`metadata_json` text NOT NULL,
	`content_json` text NOT NULL,
	`provider_raw_json` text,
	PRIMARY KEY(`fork_session_id`, `position`),
	FOREIGN KEY (`fork_session_id`) REFERENCES `sessions`(`id`) ON UPDATE no action ON DELETE no action
) STRICT;
--> statement-breakpoint
CREATE TABLE `case_calls` (
	`request_id` text PRIMARY KEY NOT NULL,
	`session_id` text NOT NULL,
	`root_session_id` text NOT NULL,
	`call_json` text NOT NULL,
	FOREIGN KEY (`session_id`) REFERENCES `sessions`(`id`) ON UPDATE no action ON DELETE no action
) STRICT;
--> statement-breakpoint
CREATE INDEX `case_calls_root` ON `case_calls` (`root_session_id`,`request_id`);--> statement-breakpoint
CREATE INDEX `case_calls_session` ON `case_calls` (`session_id`);--> statement-breakpoint
CREATE TABLE `case_starts` (
	`session_id` text PRIMARY KEY NOT NULL,
	`start_json` text NOT NULL,
	FOREIGN KEY (`session_id`) REFERENCES `sessions`(`id`) ON UPDATE no action ON DELETE no action
) STRICT;
--> statement-breakpoint
CREATE TABLE `fork_checkpoints` (
	`fork_session_id` text NOT NULL,
	`position` integer NOT NULL,
	`id` text NOT NULL,
	`session_id` text NOT NULL,
	`kind` text NOT NULL,
	`message_ids_json` text,
	`through_message_id` text,
	`summary_text` text,
	`tokens_before` integer NOT NULL,
	`tokens_after` integer NOT NULL,
	`model` text,
	`created_at` integer NOT NULL,
	PRIMARY KEY(`fork_session_id`, `position`),
	FOREIGN KEY (`fork_session_id`) REFERENCES `sessions`(`id`) ON UPDATE no action ON DELETE no action
) STRICT;
--> statement-breakpoint
ALTER TABLE `sessions` ADD `forked_from_session_id` text;--> statement-breakpoint
ALTER TABLE `sessions` ADD `forked_from_message_id` text;--> statement-breakpoint
ALTER TABLE `sessions` ADD `has_workspace` integer DEFAULT 1 NOT NULL;--> statement-breakpoint
ALTER TABLE `sessions` ADD `record_case` integer DEFAULT 0 NOT NULL;--> statement-breakpoint
CREATE INDEX `sessions_forked` ON `sessions` (`forked_from_session_id`) WHERE forked_from_session_id IS NOT NULL;--> statement-breakpoint
PRAGMA user_version = 29;
