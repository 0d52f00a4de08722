-- Runs of a delegation's check on what its worker left (20 §10).
CREATE TABLE delegation_attempts (
  tool_use_id text COLLATE "C" NOT NULL,
  attempt bigint NOT NULL,
  worker_session_id text COLLATE "C" NOT NULL,
  turn_id text COLLATE "C" NOT NULL,
  rung text COLLATE "C",
  check_name text COLLATE "C" NOT NULL,
  result_tree text COLLATE "C",
  process_group bigint,
  passed bigint,
  exit_code bigint,
  output text COLLATE "C",
  protected_json text COLLATE "C" NOT NULL,
  wall_time_seconds double precision NOT NULL,
  started_at bigint NOT NULL,
  ended_at bigint,
  PRIMARY KEY (tool_use_id, attempt),
  CONSTRAINT delegation_attempts_passed CHECK (passed IN (0, 1))
);
CREATE INDEX delegation_attempts_worker ON delegation_attempts (worker_session_id);
CREATE INDEX delegation_attempts_open ON delegation_attempts (tool_use_id) WHERE ended_at IS NULL;
ALTER TABLE delegations DROP CONSTRAINT delegations_failure_mode;
ALTER TABLE delegations ADD CONSTRAINT delegations_failure_mode CHECK (failure_mode IN ('worker_error',
  'max_tokens_exceeded', 'insufficient_context', 'output_schema_validation_failed', 'no_model_available_for_tier',
  'cancelled_by_user', 'timeout', 'budget_exceeded', 'check_failed'));
