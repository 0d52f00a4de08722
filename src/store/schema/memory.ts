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

/** Workers that live as long as their root session (13 §3.4). */
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
  },
  (t) => [primaryKey({ columns: [t.workspace_path, t.path] })],
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
    sample_size: integer().notNull(),
    success_score_mean: real().notNull(),
    success_score_count: integer().notNull(),
    sum_cost_pusd: integer().notNull(),
    sum_latency_ms: real().notNull(),
    pricing_version_last: text().notNull(),
    last_updated_at: integer().notNull(),
  },
  (t) => [primaryKey({ columns: [t.fingerprint_id, t.primary_model] })],
);

export const pattern_turns = sqliteTable(
  'pattern_turns',
  {
    turn_id: text().primaryKey().notNull(),
    fingerprint_id: text().notNull(),
    primary_model: text().notNull(),
    score: real(),
    recorded_at: integer().notNull(),
  },
  (t) => [
    index('pattern_turns_outcome').on(t.fingerprint_id, t.primary_model, t.recorded_at),
    foreignKey({
      columns: [t.fingerprint_id, t.primary_model],
      foreignColumns: [pattern_outcomes.fingerprint_id, pattern_outcomes.primary_model],
    }).onDelete('cascade'),
  ],
);
