ALTER TABLE `trusted_files` ADD `content` text;--> statement-breakpoint
PRAGMA user_version = 27;
