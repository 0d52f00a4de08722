DROP INDEX `confirmations_open`;--> statement-breakpoint
CREATE INDEX `confirmations_open` ON `confirmations` (`id`) WHERE decision IS NULL;--> statement-breakpoint
CREATE INDEX `delegations_open` ON `delegations` (`parent_turn_id`) WHERE status IN ('running','interrupted');--> statement-breakpoint
PRAGMA user_version = 3;
