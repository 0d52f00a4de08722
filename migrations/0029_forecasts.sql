CREATE TABLE `tree_costs` (
	`id` text PRIMARY KEY NOT NULL,
	`workspace_path` text NOT NULL,
	`is_worker` integer NOT NULL,
	`shape_sig` text NOT NULL,
	`model` text NOT NULL,
	`cost_pusd` integer NOT NULL,
	`forecast_json` text,
	`ended_at` integer NOT NULL,
	CONSTRAINT "tree_costs_worker" CHECK(is_worker IN (0, 1))
) STRICT;
--> statement-breakpoint
CREATE INDEX `tree_costs_shape` ON `tree_costs` (`shape_sig`,`model`,`is_worker`,`ended_at`);--> statement-breakpoint
CREATE INDEX `tree_costs_newest` ON `tree_costs` (`ended_at`);--> statement-breakpoint
ALTER TABLE `sessions` ADD `confirm_above_usd` text;--> statement-breakpoint
ALTER TABLE `sessions` ADD `confirm_above_workers` integer;--> statement-breakpoint
ALTER TABLE `turns` ADD `shape_sig` text;--> statement-breakpoint
ALTER TABLE `turns` ADD `forecast_json` text;--> statement-breakpoint
PRAGMA user_version = 30;
