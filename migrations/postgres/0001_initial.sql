-- The tables of chapter 01 §11.3 as PostgreSQL has them, and those of a cluster (16 §2).

CREATE TABLE sessions (
  id text COLLATE "C" PRIMARY KEY,
  workspace_path text COLLATE "C" NOT NULL,
  workspace_hash text COLLATE "C" NOT NULL,
  active_model text COLLATE "C",
  pending_active_model text COLLATE "C",
  routing_policy_version text COLLATE "C",
  turn_count bigint NOT NULL DEFAULT 0,
  disposition text COLLATE "C",
  ended_at bigint,
  parent_session_id text COLLATE "C",
  parent_tool_use_id text COLLATE "C",
  is_worker bigint NOT NULL DEFAULT 0,
  root_session_id text COLLATE "C" NOT NULL,
  delegation_depth bigint NOT NULL DEFAULT 0,
  delegated_by_model text COLLATE "C",
  worker_name text COLLATE "C",
  worker_digest text COLLATE "C",
  worker_origin text COLLATE "C",
  allow_workers_json text COLLATE "C",
  approval_mode text COLLATE "C" NOT NULL,
  max_cost_pusd bigint,
  on_reached text COLLATE "C" NOT NULL,
  budget_warned_pusd bigint,
  created_at bigint NOT NULL,
  updated_at bigint NOT NULL,
  worker_definition_json text COLLATE "C",
  system_prompt text COLLATE "C",
  system_prompt_volatile text COLLATE "C",
  door text COLLATE "C" NOT NULL DEFAULT 'api',
  caller text COLLATE "C" NOT NULL DEFAULT '',
  client text COLLATE "C",
  client_ref text COLLATE "C",
  CONSTRAINT sessions_door CHECK (door IN ('api', 'gateway', 'mcp', 'acp')),
  FOREIGN KEY (parent_session_id) REFERENCES sessions(id),
  CONSTRAINT sessions_end CHECK ((ended_at IS NULL) = (disposition IS NULL)),
  CONSTRAINT sessions_disposition CHECK (disposition IN ('completed', 'failed', 'cancelled')),
  CONSTRAINT sessions_worker_origin CHECK (worker_origin IN ('project', 'session')),
  CONSTRAINT sessions_approval_mode CHECK (approval_mode IN ('interactive', 'approve_all', 'strict')),
  CONSTRAINT sessions_on_reached CHECK (on_reached IN ('pause', 'stop')),
  CONSTRAINT sessions_worker CHECK ((is_worker = 1) = (parent_session_id IS NOT NULL) AND (is_worker = 1 AND door <> 'gateway') = (parent_tool_use_id IS NOT NULL))
);
CREATE INDEX sessions_parent ON sessions (parent_session_id) WHERE parent_session_id IS NOT NULL;
CREATE UNIQUE INDEX sessions_parent_tool_use ON sessions (parent_tool_use_id) WHERE parent_tool_use_id IS NOT NULL;
CREATE INDEX sessions_root ON sessions (root_session_id);
CREATE INDEX sessions_newest ON sessions (is_worker, id DESC);
CREATE INDEX sessions_active ON sessions (is_worker, door) WHERE ended_at IS NULL;
CREATE INDEX sessions_named ON sessions (worker_name, id DESC) WHERE worker_name IS NOT NULL;
CREATE UNIQUE INDEX sessions_client ON sessions (caller, client_ref) WHERE client_ref IS NOT NULL AND is_worker = 0;
CREATE UNIQUE INDEX sessions_client_worker ON sessions (root_session_id, client_ref) WHERE client_ref IS NOT NULL AND is_worker = 1;

