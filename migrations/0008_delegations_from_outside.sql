ALTER TABLE `delegations` ALTER COLUMN `parent_turn_id` DROP NOT NULL;--> statement-breakpoint
PRAGMA user_version = 9;
