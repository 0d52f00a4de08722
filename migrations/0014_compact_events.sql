CREATE TABLE `event_sessions` (
	`session_key` integer PRIMARY KEY NOT NULL,
	`session_id` text NOT NULL
) STRICT;
--> statement-breakpoint
INSERT INTO `event_sessions` (session_id) SELECT session_id FROM events GROUP BY session_id ORDER BY min(id);--> statement-breakpoint
CREATE UNIQUE INDEX `event_sessions_id` ON `event_sessions` (`session_id`);--> statement-breakpoint
CREATE TABLE `event_types` (
	`number` integer PRIMARY KEY NOT NULL,
	`type` text NOT NULL
) STRICT;
--> statement-breakpoint
INSERT INTO `event_types` (number, type) VALUES
  (1, 'session.created'),
  (2, 'session.ended'),
  (3, 'turn.started'),
  (4, 'turn.completed'),
  (5, 'turn.cancelled'),
  (6, 'turn.failed'),
  (7, 'turn.resumed'),
  (8, 'turn.steered'),
  (9, 'route.decided'),
  (10, 'routing.policy_invalid'),
  (11, 'routing.provider_unavailable'),
  (12, 'routing.provider_recovered'),
  (13, 'llm.call_started'),
  (14, 'llm.call_completed'),
  (15, 'llm.call_failed'),
  (16, 'tool.called'),
  (17, 'tool.completed'),
  (18, 'tool.failed'),
  (19, 'tool.input_invalid'),
  (20, 'tool.confirmation_requested'),
  (21, 'tool.confirmation_resolved'),
  (22, 'delegate.started'),
  (23, 'delegate.completed'),
  (24, 'delegate.failed'),
  (25, 'memory.updated'),
  (26, 'skill.loaded'),
  (27, 'context.compacted'),
  (28, 'pattern.recorded'),
  (29, 'eval.completed'),
  (30, 'worker.created'),
  (31, 'budget.warning'),
  (32, 'budget.exceeded');--> statement-breakpoint
CREATE UNIQUE INDEX `event_types_type` ON `event_types` (`type`);--> statement-breakpoint
-- Of types that this version does not know, which stay as they were written.
INSERT INTO `event_types` (number, type)
SELECT 1000 + row_number() OVER (ORDER BY type), type FROM (SELECT DISTINCT type FROM events)
WHERE type NOT IN (SELECT type FROM event_types);--> statement-breakpoint
CREATE TABLE `event_rows` (
	`id` text PRIMARY KEY NOT NULL,
	`timestamp_ms` integer NOT NULL,
	`session_key` integer NOT NULL,
	`turn_id` text,
	`parent_event_id` text,
	`type` integer NOT NULL,
	`actor` integer NOT NULL,
	`sensitivity` integer NOT NULL,
	`payload_json` text NOT NULL,
	CONSTRAINT "event_rows_actor" CHECK(actor IN (0, 1, 2, 3, 4)),
	CONSTRAINT "event_rows_sensitivity" CHECK(sensitivity IN (0, 1))
) STRICT;
--> statement-breakpoint
INSERT INTO `event_rows` (id, timestamp_ms, session_key, turn_id, parent_event_id, type, actor, sensitivity, payload_json)
SELECT e.id, e.timestamp_ms, s.session_key, e.turn_id, e.parent_event_id, t.number,
  CASE e.actor WHEN 'user' THEN 0 WHEN 'agent' THEN 1 WHEN 'system' THEN 2 WHEN 'tool' THEN 3 ELSE 4 END,
  CASE e.sensitivity WHEN 'private' THEN 0 ELSE 1 END, e.payload_json
FROM events e CROSS JOIN event_sessions s ON s.session_id = e.session_id
  CROSS JOIN event_types t ON t.type = e.type ORDER BY e.rowid;--> statement-breakpoint
DROP TABLE `events`;--> statement-breakpoint
CREATE INDEX `event_rows_session` ON `event_rows` (`session_key`,`id`);--> statement-breakpoint
CREATE INDEX `event_rows_reported` ON `event_rows` (`type`,`timestamp_ms`) WHERE type = 9 OR type = 14 OR type = 15;--> statement-breakpoint
CREATE INDEX `event_rows_time` ON `event_rows` (`timestamp_ms`);--> statement-breakpoint
-- LEFT JOIN, so that SQLite begins with events unless a condition names the session.
CREATE VIEW `events` AS
SELECT e.id, e.timestamp_ms, s.session_id, e.turn_id, e.parent_event_id, t.type,
  CASE e.actor WHEN 0 THEN 'user' WHEN 1 THEN 'agent' WHEN 2 THEN 'system' WHEN 3 THEN 'tool' ELSE 'worker' END AS actor,
  CASE e.sensitivity WHEN 0 THEN 'private' ELSE 'pseudonymous' END AS sensitivity, e.payload_json
FROM event_rows e LEFT JOIN event_sessions s ON s.session_key = e.session_key
  LEFT JOIN event_types t ON t.number = e.type;--> statement-breakpoint
PRAGMA user_version = 15;