CREATE TABLE turns (
  id text COLLATE "C" PRIMARY KEY,
  session_id text COLLATE "C" NOT NULL,
  user_message_id text COLLATE "C" NOT NULL,
  status text COLLATE "C" NOT NULL,
  per_message_override text COLLATE "C",
  chosen_model text COLLATE "C",
  provider text COLLATE "C",
  routing_mode text COLLATE "C",
  stop_reason text COLLATE "C",
  cancel_reason text COLLATE "C",
  interrupted_reason text COLLATE "C",
  error_code text COLLATE "C",
  error_class text COLLATE "C",
  error_message text COLLATE "C",
  retryable bigint,
  llm_call_count bigint NOT NULL DEFAULT 0,
  tool_call_count bigint NOT NULL DEFAULT 0,
  started_at bigint NOT NULL,
  ended_at bigint,
  wall_time_seconds double precision,
  final_message_id text COLLATE "C",
  tools_json text COLLATE "C" NOT NULL,
  fingerprint_json text COLLATE "C",
  resume_attempts bigint NOT NULL DEFAULT 0,
  user_score_json text COLLATE "C",
  FOREIGN KEY (session_id) REFERENCES sessions(id),
  CONSTRAINT turns_status CHECK (status IN ('in_flight', 'cancelling', 'interrupted', 'completed', 'cancelled', 'failed')),
  CONSTRAINT turns_routing_mode CHECK (routing_mode IN ('override', 'manual', 'rule', 'pattern', 'delegate', 'default')),
  CONSTRAINT turns_stop_reason CHECK (stop_reason IN ('end_turn', 'max_tokens', 'stop_sequence', 'tool_use', 'budget_exceeded')),
  CONSTRAINT turns_cancel_reason CHECK (cancel_reason IN ('user_cancel', 'timeout', 'shutdown')),
  CONSTRAINT turns_interrupted_reason CHECK (interrupted_reason IN ('restart', 'budget')),
  CONSTRAINT turns_error_code CHECK (error_code IN ('provider_error', 'model_not_configured', 'internal_error')),
  CONSTRAINT turns_error_class CHECK (error_class IN ('rate_limit', 'auth', 'server_error', 'network', 'context_overflow', 'invalid_request', 'cancelled', 'other')),
  CONSTRAINT turns_retryable CHECK (retryable IN (0, 1))
);
CREATE INDEX turns_session ON turns (session_id, id);
CREATE UNIQUE INDEX turns_open ON turns (session_id) WHERE status IN ('in_flight', 'cancelling', 'interrupted');

CREATE TABLE messages (
  id text COLLATE "C" PRIMARY KEY,
  session_id text COLLATE "C" NOT NULL,
  turn_id text COLLATE "C",
  role text COLLATE "C" NOT NULL,
  status text COLLATE "C" NOT NULL,
  created_at bigint NOT NULL,
  metadata_json text COLLATE "C" NOT NULL,
  content_json text COLLATE "C" NOT NULL,
  provider_raw_json text COLLATE "C",
  FOREIGN KEY (session_id) REFERENCES sessions(id),
  FOREIGN KEY (turn_id) REFERENCES turns(id),
  CONSTRAINT messages_role CHECK (role IN ('user', 'assistant', 'system', 'tool')),
  CONSTRAINT messages_status CHECK (status IN ('complete', 'cancelled', 'error'))
);
CREATE INDEX messages_session ON messages (session_id, id);
CREATE INDEX messages_turn ON messages (turn_id, id);

CREATE TABLE tool_calls (
  id text COLLATE "C" PRIMARY KEY,
  session_id text COLLATE "C" NOT NULL,
  turn_id text COLLATE "C" NOT NULL,
  message_id text COLLATE "C" NOT NULL,
  result_message_id text COLLATE "C",
  name text COLLATE "C" NOT NULL,
  status text COLLATE "C" NOT NULL,
  provider text COLLATE "C" NOT NULL,
  provider_id text COLLATE "C",
  created_at bigint NOT NULL,
  completed_at bigint,
  result_json text COLLATE "C",
  changed_json text COLLATE "C",
  FOREIGN KEY (session_id) REFERENCES sessions(id),
  FOREIGN KEY (turn_id) REFERENCES turns(id),
  FOREIGN KEY (message_id) REFERENCES messages(id),
  FOREIGN KEY (result_message_id) REFERENCES messages(id),
  CONSTRAINT tool_calls_status CHECK (status IN ('pending', 'succeeded', 'failed', 'cancelled'))
);
CREATE UNIQUE INDEX tool_calls_result ON tool_calls (result_message_id);
CREATE INDEX tool_calls_session ON tool_calls (session_id, status);
CREATE INDEX tool_calls_turn ON tool_calls (turn_id);
CREATE INDEX tool_calls_message ON tool_calls (message_id);

