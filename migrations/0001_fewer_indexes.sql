DROP INDEX `events_type`;--> statement-breakpoint
CREATE INDEX `events_reported` ON `events` (`type`,`timestamp_ms`) WHERE type = 'route.decided' OR type = 'llm.call_completed' OR type = 'llm.call_failed';--> statement-breakpoint
DROP INDEX `llm_calls_model`;--> statement-breakpoint
PRAGMA user_version = 2;
