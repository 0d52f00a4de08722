-- A list of words as comparisons: for `IN` SQLite builds a table in memory at every insert.
ALTER TABLE `messages` DROP CONSTRAINT "messages_role";--> statement-breakpoint
ALTER TABLE `messages` ADD CONSTRAINT "messages_role" CHECK((role = 'user' OR role = 'assistant' OR role = 'system' OR role = 'tool'));--> statement-breakpoint
ALTER TABLE `messages` DROP CONSTRAINT "messages_status";--> statement-breakpoint
ALTER TABLE `messages` ADD CONSTRAINT "messages_status" CHECK((status = 'complete' OR status = 'cancelled' OR status = 'error'));--> statement-breakpoint
ALTER TABLE `tool_calls` DROP CONSTRAINT "tool_calls_status";--> statement-breakpoint
ALTER TABLE `tool_calls` ADD CONSTRAINT "tool_calls_status" CHECK((status = 'pending' OR status = 'succeeded' OR status = 'failed' OR status = 'cancelled'));--> statement-breakpoint
ALTER TABLE `turns` DROP CONSTRAINT "turns_status";--> statement-breakpoint
ALTER TABLE `turns` ADD CONSTRAINT "turns_status" CHECK((status = 'in_flight' OR status = 'cancelling' OR status = 'interrupted' OR status = 'completed' OR status = 'cancelled' OR status = 'failed'));--> statement-breakpoint
ALTER TABLE `turns` DROP CONSTRAINT "turns_routing_mode";--> statement-breakpoint
ALTER TABLE `turns` ADD CONSTRAINT "turns_routing_mode" CHECK((routing_mode = 'override' OR routing_mode = 'manual' OR routing_mode = 'rule' OR routing_mode = 'pattern' OR routing_mode = 'delegate' OR routing_mode = 'default'));--> statement-breakpoint
ALTER TABLE `turns` DROP CONSTRAINT "turns_stop_reason";--> statement-breakpoint
ALTER TABLE `turns` ADD CONSTRAINT "turns_stop_reason" CHECK((stop_reason = 'end_turn' OR stop_reason = 'max_tokens' OR stop_reason = 'stop_sequence' OR stop_reason = 'tool_use' OR stop_reason = 'budget_exceeded'));--> statement-breakpoint
ALTER TABLE `turns` DROP CONSTRAINT "turns_cancel_reason";--> statement-breakpoint
ALTER TABLE `turns` ADD CONSTRAINT "turns_cancel_reason" CHECK((cancel_reason = 'user_cancel' OR cancel_reason = 'timeout' OR cancel_reason = 'shutdown'));--> statement-breakpoint
ALTER TABLE `turns` DROP CONSTRAINT "turns_error_code";--> statement-breakpoint
ALTER TABLE `turns` ADD CONSTRAINT "turns_error_code" CHECK((error_code = 'provider_error' OR error_code = 'model_not_configured' OR error_code = 'internal_error'));--> statement-breakpoint
ALTER TABLE `turns` DROP CONSTRAINT "turns_error_class";--> statement-breakpoint
ALTER TABLE `turns` ADD CONSTRAINT "turns_error_class" CHECK((error_class = 'rate_limit' OR error_class = 'auth' OR error_class = 'server_error' OR error_class = 'network' OR error_class = 'context_overflow' OR error_class = 'invalid_request' OR error_class = 'cancelled' OR error_class = 'other'));--> statement-breakpoint
ALTER TABLE `event_rows` DROP CONSTRAINT "event_rows_actor";--> statement-breakpoint
ALTER TABLE `event_rows` ADD CONSTRAINT "event_rows_actor" CHECK((actor = 0 OR actor = 1 OR actor = 2 OR actor = 3 OR actor = 4));--> statement-breakpoint
ALTER TABLE `ledger_calls` DROP CONSTRAINT "ledger_calls_purpose";--> statement-breakpoint
ALTER TABLE `ledger_calls` ADD CONSTRAINT "ledger_calls_purpose" CHECK((purpose = 'turn' OR purpose = 'compaction' OR purpose = 'gateway'));--> statement-breakpoint
DROP INDEX `turns_open`;--> statement-breakpoint
CREATE UNIQUE INDEX `turns_open` ON `turns` (`session_id`) WHERE (status = 'in_flight' OR status = 'cancelling' OR status = 'interrupted');--> statement-breakpoint
PRAGMA user_version = 33;
