CREATE TABLE `delegation_attempts` (
	`tool_use_id` text NOT NULL,
	`attempt` integer NOT NULL,
	`worker_session_id` text NOT NULL,
	`turn_id` text NOT NULL,
	`rung` text,
	`check_name` text NOT NULL,
	`result_tree` text,
	`process_group` integer,
	`passed` integer,
	`exit_code` integer,
	`output` text,
	`protected_json` text NOT NULL,
	`wall_time_seconds` real NOT NULL,
	`started_at` integer NOT NULL,
	`ended_at` integer,
	PRIMARY KEY(`tool_use_id`, `attempt`),
	CONSTRAINT "delegation_attempts_passed" CHECK(passed IN (0, 1))
) STRICT;
--> statement-breakpoint
CREATE INDEX `delegation_attempts_worker` ON `delegation_attempts` (`worker_session_id`);--> statement-breakpoint
CREATE INDEX `delegation_attempts_open` ON `delegation_attempts` (`tool_use_id`) WHERE ended_at IS NULL;--> statement-breakpoint
CREATE TABLE `__new_delegations` (
	`tool_use_id` text PRIMARY KEY NOT NULL,
	`parent_session_id` text NOT NULL,
	`parent_turn_id` text,
	`worker_session_id` text,
	`entry` text NOT NULL,
	`worker_name` text,
	`worker_digest` text,
	`tier` text,
	`resolved_model` text,
	`context_mode` text NOT NULL,
	`context_reference_count` integer NOT NULL,
	`task_size_tokens` integer NOT NULL,
	`effective_tools_json` text NOT NULL,
	`allowed_tool_count` integer NOT NULL,
	`dropped_tools_json` text NOT NULL,
	`max_tokens` integer,
	`max_cost_pusd` integer,
	`timeout_seconds` real NOT NULL,
	`active_seconds` real NOT NULL,
	`status` text NOT NULL,
	`failure_mode` text,
	`error_message` text,
	`created_at` integer NOT NULL,
	`ended_at` integer,
	`output_json` text,
	`request_json` text NOT NULL,
	`changes_json` text,
	FOREIGN KEY (`parent_session_id`) REFERENCES `sessions`(`id`) ON UPDATE no action ON DELETE no action,
	FOREIGN KEY (`worker_session_id`) REFERENCES `sessions`(`id`) ON UPDATE no action ON DELETE no action,
	CONSTRAINT "delegations_entry" CHECK(entry IN ('delegate', 'worker_tool', 'worker_call')),
	CONSTRAINT "delegations_tier" CHECK(tier IN ('fast', 'balanced', 'deep')),
	CONSTRAINT "delegations_context_mode" CHECK(context_mode IN ('minimal', 'explicit')),
	CONSTRAINT "delegations_status" CHECK(status IN ('running', 'interrupted', 'completed', 'failed')),
	CONSTRAINT "delegations_failure_mode" CHECK(failure_mode IN ('worker_error', 'max_tokens_exceeded', 'insufficient_context', 'output_schema_validation_failed', 'no_model_available_for_tier', 'cancelled_by_user', 'timeout', 'budget_exceeded', 'check_failed'))
) STRICT;
--> statement-breakpoint
INSERT INTO `__new_delegations`("tool_use_id", "parent_session_id", "parent_turn_id", "worker_session_id", "entry", "worker_name", "worker_digest", "tier", "resolved_model", "context_mode", "context_reference_count", "task_size_tokens", "effective_tools_json", "allowed_tool_count", "dropped_tools_json", "max_tokens", "max_cost_pusd", "timeout_seconds", "active_seconds", "status", "failure_mode", "error_message", "created_at", "ended_at", "output_json", "request_json", "changes_json") SELECT "tool_use_id", "parent_session_id", "parent_turn_id", "worker_session_id", "entry", "worker_name", "worker_digest", "tier", "resolved_model", "context_mode", "context_reference_count", "task_size_tokens", "effective_tools_json", "allowed_tool_count", "dropped_tools_json", "max_tokens", "max_cost_pusd", "timeout_seconds", "active_seconds", "status", "failure_mode", "error_message", "created_at", "ended_at", "output_json", "request_json", "changes_json" FROM `delegations`;--> statement-breakpoint
DROP TABLE `delegations`;--> statement-breakpoint
ALTER TABLE `__new_delegations` RENAME TO `delegations`;--> statement-breakpoint
CREATE UNIQUE INDEX `delegations_worker` ON `delegations` (`worker_session_id`);--> statement-breakpoint
CREATE INDEX `delegations_parent` ON `delegations` (`parent_session_id`,`tool_use_id`);--> statement-breakpoint
CREATE INDEX `delegations_open` ON `delegations` (`parent_turn_id`) WHERE status IN ('running','interrupted');--> statement-breakpoint
PRAGMA user_version = 26;
