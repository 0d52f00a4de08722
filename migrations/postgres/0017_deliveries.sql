-- Results of background workers, until and after the turns that own the workers have read them (20 §9).
CREATE TABLE deliveries (
  id text COLLATE "C" PRIMARY KEY,
  session_id text COLLATE "C" NOT NULL,
  turn_id text COLLATE "C" NOT NULL,
  worker_session_id text COLLATE "C" NOT NULL,
  created_at bigint NOT NULL,
  read_by text COLLATE "C",
  delivered_at bigint,
  message_id text COLLATE "C",
  FOREIGN KEY (session_id) REFERENCES sessions(id),
  FOREIGN KEY (turn_id) REFERENCES turns(id)
);
CREATE UNIQUE INDEX deliveries_worker ON deliveries (worker_session_id);
CREATE INDEX deliveries_waiting ON deliveries (turn_id, id) WHERE delivered_at IS NULL;
CREATE INDEX deliveries_session ON deliveries (session_id);
