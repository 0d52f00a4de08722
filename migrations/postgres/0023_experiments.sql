-- Runs of experiments, which share a limit (21 §5).
ALTER TABLE sessions ADD experiment_id text COLLATE "C";
ALTER TABLE sessions ADD experiment_json text COLLATE "C";
CREATE INDEX sessions_experiment ON sessions (experiment_id) WHERE experiment_id IS NOT NULL;