CREATE TABLE turn_inputs (
  id text COLLATE "C" PRIMARY KEY,
  session_id text COLLATE "C" NOT NULL,
  turn_id text COLLATE "C" NOT NULL,
  content_json text COLLATE "C" NOT NULL,
  submitted_at bigint NOT NULL,
  FOREIGN KEY (session_id) REFERENCES sessions(id),
  FOREIGN KEY (turn_id) REFERENCES turns(id)
);
CREATE INDEX turn_inputs_turn ON turn_inputs (turn_id, id);
CREATE INDEX turn_inputs_session ON turn_inputs (session_id);

CREATE TABLE delegations (
  tool_use_id text COLLATE "C" PRIMARY KEY,
  parent_session_id text COLLATE "C" NOT NULL,
  parent_turn_id text COLLATE "C",
  worker_session_id text COLLATE "C",
  entry text COLLATE "C" NOT NULL,
  worker_name text COLLATE "C",
  worker_digest text COLLATE "C",
  tier text COLLATE "C",
  resolved_model text COLLATE "C",
  context_mode text COLLATE "C" NOT NULL,
  context_reference_count bigint NOT NULL,
  task_size_tokens bigint NOT NULL,
  effective_tools_json text COLLATE "C" NOT NULL,
  allowed_tool_count bigint NOT NULL,
  dropped_tools_json text COLLATE "C" NOT NULL,
  max_tokens bigint,
  max_cost_pusd bigint,
  timeout_seconds double precision NOT NULL,
  active_seconds double precision NOT NULL,
  status text COLLATE "C" NOT NULL,
  failure_mode text COLLATE "C",
  error_message text COLLATE "C",
  created_at bigint NOT NULL,
  ended_at bigint,
  output_json text COLLATE "C",
  request_json text COLLATE "C" NOT NULL,
  changes_json text COLLATE "C",
  FOREIGN KEY (parent_session_id) REFERENCES sessions(id),
  FOREIGN KEY (worker_session_id) REFERENCES sessions(id),
  CONSTRAINT delegations_entry CHECK (entry IN ('delegate', 'worker_tool', 'worker_call')),
  CONSTRAINT delegations_tier CHECK (tier IN ('fast', 'balanced', 'deep')),
  CONSTRAINT delegations_context_mode CHECK (context_mode IN ('minimal', 'explicit')),
  CONSTRAINT delegations_status CHECK (status IN ('running', 'interrupted', 'completed', 'failed')),
  CONSTRAINT delegations_failure_mode CHECK (failure_mode IN ('worker_error', 'max_tokens_exceeded', 'insufficient_context', 'output_schema_validation_failed', 'no_model_available_for_tier', 'cancelled_by_user', 'timeout', 'budget_exceeded'))
);
CREATE UNIQUE INDEX delegations_worker ON delegations (worker_session_id);
CREATE INDEX delegations_parent ON delegations (parent_session_id, tool_use_id);
CREATE INDEX delegations_open ON delegations (parent_turn_id) WHERE status IN ('running', 'interrupted');

