-- Forecasts of turns, and what their trees cost (21 §1); limits above which delegations are confirmed.
CREATE TABLE tree_costs (
  id text COLLATE "C" PRIMARY KEY,
  workspace_path text COLLATE "C" NOT NULL,
  is_worker bigint NOT NULL,
  shape_sig text COLLATE "C" NOT NULL,
  model text COLLATE "C" NOT NULL,
  cost_pusd bigint NOT NULL,
  forecast_json text COLLATE "C",
  ended_at bigint NOT NULL,
  CONSTRAINT tree_costs_worker CHECK (is_worker IN (0, 1))
);
CREATE INDEX tree_costs_shape ON tree_costs (shape_sig, model, is_worker, ended_at);
CREATE INDEX tree_costs_newest ON tree_costs (ended_at);
ALTER TABLE sessions ADD confirm_above_usd text COLLATE "C";
ALTER TABLE sessions ADD confirm_above_workers bigint;
ALTER TABLE turns ADD shape_sig text COLLATE "C";
ALTER TABLE turns ADD forecast_json text COLLATE "C";
