DROP INDEX `events_turn`;--> statement-breakpoint
PRAGMA user_version = 14;