CREATE TABLE confirmations (
  id text COLLATE "C" PRIMARY KEY,
  session_id text COLLATE "C" NOT NULL,
  root_session_id text COLLATE "C" NOT NULL,
  turn_id text COLLATE "C" NOT NULL,
  tool_use_id text COLLATE "C" NOT NULL,
  tool_name text COLLATE "C" NOT NULL,
  rule text COLLATE "C",
  key_hash text COLLATE "C",
  request_json text COLLATE "C" NOT NULL,
  input_json text COLLATE "C" NOT NULL,
  requested_at bigint NOT NULL,
  expires_at bigint NOT NULL,
  decision text COLLATE "C",
  scope text COLLATE "C",
  reason text COLLATE "C",
  modified_json text COLLATE "C",
  resolved_by text COLLATE "C",
  resolved_at bigint,
  FOREIGN KEY (session_id) REFERENCES sessions(id),
  CONSTRAINT confirmations_decision CHECK (decision IN ('approve', 'reject', 'modify', 'timeout', 'cancelled')),
  CONSTRAINT confirmations_scope CHECK (scope IN ('once', 'identical', 'always')),
  CONSTRAINT confirmations_resolved_by CHECK (resolved_by IN ('user', 'policy'))
);
CREATE INDEX confirmations_granted ON confirmations (root_session_id, key_hash) WHERE scope = 'identical';
CREATE INDEX confirmations_session ON confirmations (session_id, id);
CREATE INDEX confirmations_open ON confirmations (id) WHERE decision IS NULL;

CREATE TABLE compaction_checkpoints (
  id text COLLATE "C" PRIMARY KEY,
  session_id text COLLATE "C" NOT NULL,
  kind text COLLATE "C" NOT NULL,
  message_ids_json text COLLATE "C",
  through_message_id text COLLATE "C",
  summary_text text COLLATE "C",
  tokens_before bigint NOT NULL,
  tokens_after bigint NOT NULL,
  model text COLLATE "C",
  created_at bigint NOT NULL,
  FOREIGN KEY (session_id) REFERENCES sessions(id),
  CONSTRAINT compaction_checkpoints_kind CHECK (kind IN ('elide', 'summary'))
);
CREATE INDEX compaction_checkpoints_session ON compaction_checkpoints (session_id, id);

CREATE TABLE worker_definitions (
  root_session_id text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  created_by_session_id text COLLATE "C" NOT NULL,
  created_by_tool_use_id text COLLATE "C" NOT NULL,
  yaml text COLLATE "C" NOT NULL,
  path text COLLATE "C",
  digest text COLLATE "C" NOT NULL,
  edited_by_user bigint NOT NULL,
  created_at bigint NOT NULL,
  PRIMARY KEY (root_session_id, name),
  CONSTRAINT worker_definitions_edited_by_user CHECK (edited_by_user IN (0, 1))
);

CREATE TABLE events (
  id text COLLATE "C" PRIMARY KEY,
  timestamp_ms bigint NOT NULL,
  session_id text COLLATE "C" NOT NULL,
  turn_id text COLLATE "C",
  parent_event_id text COLLATE "C",
  type text COLLATE "C" NOT NULL,
  actor text COLLATE "C" NOT NULL,
  sensitivity text COLLATE "C" NOT NULL,
  payload_json text COLLATE "C" NOT NULL,
  CONSTRAINT events_actor CHECK (actor IN ('user', 'agent', 'system', 'tool', 'worker')),
  CONSTRAINT events_sensitivity CHECK (sensitivity IN ('private', 'pseudonymous'))
);
CREATE INDEX events_session ON events (session_id, id);
CREATE INDEX events_turn ON events (turn_id, id);
CREATE INDEX events_time ON events (timestamp_ms);
CREATE INDEX events_reported ON events (type, timestamp_ms) WHERE type = 'route.decided' OR type = 'llm.call_completed' OR type = 'llm.call_failed';

