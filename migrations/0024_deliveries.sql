CREATE TABLE `deliveries` (
	`id` text PRIMARY KEY NOT NULL,
	`session_id` text NOT NULL,
	`turn_id` text NOT NULL,
	`worker_session_id` text NOT NULL,
	`created_at` integer NOT NULL,
	`read_by` text,
	`delivered_at` integer,
	`message_id` text,
	FOREIGN KEY (`session_id`) REFERENCES `sessions`(`id`) ON UPDATE no action ON DELETE no action,
	FOREIGN KEY (`turn_id`) REFERENCES `turns`(`id`) ON UPDATE no action ON DELETE no action
) STRICT;
--> statement-breakpoint
CREATE UNIQUE INDEX `deliveries_worker` ON `deliveries` (`worker_session_id`);--> statement-breakpoint
CREATE INDEX `deliveries_waiting` ON `deliveries` (`turn_id`,`id`) WHERE delivered_at IS NULL;--> statement-breakpoint
CREATE INDEX `deliveries_session` ON `deliveries` (`session_id`);--> statement-breakpoint
PRAGMA user_version = 25;
