CREATE TABLE `confirmations` (
	`id` text PRIMARY KEY NOT NULL,
	`session_id` text NOT NULL,
	`root_session_id` text NOT NULL,
	`turn_id` text NOT NULL,
	`tool_use_id` text NOT NULL,
	`tool_name` text NOT NULL,
	`rule` text,
	`key_hash` text,
	`request_json` text NOT NULL,
	`input_json` text NOT NULL,
	`requested_at` integer NOT NULL,
	`expires_at` integer NOT NULL,
	`decision` text,
	`scope` text,
	`reason` text,
	`modified_json` text,
	`resolved_by` text,
	`resolved_at` integer,
	FOREIGN KEY (`session_id`) REFERENCES `sessions`(`id`) ON UPDATE no action ON DELETE no action,
	CONSTRAINT "confirmations_decision" CHECK(decision IN ('approve', 'reject', 'modify', 'timeout', 'cancelled')),
	CONSTRAINT "confirmations_scope" CHECK(scope IN ('once', 'identical', 'always')),
	CONSTRAINT "confirmations_resolved_by" CHECK(resolved_by IN ('user', 'policy'))
) STRICT;
--> statement-breakpoint
CREATE INDEX `confirmations_open` ON `confirmations` (`root_session_id`,`id`) WHERE decision IS NULL;--> statement-breakpoint
CREATE INDEX `confirmations_granted` ON `confirmations` (`root_session_id`,`key_hash`) WHERE scope = 'identical';--> statement-breakpoint
CREATE INDEX `confirmations_session` ON `confirmations` (`session_id`,`id`);--> statement-breakpoint
CREATE TABLE `delegations` (
	`tool_use_id` text PRIMARY KEY NOT NULL,
	`parent_session_id` text NOT NULL,
	`parent_turn_id` text NOT NULL,
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
	FOREIGN KEY (`parent_session_id`) REFERENCES `sessions`(`id`) ON UPDATE no action ON DELETE no action,
	FOREIGN KEY (`worker_session_id`) REFERENCES `sessions`(`id`) ON UPDATE no action ON DELETE no action,
	CONSTRAINT "delegations_entry" CHECK(entry IN ('delegate', 'worker_tool', 'worker_call')),
	CONSTRAINT "delegations_tier" CHECK(tier IN ('fast', 'balanced', 'deep')),
	CONSTRAINT "delegations_context_mode" CHECK(context_mode IN ('minimal', 'explicit')),
	CONSTRAINT "delegations_status" CHECK(status IN ('running', 'interrupted', 'completed', 'failed')),
	CONSTRAINT "delegations_failure_mode" CHECK(failure_mode IN ('worker_error', 'max_tokens_exceeded', 'insufficient_context', 'output_schema_validation_failed', 'no_model_available_for_tier', 'cancelled_by_user', 'timeout', 'budget_exceeded'))
) STRICT;
--> statement-breakpoint
CREATE UNIQUE INDEX `delegations_worker` ON `delegations` (`worker_session_id`);--> statement-breakpoint
CREATE INDEX `delegations_parent` ON `delegations` (`parent_session_id`,`tool_use_id`);--> statement-breakpoint
CREATE TABLE `messages` (
	`id` text PRIMARY KEY NOT NULL,
	`session_id` text NOT NULL,
	`turn_id` text,
	`role` text NOT NULL,
	`status` text NOT NULL,
	`created_at` integer NOT NULL,
	`metadata_json` text NOT NULL,
	`content_json` text NOT NULL,
	`provider_raw_json` text,
	FOREIGN KEY (`session_id`) REFERENCES `sessions`(`id`) ON UPDATE no action ON DELETE no action,
	FOREIGN KEY (`turn_id`) REFERENCES `turns`(`id`) ON UPDATE no action ON DELETE no action,
	CONSTRAINT "messages_role" CHECK(role IN ('user', 'assistant', 'system', 'tool')),
	CONSTRAINT "messages_status" CHECK(status IN ('complete', 'cancelled', 'error'))
) STRICT;
--> statement-breakpoint
CREATE INDEX `messages_session` ON `messages` (`session_id`,`id`);--> statement-breakpoint
CREATE INDEX `messages_turn` ON `messages` (`turn_id`,`id`);--> statement-breakpoint
CREATE TABLE `sessions` (
	`id` text PRIMARY KEY NOT NULL,
	`workspace_path` text NOT NULL,
	`workspace_hash` text NOT NULL,
	`active_model` text,
	`pending_active_model` text,
	`routing_policy_version` text,
	`turn_count` integer DEFAULT 0 NOT NULL,
	`disposition` text,
	`ended_at` integer,
	`parent_session_id` text,
	`parent_tool_use_id` text,
	`is_worker` integer DEFAULT 0 NOT NULL,
	`root_session_id` text NOT NULL,
	`delegation_depth` integer DEFAULT 0 NOT NULL,
	`delegated_by_model` text,
	`worker_name` text,
	`worker_digest` text,
	`worker_origin` text,
	`allow_workers_json` text,
	`approval_mode` text NOT NULL,
	`max_cost_pusd` integer,
	`on_reached` text NOT NULL,
	`budget_warned_pusd` integer,
	`created_at` integer NOT NULL,
	`updated_at` integer NOT NULL,
	`worker_definition_json` text,
	`system_prompt` text,
	`system_prompt_volatile` text,
	FOREIGN KEY (`parent_session_id`) REFERENCES `sessions`(`id`) ON UPDATE no action ON DELETE no action,
	CONSTRAINT "sessions_worker" CHECK(is_worker = (parent_session_id IS NOT NULL) AND is_worker = (parent_tool_use_id IS NOT NULL)),
	CONSTRAINT "sessions_end" CHECK((ended_at IS NULL) = (disposition IS NULL)),
	CONSTRAINT "sessions_disposition" CHECK(disposition IN ('completed', 'failed', 'cancelled')),
	CONSTRAINT "sessions_worker_origin" CHECK(worker_origin IN ('project', 'session')),
	CONSTRAINT "sessions_approval_mode" CHECK(approval_mode IN ('interactive', 'approve_all', 'strict')),
	CONSTRAINT "sessions_on_reached" CHECK(on_reached IN ('pause', 'stop'))
) STRICT;
--> statement-breakpoint
CREATE INDEX `sessions_parent` ON `sessions` (`parent_session_id`) WHERE parent_session_id IS NOT NULL;--> statement-breakpoint
CREATE UNIQUE INDEX `sessions_parent_tool_use` ON `sessions` (`parent_tool_use_id`) WHERE parent_tool_use_id IS NOT NULL;--> statement-breakpoint
CREATE INDEX `sessions_root` ON `sessions` (`root_session_id`);--> statement-breakpoint
CREATE INDEX `sessions_newest` ON `sessions` (`is_worker`,id DESC);--> statement-breakpoint
CREATE INDEX `sessions_active` ON `sessions` (`is_worker`) WHERE ended_at IS NULL;--> statement-breakpoint
CREATE TABLE `tool_calls` (
	`id` text PRIMARY KEY NOT NULL,
	`session_id` text NOT NULL,
	`turn_id` text NOT NULL,
	`message_id` text NOT NULL,
	`result_message_id` text,
	`name` text NOT NULL,
	`status` text NOT NULL,
	`provider` text NOT NULL,
	`provider_id` text,
	`created_at` integer NOT NULL,
	`completed_at` integer,
	`result_json` text,
	FOREIGN KEY (`session_id`) REFERENCES `sessions`(`id`) ON UPDATE no action ON DELETE no action,
	FOREIGN KEY (`turn_id`) REFERENCES `turns`(`id`) ON UPDATE no action ON DELETE no action,
	FOREIGN KEY (`message_id`) REFERENCES `messages`(`id`) ON UPDATE no action ON DELETE no action,
	FOREIGN KEY (`result_message_id`) REFERENCES `messages`(`id`) ON UPDATE no action ON DELETE no action,
	CONSTRAINT "tool_calls_status" CHECK(status IN ('pending', 'succeeded', 'failed', 'cancelled'))
) STRICT;
--> statement-breakpoint
CREATE UNIQUE INDEX `tool_calls_result` ON `tool_calls` (`result_message_id`);--> statement-breakpoint
CREATE INDEX `tool_calls_session` ON `tool_calls` (`session_id`,`status`);--> statement-breakpoint
CREATE INDEX `tool_calls_turn` ON `tool_calls` (`turn_id`);--> statement-breakpoint
CREATE INDEX `tool_calls_message` ON `tool_calls` (`message_id`);--> statement-breakpoint
CREATE TABLE `turns` (
	`id` text PRIMARY KEY NOT NULL,
	`session_id` text NOT NULL,
	`user_message_id` text NOT NULL,
	`status` text NOT NULL,
	`per_message_override` text,
	`chosen_model` text,
	`provider` text,
	`routing_mode` text,
	`stop_reason` text,
	`cancel_reason` text,
	`interrupted_reason` text,
	`error_code` text,
	`error_class` text,
	`error_message` text,
	`retryable` integer,
	`llm_call_count` integer DEFAULT 0 NOT NULL,
	`tool_call_count` integer DEFAULT 0 NOT NULL,
	`started_at` integer NOT NULL,
	`ended_at` integer,
	`wall_time_seconds` real,
	`final_message_id` text,
	`tools_json` text NOT NULL,
	`fingerprint_json` text,
	`resume_attempts` integer DEFAULT 0 NOT NULL,
	FOREIGN KEY (`session_id`) REFERENCES `sessions`(`id`) ON UPDATE no action ON DELETE no action,
	CONSTRAINT "turns_status" CHECK(status IN ('in_flight', 'cancelling', 'interrupted', 'completed', 'cancelled', 'failed')),
	CONSTRAINT "turns_routing_mode" CHECK(routing_mode IN ('override', 'manual', 'rule', 'pattern', 'delegate', 'default')),
	CONSTRAINT "turns_stop_reason" CHECK(stop_reason IN ('end_turn', 'max_tokens', 'stop_sequence', 'tool_use', 'budget_exceeded')),
	CONSTRAINT "turns_cancel_reason" CHECK(cancel_reason IN ('user_cancel', 'timeout', 'shutdown')),
	CONSTRAINT "turns_interrupted_reason" CHECK(interrupted_reason IN ('restart', 'budget')),
	CONSTRAINT "turns_error_code" CHECK(error_code IN ('provider_error', 'model_not_configured', 'internal_error')),
	CONSTRAINT "turns_error_class" CHECK(error_class IN ('rate_limit', 'auth', 'server_error', 'network', 'context_overflow', 'invalid_request', 'cancelled', 'other')),
	CONSTRAINT "turns_retryable" CHECK(retryable IN (0, 1))
) STRICT;
--> statement-breakpoint
CREATE INDEX `turns_session` ON `turns` (`session_id`,`id`);--> statement-breakpoint
CREATE UNIQUE INDEX `turns_open` ON `turns` (`session_id`) WHERE status IN ('in_flight','cancelling','interrupted');--> statement-breakpoint
CREATE TABLE `events` (
	`id` text PRIMARY KEY NOT NULL,
	`timestamp_ms` integer NOT NULL,
	`session_id` text NOT NULL,
	`turn_id` text,
	`parent_event_id` text,
	`type` text NOT NULL,
	`actor` text NOT NULL,
	`sensitivity` text NOT NULL,
	`payload_json` text NOT NULL,
	CONSTRAINT "events_actor" CHECK(actor IN ('user', 'agent', 'system', 'tool', 'worker')),
	CONSTRAINT "events_sensitivity" CHECK(sensitivity IN ('private', 'pseudonymous'))
) STRICT;
--> statement-breakpoint
CREATE INDEX `events_session` ON `events` (`session_id`,`id`);--> statement-breakpoint
CREATE INDEX `events_type` ON `events` (`type`,`timestamp_ms`);--> statement-breakpoint
CREATE INDEX `events_turn` ON `events` (`turn_id`,`id`);--> statement-breakpoint
CREATE INDEX `events_time` ON `events` (`timestamp_ms`);--> statement-breakpoint
CREATE TABLE `idempotency_keys` (
	`method` text NOT NULL,
	`path` text NOT NULL,
	`token_hash` text NOT NULL,
	`key` text NOT NULL,
	`session_id` text,
	`body_hash` text NOT NULL,
	`status` integer NOT NULL,
	`response_json` text NOT NULL,
	`expires_at` integer NOT NULL,
	PRIMARY KEY(`method`, `path`, `token_hash`, `key`)
) STRICT;
--> statement-breakpoint
CREATE INDEX `idempotency_keys_expiry` ON `idempotency_keys` (`expires_at`);--> statement-breakpoint
CREATE TABLE `llm_calls` (
	`event_id` text PRIMARY KEY NOT NULL,
	`ts_ms` integer NOT NULL,
	`session_id` text NOT NULL,
	`root_session_id` text NOT NULL,
	`parent_key` text NOT NULL,
	`parent_session_id` text,
	`is_worker` integer NOT NULL,
	`turn_id` text,
	`workspace_hash` text NOT NULL,
	`model` text NOT NULL,
	`provider` text NOT NULL,
	`pricing_version` text NOT NULL,
	`purpose` text NOT NULL,
	`input_tokens` integer NOT NULL,
	`cached_input_tokens` integer NOT NULL,
	`cache_creation_input_tokens` integer NOT NULL,
	`cache_creation_1h_input_tokens` integer NOT NULL,
	`output_tokens` integer NOT NULL,
	`reasoning_tokens` integer NOT NULL,
	`usage_estimated` integer NOT NULL,
	`priced` integer NOT NULL,
	`cancelled` integer NOT NULL,
	`delegation_tier` text NOT NULL,
	`worker_name` text NOT NULL,
	`delegated_by_model` text NOT NULL,
	`latency_ms` integer,
	`cost_pusd` integer NOT NULL,
	CONSTRAINT "llm_calls_purpose" CHECK(purpose IN ('turn', 'compaction')),
	CONSTRAINT "llm_calls_flags" CHECK(is_worker IN (0, 1) AND usage_estimated IN (0, 1) AND priced IN (0, 1) AND cancelled IN (0, 1))
) STRICT;
--> statement-breakpoint
CREATE INDEX `llm_calls_time` ON `llm_calls` (`ts_ms`);--> statement-breakpoint
CREATE INDEX `llm_calls_session` ON `llm_calls` (`session_id`,`ts_ms`);--> statement-breakpoint
CREATE INDEX `llm_calls_turn` ON `llm_calls` (`turn_id`);--> statement-breakpoint
CREATE INDEX `llm_calls_model` ON `llm_calls` (`model`,`ts_ms`);--> statement-breakpoint
CREATE TABLE `meta` (
	`key` text PRIMARY KEY NOT NULL,
	`value` text NOT NULL
) STRICT;
--> statement-breakpoint
CREATE TABLE `price_versions` (
	`version` text PRIMARY KEY NOT NULL,
	`content_hash` text NOT NULL,
	`source` text NOT NULL,
	`models_json` text NOT NULL,
	`created_at` integer NOT NULL
) STRICT;
--> statement-breakpoint
CREATE TABLE `rollup_parent_day` (
	`day` integer NOT NULL,
	`parent_key` text NOT NULL,
	`is_worker` integer NOT NULL,
	`delegation_tier` text NOT NULL,
	`worker_name` text NOT NULL,
	`model` text NOT NULL,
	`root_session_id` text NOT NULL,
	`workspace_hash` text NOT NULL,
	`provider` text NOT NULL,
	`calls` integer NOT NULL,
	`unpriced_calls` integer NOT NULL,
	`latency_sum` integer NOT NULL,
	`latency_n` integer NOT NULL,
	`input_tokens` integer NOT NULL,
	`cached_input_tokens` integer NOT NULL,
	`cache_creation_input_tokens` integer NOT NULL,
	`cache_creation_1h_input_tokens` integer NOT NULL,
	`output_tokens` integer NOT NULL,
	`reasoning_tokens` integer NOT NULL,
	`cost_pusd` integer NOT NULL,
	PRIMARY KEY(`day`, `parent_key`, `is_worker`, `delegation_tier`, `worker_name`, `model`)
) STRICT, WITHOUT ROWID;
--> statement-breakpoint
CREATE TABLE `rollup_session_hour` (
	`hour` integer NOT NULL,
	`session_id` text NOT NULL,
	`model` text NOT NULL,
	`parent_key` text NOT NULL,
	`root_session_id` text NOT NULL,
	`is_worker` integer NOT NULL,
	`delegation_tier` text NOT NULL,
	`worker_name` text NOT NULL,
	`workspace_hash` text NOT NULL,
	`provider` text NOT NULL,
	`calls` integer NOT NULL,
	`unpriced_calls` integer NOT NULL,
	`latency_sum` integer NOT NULL,
	`latency_n` integer NOT NULL,
	`input_tokens` integer NOT NULL,
	`cached_input_tokens` integer NOT NULL,
	`cache_creation_input_tokens` integer NOT NULL,
	`cache_creation_1h_input_tokens` integer NOT NULL,
	`output_tokens` integer NOT NULL,
	`reasoning_tokens` integer NOT NULL,
	`cost_pusd` integer NOT NULL,
	PRIMARY KEY(`hour`, `session_id`, `model`)
) STRICT, WITHOUT ROWID;
--> statement-breakpoint
CREATE INDEX `rollup_session_hour_parent` ON `rollup_session_hour` (`parent_key`,`hour`);--> statement-breakpoint
CREATE INDEX `rollup_session_hour_session` ON `rollup_session_hour` (`session_id`,`hour`);--> statement-breakpoint
CREATE INDEX `rollup_session_hour_root` ON `rollup_session_hour` (`root_session_id`);--> statement-breakpoint
CREATE TABLE `compaction_checkpoints` (
	`id` text PRIMARY KEY NOT NULL,
	`session_id` text NOT NULL,
	`kind` text NOT NULL,
	`message_ids_json` text,
	`through_message_id` text,
	`summary_text` text,
	`tokens_before` integer NOT NULL,
	`tokens_after` integer NOT NULL,
	`model` text,
	`created_at` integer NOT NULL,
	FOREIGN KEY (`session_id`) REFERENCES `sessions`(`id`) ON UPDATE no action ON DELETE no action,
	CONSTRAINT "compaction_checkpoints_kind" CHECK(kind IN ('elide', 'summary'))
) STRICT;
--> statement-breakpoint
CREATE INDEX `compaction_checkpoints_session` ON `compaction_checkpoints` (`session_id`,`id`);--> statement-breakpoint
CREATE TABLE `pattern_fingerprints` (
	`id` text PRIMARY KEY NOT NULL,
	`workspace_path` text NOT NULL,
	`structural_json` text NOT NULL,
	`structural_sig` text NOT NULL,
	`created_at` integer NOT NULL
) STRICT;
--> statement-breakpoint
CREATE UNIQUE INDEX `pattern_fingerprints_sig` ON `pattern_fingerprints` (`workspace_path`,`structural_sig`);--> statement-breakpoint
CREATE TABLE `pattern_outcomes` (
	`fingerprint_id` text NOT NULL,
	`primary_model` text NOT NULL,
	`sample_size` integer NOT NULL,
	`success_score_mean` real NOT NULL,
	`success_score_count` integer NOT NULL,
	`sum_cost_pusd` integer NOT NULL,
	`sum_latency_ms` real NOT NULL,
	`pricing_version_last` text NOT NULL,
	`last_updated_at` integer NOT NULL,
	PRIMARY KEY(`fingerprint_id`, `primary_model`),
	FOREIGN KEY (`fingerprint_id`) REFERENCES `pattern_fingerprints`(`id`) ON UPDATE no action ON DELETE cascade
) STRICT;
--> statement-breakpoint
CREATE TABLE `pattern_turns` (
	`turn_id` text PRIMARY KEY NOT NULL,
	`session_id` text NOT NULL,
	`workspace_path` text NOT NULL,
	`fingerprint_id` text NOT NULL,
	`primary_model` text NOT NULL,
	`score` real,
	`recorded_at` integer NOT NULL,
	FOREIGN KEY (`fingerprint_id`,`primary_model`) REFERENCES `pattern_outcomes`(`fingerprint_id`,`primary_model`) ON UPDATE no action ON DELETE cascade
) STRICT;
--> statement-breakpoint
CREATE INDEX `pattern_turns_outcome` ON `pattern_turns` (`fingerprint_id`,`primary_model`);--> statement-breakpoint
CREATE TABLE `worker_definitions` (
	`root_session_id` text NOT NULL,
	`name` text NOT NULL,
	`created_by_session_id` text NOT NULL,
	`created_by_tool_use_id` text NOT NULL,
	`yaml` text NOT NULL,
	`path` text,
	`digest` text NOT NULL,
	`edited_by_user` integer NOT NULL,
	`created_at` integer NOT NULL,
	PRIMARY KEY(`root_session_id`, `name`),
	CONSTRAINT "worker_definitions_edited_by_user" CHECK(edited_by_user IN (0, 1))
) STRICT;--> statement-breakpoint
PRAGMA user_version = 1;