CREATE TABLE ledger_sessions (
  session_key bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
  session_id text COLLATE "C" NOT NULL,
  root_session_id text COLLATE "C" NOT NULL,
  parent_key text COLLATE "C" NOT NULL,
  is_worker bigint NOT NULL,
  workspace_hash text COLLATE "C" NOT NULL,
  delegation_tier text COLLATE "C" NOT NULL,
  worker_name text COLLATE "C" NOT NULL,
  delegated_by_model text COLLATE "C" NOT NULL,
  door text COLLATE "C" NOT NULL,
  caller text COLLATE "C" NOT NULL,
  CONSTRAINT ledger_sessions_flags CHECK (is_worker IN (0, 1))
);
CREATE UNIQUE INDEX ledger_sessions_id ON ledger_sessions (session_id);
CREATE INDEX ledger_sessions_root ON ledger_sessions (root_session_id);
CREATE INDEX ledger_sessions_parent ON ledger_sessions (parent_key);

CREATE TABLE ledger_calls (
  seq bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
  event_id text COLLATE "C" NOT NULL,
  ts_ms bigint NOT NULL,
  session_key bigint NOT NULL,
  turn_id text COLLATE "C",
  model text COLLATE "C" NOT NULL,
  provider text COLLATE "C" NOT NULL,
  pricing_version text COLLATE "C" NOT NULL,
  purpose text COLLATE "C" NOT NULL,
  input_tokens bigint NOT NULL,
  cached_input_tokens bigint NOT NULL,
  cache_creation_input_tokens bigint NOT NULL,
  cache_creation_1h_input_tokens bigint NOT NULL,
  output_tokens bigint NOT NULL,
  reasoning_tokens bigint NOT NULL,
  usage_estimated bigint NOT NULL,
  priced bigint NOT NULL,
  cancelled bigint NOT NULL,
  latency_ms bigint,
  cost_pusd bigint NOT NULL,
  CONSTRAINT ledger_calls_purpose CHECK (purpose IN ('turn', 'compaction', 'gateway')),
  CONSTRAINT ledger_calls_flags CHECK (usage_estimated IN (0, 1) AND priced IN (0, 1) AND cancelled IN (0, 1))
);
CREATE UNIQUE INDEX ledger_calls_event ON ledger_calls (event_id);
CREATE INDEX ledger_calls_time ON ledger_calls (ts_ms);
CREATE INDEX ledger_calls_session ON ledger_calls (session_key, ts_ms);
CREATE INDEX ledger_calls_turn ON ledger_calls (turn_id);

CREATE TABLE rollup_session_hour (
  hour bigint NOT NULL,
  session_key bigint NOT NULL,
  model text COLLATE "C" NOT NULL,
  provider text COLLATE "C" NOT NULL,
  calls bigint NOT NULL,
  unpriced_calls bigint NOT NULL,
  latency_sum bigint NOT NULL,
  latency_n bigint NOT NULL,
  input_tokens bigint NOT NULL,
  cached_input_tokens bigint NOT NULL,
  cache_creation_input_tokens bigint NOT NULL,
  cache_creation_1h_input_tokens bigint NOT NULL,
  output_tokens bigint NOT NULL,
  reasoning_tokens bigint NOT NULL,
  cost_pusd bigint NOT NULL,
  PRIMARY KEY (hour, session_key, model)
);
CREATE INDEX rollup_session_hour_session ON rollup_session_hour (session_key, hour);

CREATE TABLE rollup_parent_day (
  day bigint NOT NULL,
  parent_key text COLLATE "C" NOT NULL,
  is_worker bigint NOT NULL,
  delegation_tier text COLLATE "C" NOT NULL,
  worker_name text COLLATE "C" NOT NULL,
  model text COLLATE "C" NOT NULL,
  root_session_id text COLLATE "C" NOT NULL,
  workspace_hash text COLLATE "C" NOT NULL,
  provider text COLLATE "C" NOT NULL,
  calls bigint NOT NULL,
  unpriced_calls bigint NOT NULL,
  latency_sum bigint NOT NULL,
  latency_n bigint NOT NULL,
  input_tokens bigint NOT NULL,
  cached_input_tokens bigint NOT NULL,
  cache_creation_input_tokens bigint NOT NULL,
  cache_creation_1h_input_tokens bigint NOT NULL,
  output_tokens bigint NOT NULL,
  reasoning_tokens bigint NOT NULL,
  cost_pusd bigint NOT NULL,
  PRIMARY KEY (day, parent_key, is_worker, delegation_tier, worker_name, model)
);
CREATE INDEX rollup_parent_day_parent ON rollup_parent_day (parent_key, day);

