// Fills the ledger of a data folder with calls of many trees, by plain SQL; the rollups are made of it.
import path from 'node:path';
import Database from 'better-sqlite3';
import { rebuildRollups } from '#store/sqlite/write/sqlite-maintenance.ts';

const DAY_MS = 86_400_000;
const DAYS = 90;

/**
 * @param data a data folder whose database exists, and whose server is not running
 * @param calls spread evenly over the trees, each a planner and four workers, whose calls lie within two hours; the
 *   trees over ninety days until now
 */
export function fillLedger(data, { calls, trees }) {
  const db = new Database(path.join(data, 'metis.db'));
  try {
    db.pragma('synchronous = OFF');
    const perTree = Math.floor(calls / trees);
    const began = Date.now() - DAYS * DAY_MS;
    const apart = Math.floor((DAYS * DAY_MS - 7_200_000) / trees);
    db.prepare(
      `WITH RECURSIVE s(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM s WHERE i < ${trees * 5 - 1}),
        n AS (SELECT i, i / 5 AS tree, i % 5 > 0 AS worker, printf('sess_%026d', i / 5 * 5) AS root FROM s)
      INSERT INTO ledger_sessions (session_key, session_id, root_session_id, parent_key, is_worker, workspace_hash,
      delegation_tier, worker_name, delegated_by_model, door, caller)
      SELECT i + 1, printf('sess_%026d', i), root, root, worker, printf('%064d', tree % 20), iif(worker, 'fast', ''), '',
        iif(worker, 'messages:planner', ''), 'api', ''
      FROM n`,
    ).run();
    db.prepare(
      `WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ${perTree * trees - 1}),
        c AS (SELECT i, i / ${perTree} AS tree, i % 5 AS worker, i % ${perTree} AS step FROM n)
      INSERT INTO ledger_calls (event_id, ts_ms, session_key, turn_id, model, provider, pricing_version, purpose,
        input_tokens, cached_input_tokens, cache_creation_input_tokens, cache_creation_1h_input_tokens, output_tokens,
        reasoning_tokens, usage_estimated, priced, cancelled, latency_ms, cost_pusd)
      SELECT printf('%026d', i), ${began} + tree * ${apart} + step * 17000, tree * 5 + worker + 1,
        printf('turn_%021d', tree * 5 + worker),
        iif(worker = 0, 'messages:planner', 'messages:worker'), 'messages', 'bench', 'turn',
        1000 + i * 7 % 9000, i * 11 % 20000, i * 13 % 3000, 0, 100 + i * 17 % 900, 0, 0, 1, 0, 100 + i * 19 % 5000,
        1000000 * (1 + i * 104729 % 50000)
      FROM c`,
    ).run();
    rebuildRollups(db);
    db.pragma('wal_checkpoint(TRUNCATE)');
  } finally {
    db.close();
  }
}

/**
 * Stores the routing decisions of the newest trees of `fillLedger`, one a turn, with their facts.
 * @param since trees from this one on
 */
export function fillDecisions(data, { trees, since }) {
  const db = new Database(path.join(data, 'metis.db'));
  try {
    const type = db.prepare("SELECT number FROM event_types WHERE type = 'route.decided'").pluck().get();
    const chain = (model) =>
      JSON.stringify([
        { verdict: 'not_applicable', reason: 'no @model in message' },
        { verdict: 'chose', candidate_model: model, reason: 'session sticky model (/model)' },
      ]);
    const payload = (model) =>
      `'{"winner_index":1,"elapsed_ms":0.1,"chain":${chain(model)},"facts":{"estimated_input_tokens":1200}}'`;
    db.pragma('synchronous = OFF');
    db.exec(`INSERT INTO event_sessions SELECT session_key + 1000000, session_id FROM ledger_sessions
      WHERE session_key > ${since * 5} AND session_key <= ${trees * 5}`);
    db.exec(`INSERT INTO event_rows (id, timestamp_ms, session_key, turn_id, type, actor, sensitivity, payload_json)
      SELECT printf('%026d', session_key), MIN(ts_ms), session_key + 1000000, turn_id, ${type}, 2, 1,
        CASE model WHEN 'messages:planner' THEN ${payload('messages:planner')} ELSE ${payload('messages:worker')} END
      FROM ledger_calls WHERE session_key > ${since * 5} AND session_key <= ${trees * 5} GROUP BY session_key, turn_id`);
    db.pragma('wal_checkpoint(TRUNCATE)');
  } finally {
    db.close();
  }
}
