-- Runs of experiments that were purged: their money stays in the sum (21 §5).
CREATE TABLE purged_runs (
  experiment_id text COLLATE "C" NOT NULL,
  session_id text COLLATE "C" NOT NULL,
  PRIMARY KEY (experiment_id, session_id)
);