CREATE TABLE rollup_day (
  day bigint NOT NULL,
  is_worker bigint NOT NULL,
  delegation_tier text COLLATE "C" NOT NULL,
  worker_name text COLLATE "C" NOT NULL,
  workspace_hash text COLLATE "C" NOT NULL,
  model text COLLATE "C" NOT NULL,
  delegated_by_model text COLLATE "C" NOT NULL,
  prompt_class bigint NOT NULL,
  provider text COLLATE "C" NOT NULL,
  calls bigint NOT NULL,
  unpriced_calls bigint NOT NULL,
  latency_sum bigint NOT NULL,
  latency_n bigint NOT NULL,
  input_tokens bigint NOT NULL,
  cached_input_tokens bigint NOT NULL,
  cache_creation_input_tokens bigint NOT NULL,
  cache_creation_1h_input_tokens bigint NOT NULL,
  output_tokens bigint NOT NULL,
  reasoning_tokens bigint NOT NULL,
  cost_pusd bigint NOT NULL,
  billed_1h_tokens bigint NOT NULL,
  PRIMARY KEY (day, is_worker, delegation_tier, worker_name, workspace_hash, model, delegated_by_model, prompt_class)
);

CREATE TABLE rollup_parent (
  parent_key text COLLATE "C" PRIMARY KEY,
  calls bigint NOT NULL,
  input_tokens bigint NOT NULL,
  cached_input_tokens bigint NOT NULL,
  cache_creation_input_tokens bigint NOT NULL,
  output_tokens bigint NOT NULL,
  cost_pusd bigint NOT NULL
);
CREATE INDEX rollup_parent_cost ON rollup_parent (cost_pusd DESC, parent_key);

CREATE TABLE idempotency_keys (
  method text COLLATE "C" NOT NULL,
  path text COLLATE "C" NOT NULL,
  token_hash text COLLATE "C" NOT NULL,
  key text COLLATE "C" NOT NULL,
  session_id text COLLATE "C",
  body_hash text COLLATE "C" NOT NULL,
  status bigint NOT NULL,
  response_json text COLLATE "C" NOT NULL,
  expires_at bigint NOT NULL,
  PRIMARY KEY (method, path, token_hash, key)
);
CREATE INDEX idempotency_keys_expiry ON idempotency_keys (expires_at);

CREATE TABLE price_versions (
  version text COLLATE "C" PRIMARY KEY,
  content_hash text COLLATE "C" NOT NULL,
  source text COLLATE "C" NOT NULL,
  models_json text COLLATE "C" NOT NULL,
  created_at bigint NOT NULL
);

CREATE TABLE meta (
  key text COLLATE "C" PRIMARY KEY,
  value text COLLATE "C" NOT NULL
);

CREATE TABLE pattern_fingerprints (
  id text COLLATE "C" PRIMARY KEY,
  workspace_path text COLLATE "C" NOT NULL,
  structural_json text COLLATE "C" NOT NULL,
  structural_sig text COLLATE "C" NOT NULL,
  created_at bigint NOT NULL
);
CREATE UNIQUE INDEX pattern_fingerprints_sig ON pattern_fingerprints (workspace_path, structural_sig);

CREATE TABLE pattern_outcomes (
  fingerprint_id text COLLATE "C" NOT NULL,
  primary_model text COLLATE "C" NOT NULL,
  sample_size bigint NOT NULL,
  success_score_mean double precision NOT NULL,
  success_score_count bigint NOT NULL,
  sum_cost_pusd bigint NOT NULL,
  sum_latency_ms double precision NOT NULL,
  pricing_version_last text COLLATE "C" NOT NULL,
  last_updated_at bigint NOT NULL,
  PRIMARY KEY (fingerprint_id, primary_model),
  FOREIGN KEY (fingerprint_id) REFERENCES pattern_fingerprints(id) ON DELETE CASCADE
);

