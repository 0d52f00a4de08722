-- Sessions that begin with messages of another one (21 §4), and what a recorded session needs to run again (21 §3).
ALTER TABLE sessions ADD forked_from_session_id text COLLATE "C";
ALTER TABLE sessions ADD forked_from_message_id text COLLATE "C";
ALTER TABLE sessions ADD has_workspace bigint NOT NULL DEFAULT 1;
ALTER TABLE sessions ADD record_case bigint NOT NULL DEFAULT 0;
CREATE INDEX sessions_forked ON sessions (forked_from_session_id) WHERE forked_from_session_id IS NOT NULL;
CREATE TABLE fork_messages (
  fork_session_id text COLLATE "C" NOT NULL REFERENCES sessions (id),
  position bigint NOT NULL,
  id text COLLATE "C" NOT NULL,
  session_id text COLLATE "C" NOT NULL,
  turn_id text COLLATE "C",
  role text COLLATE "C" NOT NULL,
  status text COLLATE "C" NOT NULL,
  created_at bigint NOT NULL,
  metadata_json text COLLATE "C" NOT NULL,
  content_json text COLLATE "C" NOT NULL,
  provider_raw_json text COLLATE "C",
  PRIMARY KEY (fork_session_id, position)
);
CREATE TABLE fork_checkpoints (
  fork_session_id text COLLATE "C" NOT NULL REFERENCES sessions (id),
  position bigint NOT NULL,
  id text COLLATE "C" NOT NULL,
  session_id text COLLATE "C" NOT NULL,
  kind text COLLATE "C" NOT NULL,
  message_ids_json text COLLATE "C",
  through_message_id text COLLATE "C",
  summary_text text COLLATE "C",
  tokens_before bigint NOT NULL,
  tokens_after bigint NOT NULL,
  model text COLLATE "C",
  created_at bigint NOT NULL,
  PRIMARY KEY (fork_session_id, position)
);
CREATE TABLE case_starts (
  session_id text COLLATE "C" PRIMARY KEY REFERENCES sessions (id),
  start_json text COLLATE "C" NOT NULL
);
CREATE TABLE case_calls (
  request_id text COLLATE "C" PRIMARY KEY,
  session_id text COLLATE "C" NOT NULL REFERENCES sessions (id),
  root_session_id text COLLATE "C" NOT NULL,
  call_json text COLLATE "C" NOT NULL
);
CREATE INDEX case_calls_root ON case_calls (root_session_id, request_id);
CREATE INDEX case_calls_session ON case_calls (session_id);
