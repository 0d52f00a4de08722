-- The effort of turns and of calls (22 §1); '' and NULL = the model has none.
ALTER TABLE turns ADD chosen_effort text COLLATE "C";
ALTER TABLE ledger_calls ADD effort text COLLATE "C" NOT NULL DEFAULT '';
CREATE OR REPLACE VIEW llm_calls AS
SELECT c.seq, c.event_id, c.ts_ms, c.session_key, s.session_id, s.root_session_id, s.parent_key,
  CASE WHEN s.is_worker = 1 THEN s.parent_key END AS parent_session_id, s.is_worker, c.turn_id, s.workspace_hash,
  c.model, c.provider, c.pricing_version, c.purpose, c.input_tokens, c.cached_input_tokens,
  c.cache_creation_input_tokens, c.cache_creation_1h_input_tokens, c.output_tokens, c.reasoning_tokens,
  c.usage_estimated, c.priced, c.cancelled, s.delegation_tier, s.worker_name, s.delegated_by_model, c.latency_ms,
  c.cost_pusd, s.door, s.caller, c.effort
FROM ledger_calls c LEFT JOIN ledger_sessions s ON s.session_key = c.session_key;