CREATE TABLE pattern_turns (
  turn_id text COLLATE "C" PRIMARY KEY,
  session_id text COLLATE "C" NOT NULL,
  workspace_path text COLLATE "C" NOT NULL,
  fingerprint_id text COLLATE "C" NOT NULL,
  primary_model text COLLATE "C" NOT NULL,
  score double precision,
  recorded_at bigint NOT NULL,
  FOREIGN KEY (fingerprint_id,primary_model) REFERENCES pattern_outcomes(fingerprint_id,primary_model) ON DELETE CASCADE
);
CREATE INDEX pattern_turns_outcome ON pattern_turns (fingerprint_id, primary_model, recorded_at);

CREATE VIEW llm_calls AS
SELECT c.seq, c.event_id, c.ts_ms, c.session_key, s.session_id, s.root_session_id, s.parent_key,
  CASE WHEN s.is_worker = 1 THEN s.parent_key END AS parent_session_id, s.is_worker, c.turn_id, s.workspace_hash,
  c.model, c.provider, c.pricing_version, c.purpose, c.input_tokens, c.cached_input_tokens,
  c.cache_creation_input_tokens, c.cache_creation_1h_input_tokens, c.output_tokens, c.reasoning_tokens,
  c.usage_estimated, c.priced, c.cancelled, s.delegation_tier, s.worker_name, s.delegated_by_model, c.latency_ms,
  c.cost_pusd, s.door, s.caller
FROM ledger_calls c LEFT JOIN ledger_sessions s ON s.session_key = c.session_key;

CREATE VIEW session_hours AS
SELECT r.hour, s.session_id, s.root_session_id, s.parent_key, s.is_worker, s.delegation_tier, s.worker_name,
  s.workspace_hash, r.model, r.provider, r.calls, r.unpriced_calls, r.latency_sum, r.latency_n, r.input_tokens,
  r.cached_input_tokens, r.cache_creation_input_tokens, r.cache_creation_1h_input_tokens, r.output_tokens,
  r.reasoning_tokens, r.cost_pusd, s.door, s.caller
FROM rollup_session_hour r LEFT JOIN ledger_sessions s ON s.session_key = r.session_key;

CREATE TABLE nodes (
  id text COLLATE "C" PRIMARY KEY,
  name text COLLATE "C" NOT NULL,
  url text COLLATE "C" NOT NULL,
  version text COLLATE "C" NOT NULL,
  places text[] NOT NULL,
  draining boolean NOT NULL DEFAULT false,
  turns bigint NOT NULL DEFAULT 0,
  config_hash text COLLATE "C" NOT NULL,
  started_at timestamptz NOT NULL DEFAULT now(),
  lease_until timestamptz NOT NULL
);

-- Updated with each commit: room on the page keeps the new version beside the old one.
CREATE TABLE trees (
  root_session_id text COLLATE "C" PRIMARY KEY,
  owner_node text COLLATE "C",
  owner_epoch bigint NOT NULL DEFAULT 0,
  seq bigint NOT NULL DEFAULT 0,
  last_id text COLLATE "C" NOT NULL,
  wanted boolean NOT NULL DEFAULT false,
  place text COLLATE "C" NOT NULL,
  pruned_through_id text COLLATE "C"
) WITH (fillfactor = 50);
CREATE INDEX trees_owner ON trees (owner_node) WHERE owner_node IS NOT NULL;
CREATE INDEX trees_wanted ON trees (root_session_id) WHERE wanted AND owner_node IS NULL;

CREATE TABLE day_allowances (
  day bigint NOT NULL,
  node_id text COLLATE "C" NOT NULL,
  open_pusd bigint NOT NULL,
  PRIMARY KEY (day, node_id)
);
