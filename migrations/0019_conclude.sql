ALTER TABLE `turns` ADD `concluded_at` integer;--> statement-breakpoint
ALTER TABLE `turns` ADD `conclusion_message_id` text;--> statement-breakpoint
PRAGMA user_version = 20;
