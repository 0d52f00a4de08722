-- Its turn and its shape know them.
ALTER TABLE pattern_turns DROP COLUMN session_id, DROP COLUMN workspace_path;
