-- The worker with whose prompt and messages a worker's session began (20 §3).
ALTER TABLE sessions ADD continues_session_id text COLLATE "C";
