// Tables of memory beyond a turn: compaction checkpoints, session workers, learned patterns (01 §11.3).
import { sql } from 'drizzle-orm';
import {
  check,
  foreignKey,
  index,
  integer,
  primaryKey,
  real,
  sqliteTable,
  text,
  uniqueIndex,
} from 'drizzle-orm/sqlite-core';
import { sessions } from './conversation.ts';

/** Insert-only; the request view is messages plus checkpoints (10 §7). */
export const compaction_checkpoints = sqliteTable(
  'compaction_checkpoints',
  {
    id: text().primaryKey().notNull(),
    session_id: text()
      .notNull()
      .references(() => sessions.id),
    kind: text().notNull(),
    message_ids_json: text(),
    through_message_id: text(),
    summary_text: text(),
    tokens_before: integer().notNull(),
    tokens_after: integer().notNull(),
    model: text(),
    created_at: integer().notNull(),
  },
  (t) => [
    index('compaction_checkpoints_session').on(t.session_id, t.id),
    check('compaction_checkpoints_kind', sql`kind IN ('elide', 'summary')`),
  ],
);

/** Checkpoints of the messages that forks begin with, copied with them (21 §4). */
export const fork_checkpoints = sqliteTable(
  'fork_checkpoints',
  {
    fork_session_id: text()
      .notNull()
      .references(() => sessions.id),
    position: integer().notNull(),
    id: text().notNull(),
    session_id: text().notNull(),
    kind: text().notNull(),
    message_ids_json: text(),
    through_message_id: text(),
    summary_text: text(),
    tokens_before: integer().notNull(),
    tokens_after: integer().notNull(),
    model: text(),
    created_at: integer().notNull(),
  },
  (t) => [primaryKey({ columns: [t.fork_session_id, t.position] })],
);

/** The workspace in which a recorded session began (21 §3). */
export const case_starts = sqliteTable('case_starts', {
  session_id: text()
    .primaryKey()
    .notNull()
    .references(() => sessions.id),
  start_json: text().notNull(),
});

/** The model calls of recorded sessions: each request, and the answer to it (21 §3). */
export const case_calls = sqliteTable(
  'case_calls',
  {
    request_id: text().primaryKey().notNull(),
    session_id: text()
      .notNull()
      .references(() => sessions.id),
    root_session_id: text().notNull(),
    call_json: text().notNull(),
  },
  (t) => [index('case_calls_root').on(t.root_session_id, t.request_id), index('case_calls_session').on(t.session_id)],
);

/** Workers that exist as long as their root session (13 §3.4). */
export const worker_definitions = sqliteTable(
  'worker_definitions',
  {
    root_session_id: text().notNull(),
    name: text().notNull(),
    created_by_session_id: text().notNull(),
    created_by_tool_use_id: text().notNull(),
    yaml: text().notNull(),
    path: text(),
    digest: text().notNull(),
    edited_by_user: integer().notNull(),
    created_at: integer().notNull(),
  },
  (t) => [
    primaryKey({ columns: [t.root_session_id, t.name] }),
    check('worker_definitions_edited_by_user', sql`edited_by_user IN (0, 1)`),
  ],
);

/** Files of workspaces whose bytes a person has trusted (20 §11). */
export const trusted_files = sqliteTable(
  'trusted_files',
  {
    workspace_path: text().notNull(),
    path: text().notNull(),
    sha256: text().notNull(),
    trusted_by: text().notNull(),
    trusted_at: integer().notNull(),
    content: text(),
  },
  (t) => [primaryKey({ columns: [t.workspace_path, t.path] })],
);

/** Worktrees of workers, and the trees that were recorded of them (20 §2). */
export const worktrees = sqliteTable(
  'worktrees',
  {
    session_id: text().primaryKey().notNull(),
    caller_path: text().notNull(),
    repository: text().notNull(),
    folder: text().notNull(),
    tree_path: text().notNull(),
    base_tree: text().notNull(),
    result_tree: text(),
    merged_from: text(),
    merged_tree: text(),
    applied: integer(),
    created_at: integer().notNull(),
  },
  () => [check('worktrees_applied', sql`applied IN (0, 1)`)],
);

