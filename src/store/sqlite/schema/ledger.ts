// Tables of what happened and what it cost: events, the ledger, its rollups, price versions, request keys (01 §11.3).
import { sql } from 'drizzle-orm';
import { check, index, integer, primaryKey, sqliteTable, text } from 'drizzle-orm/sqlite-core';
import { PurposeSchema } from '../../../domain/event/llm.ts';
import { ActorSchema, SensitivitySchema } from '../../../domain/event.ts';
import { REPORTED_TYPES } from './words.ts';

function list(values: readonly string[]) {
  return sql.raw(values.map((v) => `'${v}'`).join(', '));
}

/** No foreign keys: `system` is no session, and pruning keeps other rows than purging. */
export const events = sqliteTable(
  'events',
  {
    id: text().primaryKey().notNull(),
    timestamp_ms: integer().notNull(),
    session_id: text().notNull(),
    turn_id: text(),
    parent_event_id: text(),
    type: text().notNull(),
    actor: text().notNull(),
    sensitivity: text().notNull(),
    payload_json: text().notNull(),
  },
  (t) => [
    index('events_session').on(t.session_id, t.id),
    // Only what reports count: every index costs each event, and SQLite sees `a = 1` in an OR but not in an IN.
    index('events_reported')
      .on(t.type, t.timestamp_ms)
      .where(sql.raw(REPORTED_TYPES.map((type) => `type = '${type}'`).join(' OR '))),
    index('events_turn').on(t.turn_id, t.id),
    index('events_time').on(t.timestamp_ms),
    check('events_actor', sql`actor IN (${list(ActorSchema.options)})`),
    check('events_sensitivity', sql`sensitivity IN (${list(SensitivitySchema.options)})`),
  ],
);

/** The ledger: insert-only, without content; a purge and pruning leave it alone. */
export const llm_calls = sqliteTable(
  'llm_calls',
  {
    event_id: text().primaryKey().notNull(),
    ts_ms: integer().notNull(),
    session_id: text().notNull(),
    root_session_id: text().notNull(),
    parent_key: text().notNull(),
    parent_session_id: text(),
    is_worker: integer().notNull(),
    turn_id: text(),
    workspace_hash: text().notNull(),
    model: text().notNull(),
    provider: text().notNull(),
    pricing_version: text().notNull(),
    purpose: text().notNull(),
    input_tokens: integer().notNull(),
    cached_input_tokens: integer().notNull(),
    cache_creation_input_tokens: integer().notNull(),
    cache_creation_1h_input_tokens: integer().notNull(),
    output_tokens: integer().notNull(),
    reasoning_tokens: integer().notNull(),
    usage_estimated: integer().notNull(),
    priced: integer().notNull(),
    cancelled: integer().notNull(),
    delegation_tier: text().notNull(),
    worker_name: text().notNull(),
    delegated_by_model: text().notNull(),
    latency_ms: integer(),
    cost_pusd: integer().notNull(),
  },
  (t) => [
    index('llm_calls_time').on(t.ts_ms),
    index('llm_calls_session').on(t.session_id, t.ts_ms),
    index('llm_calls_turn').on(t.turn_id),
    check('llm_calls_purpose', sql`purpose IN (${list(PurposeSchema.options)})`),
    check(
      'llm_calls_flags',
      sql`is_worker IN (0, 1) AND usage_estimated IN (0, 1) AND priced IN (0, 1) AND cancelled IN (0, 1)`,
    ),
  ],
);

const measures = {
  calls: integer().notNull(),
  unpriced_calls: integer().notNull(),
  latency_sum: integer().notNull(),
  latency_n: integer().notNull(),
  input_tokens: integer().notNull(),
  cached_input_tokens: integer().notNull(),
  cache_creation_input_tokens: integer().notNull(),
  cache_creation_1h_input_tokens: integer().notNull(),
  output_tokens: integer().notNull(),
  reasoning_tokens: integer().notNull(),
  cost_pusd: integer().notNull(),
};

/** `hour` counts from the epoch, UTC. Key columns use '' for none: two NULLs would never conflict in an upsert. */
export const rollup_session_hour = sqliteTable(
  'rollup_session_hour',
  {
    hour: integer().notNull(),
    session_id: text().notNull(),
    model: text().notNull(),
    parent_key: text().notNull(),
    root_session_id: text().notNull(),
    is_worker: integer().notNull(),
    delegation_tier: text().notNull(),
    worker_name: text().notNull(),
    workspace_hash: text().notNull(),
    provider: text().notNull(),
    ...measures,
  },
  (t) => [
    primaryKey({ columns: [t.hour, t.session_id, t.model] }),
    index('rollup_session_hour_parent').on(t.parent_key, t.hour),
    index('rollup_session_hour_session').on(t.session_id, t.hour),
    index('rollup_session_hour_root').on(t.root_session_id),
  ],
);

/** `day` counts from the epoch, UTC. */
export const rollup_parent_day = sqliteTable(
  'rollup_parent_day',
  {
    day: integer().notNull(),
    parent_key: text().notNull(),
    is_worker: integer().notNull(),
    delegation_tier: text().notNull(),
    worker_name: text().notNull(),
    model: text().notNull(),
    root_session_id: text().notNull(),
    workspace_hash: text().notNull(),
    provider: text().notNull(),
    ...measures,
  },
  (t) => [primaryKey({ columns: [t.day, t.parent_key, t.is_worker, t.delegation_tier, t.worker_name, t.model] })],
);

export const idempotency_keys = sqliteTable(
  'idempotency_keys',
  {
    method: text().notNull(),
    path: text().notNull(),
    token_hash: text().notNull(),
    key: text().notNull(),
    session_id: text(),
    body_hash: text().notNull(),
    status: integer().notNull(),
    response_json: text().notNull(),
    expires_at: integer().notNull(),
  },
  (t) => [
    primaryKey({ columns: [t.method, t.path, t.token_hash, t.key] }),
    index('idempotency_keys_expiry').on(t.expires_at),
  ],
);

export const price_versions = sqliteTable('price_versions', {
  version: text().primaryKey().notNull(),
  content_hash: text().notNull(),
  source: text().notNull(),
  models_json: text().notNull(),
  created_at: integer().notNull(),
});

/** `pruned_through_id`, the learning cursor, the daily budget warning. */
export const meta = sqliteTable('meta', { key: text().primaryKey().notNull(), value: text().notNull() });
