// Tables of events and money: events, the ledger, its rollups, price versions, request keys (01 §11.3).
import { sql } from 'drizzle-orm';
import { check, index, integer, primaryKey, sqliteTable, text } from 'drizzle-orm/sqlite-core';
import { PurposeSchema } from '#protocol/event/turn-events.ts';
import { ACTOR_NUMBERS, isOneOf, quoteWords, REPORTED_TYPES, SENSITIVITY_NUMBERS } from './words.ts';

/**
 * Events, with numbers in place of repeated words, which saves 0.6 kB per turn. `events` is the view with the words;
 * statements that must begin with an index of this table name the table. No foreign keys: `system` is no session, and
 * pruning keeps other rows than purging.
 */
export const event_rows = sqliteTable(
  'event_rows',
  {
    id: text().primaryKey().notNull(),
    timestamp_ms: integer().notNull(),
    session_key: integer().notNull(),
    turn_id: text(),
    parent_event_id: text(),
    type: integer().notNull(),
    actor: integer().notNull(),
    sensitivity: integer().notNull(),
    payload_json: text().notNull(),
  },
  (t) => [
    index('event_rows_session').on(t.session_key, t.id),
    // Only what reports count: every index costs each event, and SQLite sees `a = 1` in an OR but not in an IN.
    index('event_rows_reported')
      .on(t.type, t.timestamp_ms)
      .where(
        sql.raw(
          Object.values(REPORTED_TYPES)
            .map((number) => `type = ${number}`)
            .join(' OR '),
        ),
      ),
    index('event_rows_time').on(t.timestamp_ms),
    check('event_rows_actor', sql.raw(isOneOf('actor', Object.values(ACTOR_NUMBERS)))),
    check('event_rows_sensitivity', sql.raw(`sensitivity IN (${Object.values(SENSITIVITY_NUMBERS).join(', ')})`)),
  ],
);

/** Sessions that have events, `system` too; a purge deletes them. */
export const event_sessions = sqliteTable('event_sessions', {
  session_key: integer().primaryKey().notNull(),
  session_id: text().notNull().unique('event_sessions_id'),
});

/** Numbers of the catalogue's types, and of types that this version does not know. Filled when the database is opened. */
export const event_types = sqliteTable('event_types', {
  number: integer().primaryKey().notNull(),
  type: text().notNull().unique('event_types_type'),
});

/**
 * The fields that all calls of a session share, stored once; they are fixed at the session's creation. A purge
 * and pruning leave them unchanged. `llm_calls` and `session_hours` are views that join them with calls and hours.
 */
export const ledger_sessions = sqliteTable(
  'ledger_sessions',
  {
    session_key: integer().primaryKey().notNull(),
    session_id: text().notNull().unique('ledger_sessions_id'),
    root_session_id: text().notNull(),
    parent_key: text().notNull(),
    is_worker: integer().notNull(),
    workspace_hash: text().notNull(),
    delegation_tier: text().notNull(),
    worker_name: text().notNull(),
    delegated_by_model: text().notNull(),
    door: text().notNull(),
    caller: text().notNull(),
    owner: text().notNull().default(''),
    share: text().notNull().default('read'),
  },
  (t) => [
    index('ledger_sessions_root').on(t.root_session_id),
    index('ledger_sessions_parent').on(t.parent_key),
    check('ledger_sessions_flags', sql`is_worker IN (0, 1)`),
  ],
);

/** Runs of experiments that were purged: their money stays in the sum of the experiment (21 §5). */
export const purged_runs = sqliteTable(
  'purged_runs',
  {
    experiment_id: text().notNull(),
    session_id: text().notNull(),
  },
  (t) => [primaryKey({ columns: [t.experiment_id, t.session_id] })],
);

/** The ledger: insert-only, without content; a purge and pruning leave it alone. Read through `llm_calls`. */
export const ledger_calls = sqliteTable(
  'ledger_calls',
  {
    seq: integer().primaryKey().notNull(),
    event_id: text().notNull().unique('ledger_calls_event'),
    ts_ms: integer().notNull(),
    session_key: integer().notNull(),
    turn_id: text(),
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
    latency_ms: integer(),
    cost_pusd: integer().notNull(),
    effort: text().notNull().default(''),
    // NULL for a call that is billed for one sampling alone, at the standard rates.
    fees_pusd: integer(),
    surcharge_pusd: integer(),
    fees_unpriced: integer(),
    surcharge_unknown: integer(),
    rounds_unknown: integer(),
    bill_json: text(),
  },
  (t) => [
    index('ledger_calls_time').on(t.ts_ms),
    index('ledger_calls_billed').on(t.ts_ms).where(sql`bill_json IS NOT NULL`),
    index('ledger_calls_session').on(t.session_key, t.ts_ms),
    index('ledger_calls_turn').on(t.turn_id),
    check('ledger_calls_purpose', sql.raw(isOneOf('purpose', quoteWords(PurposeSchema.options)))),
    check('ledger_calls_flags', sql`usage_estimated IN (0, 1) AND priced IN (0, 1) AND cancelled IN (0, 1)`),
  ],
);