/** Runs of a delegation's check on what its worker left (20 §10). */
export const delegation_attempts = sqliteTable(
  'delegation_attempts',
  {
    tool_use_id: text().notNull(),
    attempt: integer().notNull(),
    worker_session_id: text().notNull(),
    turn_id: text().notNull(),
    rung: text(),
    check_name: text().notNull(),
    result_tree: text(),
    process_group: integer(),
    passed: integer(),
    exit_code: integer(),
    output: text(),
    protected_json: text().notNull(),
    wall_time_seconds: real().notNull(),
    started_at: integer().notNull(),
    ended_at: integer(),
  },
  (t) => [
    primaryKey({ columns: [t.tool_use_id, t.attempt] }),
    index('delegation_attempts_worker').on(t.worker_session_id),
    index('delegation_attempts_open').on(t.tool_use_id).where(sql`ended_at IS NULL`),
    check('delegation_attempts_passed', sql`passed IN (0, 1)`),
  ],
);

/** What turns cost with all their workers, and what delegations did: the history of forecasts (21 §1). */
export const tree_costs = sqliteTable(
  'tree_costs',
  {
    // The turn, or the worker's session.
    id: text().primaryKey().notNull(),
    workspace_path: text().notNull(),
    is_worker: integer().notNull(),
    shape_sig: text().notNull(),
    model: text().notNull(),
    cost_pusd: integer().notNull(),
    // Of a turn that had one.
    forecast_json: text(),
    ended_at: integer().notNull(),
  },
  (t) => [
    index('tree_costs_shape').on(t.shape_sig, t.model, t.is_worker, t.ended_at),
    index('tree_costs_newest').on(t.ended_at),
    check('tree_costs_worker', sql`is_worker IN (0, 1)`),
  ],
);

export const pattern_fingerprints = sqliteTable(
  'pattern_fingerprints',
  {
    id: text().primaryKey().notNull(),
    workspace_path: text().notNull(),
    structural_json: text().notNull(),
    structural_sig: text().notNull(),
    created_at: integer().notNull(),
  },
  (t) => [
    uniqueIndex('pattern_fingerprints_sig').on(t.workspace_path, t.structural_sig),
    index('pattern_fingerprints_newest').on(t.workspace_path, t.id),
  ],
);

export const pattern_outcomes = sqliteTable(
  'pattern_outcomes',
  {
    fingerprint_id: text()
      .notNull()
      .references(() => pattern_fingerprints.id, { onDelete: 'cascade' }),
    primary_model: text().notNull(),
    is_worker: integer().notNull(),
    sample_size: integer().notNull(),
    success_score_mean: real().notNull(),
    success_score_count: integer().notNull(),
    sum_cost_pusd: integer().notNull(),
    sum_latency_ms: real().notNull(),
    pricing_version_last: text().notNull(),
    last_updated_at: integer().notNull(),
    cost_count: integer().notNull(),
    verified_mean: real().notNull(),
    verified_count: integer().notNull(),
  },
  (t) => [primaryKey({ columns: [t.fingerprint_id, t.primary_model, t.is_worker] })],
);

export const pattern_turns = sqliteTable(
  'pattern_turns',
  {
    turn_id: text().primaryKey().notNull(),
    fingerprint_id: text().notNull(),
    primary_model: text().notNull(),
    is_worker: integer().notNull(),
    score: real(),
    is_verified: integer().notNull(),
    has_cost: integer().notNull(),
    recorded_at: integer().notNull(),
  },
  (t) => [
    index('pattern_turns_outcome').on(t.fingerprint_id, t.primary_model, t.is_worker, t.recorded_at),
    foreignKey({
      columns: [t.fingerprint_id, t.primary_model, t.is_worker],
      foreignColumns: [pattern_outcomes.fingerprint_id, pattern_outcomes.primary_model, pattern_outcomes.is_worker],
    }).onDelete('cascade'),
  ],
);
