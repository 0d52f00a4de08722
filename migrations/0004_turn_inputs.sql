CREATE TABLE `turn_inputs` (
	`id` text PRIMARY KEY NOT NULL,
	`session_id` text NOT NULL,
	`turn_id` text NOT NULL,
	`content_json` text NOT NULL,
	`submitted_at` integer NOT NULL,
	FOREIGN KEY (`session_id`) REFERENCES `sessions`(`id`) ON UPDATE no action ON DELETE no action,
	FOREIGN KEY (`turn_id`) REFERENCES `turns`(`id`) ON UPDATE no action ON DELETE no action
) STRICT;
--> statement-breakpoint
CREATE INDEX `turn_inputs_turn` ON `turn_inputs` (`turn_id`,`id`);--> statement-breakpoint
CREATE INDEX `turn_inputs_session` ON `turn_inputs` (`session_id`);--> statement-breakpoint
PRAGMA user_version = 5;