/** The samplings of calls that have several; written with the call. */
export const llm_call_rounds = sqliteTable(
  'llm_call_rounds',
  {
    event_id: text().notNull(),
    seq: integer().notNull(),
    kind: text().notNull(),
    model: text().notNull(),
    input_tokens: integer().notNull(),
    cached_input_tokens: integer().notNull(),
    cache_creation_input_tokens: integer().notNull(),
    cache_creation_1h_input_tokens: integer().notNull(),
    output_tokens: integer().notNull(),
    reasoning_tokens: integer().notNull(),
    cost_pusd: integer().notNull(),
    priced: integer().notNull(),
    billed: integer().notNull(),
  },
  (t) => [primaryKey({ columns: [t.event_id, t.seq] })],
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

/**
 * `hour` counts from the epoch, UTC. Key columns use '' for none: two NULLs would never conflict in an upsert. Read
 * through `session_hours`, except by the statements that write it.
 */
export const rollup_session_hour = sqliteTable(
  'rollup_session_hour',
  {
    hour: integer().notNull(),
    session_key: integer().notNull(),
    model: text().notNull(),
    provider: text().notNull(),
    ...measures,
  },
  (t) => [
    primaryKey({ columns: [t.hour, t.session_key, t.model] }),
    index('rollup_session_hour_session').on(t.session_key, t.hour),
  ],
);

/** Sums of what is billed beside the tokens; calls without it add no row. Read through `bill_hours`. */
export const rollup_bill_hour = sqliteTable(
  'rollup_bill_hour',
  {
    hour: integer().notNull(),
    session_key: integer().notNull(),
    model: text().notNull(),
    provider: text().notNull(),
    fees_pusd: integer().notNull(),
    surcharge_pusd: integer().notNull(),
    fees_unpriced_calls: integer().notNull(),
    surcharge_unknown_calls: integer().notNull(),
    rounds_unknown_calls: integer().notNull(),
  },
  (t) => [
    primaryKey({ columns: [t.hour, t.session_key, t.model] }),
    index('rollup_bill_hour_session').on(t.session_key, t.hour),
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
  (t) => [
    primaryKey({ columns: [t.day, t.parent_key, t.is_worker, t.delegation_tier, t.worker_name, t.model] }),
    index('rollup_parent_day_parent').on(t.parent_key, t.day),
  ],
);

/** `day` counts from the epoch, UTC; `prompt_class` counts the sizes of `PROMPT_CLASSES` that prompts are above, or is `BILLED_APART`. */
export const rollup_day = sqliteTable(
  'rollup_day',
  {
    day: integer().notNull(),
    is_worker: integer().notNull(),
    delegation_tier: text().notNull(),
    worker_name: text().notNull(),
    workspace_hash: text().notNull(),
    model: text().notNull(),
    delegated_by_model: text().notNull(),
    prompt_class: integer().notNull(),
    provider: text().notNull(),
    ...measures,
    billed_1h_tokens: integer().notNull(),
  },
  (t) => [
    primaryKey({
      columns: [
        t.day,
        t.is_worker,
        t.delegation_tier,
        t.worker_name,
        t.workspace_hash,
        t.model,
        t.delegated_by_model,
        t.prompt_class,
      ],
    }),
  ],
);

/** Sums over all time, by which trees are ordered by cost. */
export const rollup_parent = sqliteTable(
  'rollup_parent',
  {
    parent_key: text().notNull().primaryKey(),
    calls: integer().notNull(),
    input_tokens: integer().notNull(),
    cached_input_tokens: integer().notNull(),
    cache_creation_input_tokens: integer().notNull(),
    output_tokens: integer().notNull(),
    cost_pusd: integer().notNull(),
  },
  (t) => [index('rollup_parent_cost').on(sql`cost_pusd DESC`, t.parent_key)],
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
