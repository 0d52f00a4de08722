// Tables of sessions, their turns, messages and tool calls (01 §11.3).
import { sql } from 'drizzle-orm';
import {
  type AnySQLiteColumn,
  check,
  index,
  integer,
  primaryKey,
  real,
  sqliteTable,
  text,
  uniqueIndex,
} from 'drizzle-orm/sqlite-core';
import { DecisionSchema, ResolvedBySchema, ScopeSchema } from '#protocol/confirmation.ts';
import { ContextModeSchema, DelegationStatusSchema, FailureModeSchema } from '#protocol/delegate.ts';
import { MessageStatusSchema, RoleSchema, RoutingModeSchema } from '#protocol/message.ts';
import { ShareSchema } from '#protocol/people/person.ts';
import {
  ApprovalModeSchema,
  DoorSchema,
  ErrorClassSchema,
  OnReachedSchema,
  TierSchema,
  WorkerOriginSchema,
} from '#protocol/scalars.ts';
import { DispositionSchema } from '#protocol/session.ts';
import { EntrySchema, ToolCallStatusSchema } from '#protocol/tool.ts';
import {
  CancelReasonSchema,
  InterruptedReasonSchema,
  TurnErrorCodeSchema,
  TurnStatusSchema,
  TurnStopReasonSchema,
} from '#protocol/turn.ts';
import { isOneOf, quoteWords, TURN_IS_OPEN } from './words.ts';

/** CHECK that a column holds one of these values; a NULL passes. */
function checkValues(table: string, column: string, values: readonly string[]) {
  return check(`${table}_${column}`, sql.raw(`${column} IN (${quoteWords(values).join(', ')})`));
}
/** The same for the tables that turns write. */
function restrictWords(table: string, column: string, values: readonly string[]) {
  return check(`${table}_${column}`, sql.raw(isOneOf(column, quoteWords(values))));
}
function flag(table: string, column: string) {
  return check(`${table}_${column}`, sql.raw(`${column} IN (0, 1)`));
}

export const sessions = sqliteTable(
  'sessions',
  {
    id: text().primaryKey().notNull(),
    workspace_path: text().notNull(),
    workspace_hash: text().notNull(),
    active_model: text(),
    pending_active_model: text(),
    routing_policy_version: text(),
    turn_count: integer().notNull().default(0),
    disposition: text(),
    ended_at: integer(),
    parent_session_id: text().references((): AnySQLiteColumn => sessions.id),
    parent_tool_use_id: text(),
    is_worker: integer().notNull().default(0),
    root_session_id: text().notNull(),
    delegation_depth: integer().notNull().default(0),
    delegated_by_model: text(),
    worker_name: text(),
    worker_digest: text(),
    worker_origin: text(),
    allow_workers_json: text(),
    approval_mode: text().notNull(),
    max_cost_pusd: integer(),
    on_reached: text().notNull(),
    budget_warned_pusd: integer(),
    created_at: integer().notNull(),
    updated_at: integer().notNull(),
    // The long texts are last, so that reading the columns above never walks their overflow pages.
    worker_definition_json: text(),
    system_prompt: text(),
    system_prompt_volatile: text(),
    door: text().notNull().default('api'),
    caller: text().notNull().default(''),
    client: text(),
    client_ref: text(),
    tree_path: text(),
    continues_session_id: text(),
    owner: text(),
    share: text().notNull().default('read'),
    forked_from_session_id: text(),
    forked_from_message_id: text(),
    has_workspace: integer().notNull().default(1),
    record_case: integer().notNull().default(0),
    confirm_above_usd: text(),
    confirm_above_workers: integer(),
    // The id beside the whole, for the sum of an experiment's money.
    experiment_id: text(),
    experiment_json: text(),
  },
  (t) => [
    index('sessions_parent').on(t.parent_session_id).where(sql`parent_session_id IS NOT NULL`),
    uniqueIndex('sessions_parent_tool_use').on(t.parent_tool_use_id).where(sql`parent_tool_use_id IS NOT NULL`),
    uniqueIndex('sessions_client').on(t.caller, t.client_ref).where(sql`client_ref IS NOT NULL AND is_worker = 0`),
    uniqueIndex('sessions_client_worker')
      .on(t.root_session_id, t.client_ref)
      .where(sql`client_ref IS NOT NULL AND is_worker = 1`),
    index('sessions_root').on(t.root_session_id),
    index('sessions_newest').on(t.is_worker, sql`id DESC`),
    index('sessions_named').on(t.worker_name, sql`id DESC`).where(sql`worker_name IS NOT NULL`),
    index('sessions_active').on(t.is_worker, t.door).where(sql`ended_at IS NULL`),
    index('sessions_experiment').on(t.experiment_id).where(sql`experiment_id IS NOT NULL`),
    index('sessions_forked').on(t.forked_from_session_id).where(sql`forked_from_session_id IS NOT NULL`),
    check(
      'sessions_worker',
      sql`is_worker = (parent_session_id IS NOT NULL) AND (is_worker AND door <> 'gateway') = (parent_tool_use_id IS NOT NULL)`,
    ),
    check('sessions_end', sql`(ended_at IS NULL) = (disposition IS NULL)`),
    checkValues('sessions', 'disposition', DispositionSchema.options),
    checkValues('sessions', 'worker_origin', WorkerOriginSchema.options),
    checkValues('sessions', 'approval_mode', ApprovalModeSchema.options),
    checkValues('sessions', 'on_reached', OnReachedSchema.options),
    checkValues('sessions', 'door', DoorSchema.options),
    checkValues('sessions', 'share', ShareSchema.options),
  ],
);

export const turns = sqliteTable(
  'turns',
  {
    id: text().primaryKey().notNull(),
    session_id: text()
      .notNull()
      .references(() => sessions.id),
    user_message_id: text().notNull(),
    status: text().notNull(),
    per_message_override: text(),
    chosen_model: text(),
    provider: text(),
    routing_mode: text(),
    stop_reason: text(),
    cancel_reason: text(),
    interrupted_reason: text(),
    error_code: text(),
    error_class: text(),
    error_message: text(),
    retryable: integer(),
    llm_call_count: integer().notNull().default(0),
    tool_call_count: integer().notNull().default(0),
    started_at: integer().notNull(),
    ended_at: integer(),
    wall_time_seconds: real(),
    final_message_id: text(),
    tools_json: text().notNull(),
    fingerprint_json: text(),
    resume_attempts: integer().notNull().default(0),
    user_score_json: text(),
    chosen_effort: text(),
    concluded_at: integer(),
    conclusion_message_id: text(),
    submitted_by: text(),
    shape_sig: text(),
    forecast_json: text(),
  },
  (t) => [
    index('turns_session').on(t.session_id, t.id),
    index('turns_failed').on(t.session_id).where(sql`status = 'failed'`),
    uniqueIndex('turns_open').on(t.session_id).where(sql.raw(TURN_IS_OPEN)),
    restrictWords('turns', 'status', TurnStatusSchema.options),
    restrictWords('turns', 'routing_mode', RoutingModeSchema.options),
    restrictWords('turns', 'stop_reason', TurnStopReasonSchema.options),
    restrictWords('turns', 'cancel_reason', CancelReasonSchema.options),
    checkValues('turns', 'interrupted_reason', InterruptedReasonSchema.options),
    restrictWords('turns', 'error_code', TurnErrorCodeSchema.options),
    restrictWords('turns', 'error_class', ErrorClassSchema.options),
    flag('turns', 'retryable'),
  ],
);

/** Messages sent to a turn that runs, until it has read them (20 §4). */
export const turn_inputs = sqliteTable(
  'turn_inputs',
  {
    id: text().primaryKey().notNull(),
    session_id: text()
      .notNull()
      .references(() => sessions.id),
    turn_id: text()
      .notNull()
      .references(() => turns.id),
    content_json: text().notNull(),
    submitted_at: integer().notNull(),
  },
  (t) => [index('turn_inputs_turn').on(t.turn_id, t.id), index('turn_inputs_session').on(t.session_id)],
);

export const messages = sqliteTable(
  'messages',
  {
    id: text().primaryKey().notNull(),
    session_id: text()
      .notNull()
      .references(() => sessions.id),
    turn_id: text().references(() => turns.id),
    role: text().notNull(),
    status: text().notNull(),
    created_at: integer().notNull(),
    metadata_json: text().notNull(),
    content_json: text().notNull(),
    provider_raw_json: text(),
  },
  (t) => [
    index('messages_session').on(t.session_id, t.id),
    index('messages_turn').on(t.turn_id, t.id),
    restrictWords('messages', 'role', RoleSchema.options),
    restrictWords('messages', 'status', MessageStatusSchema.exclude(['partial']).options),
  ],
);

/** Messages that forks begin with, copied when the session that held them was purged (21 §4). */
export const fork_messages = sqliteTable(
  'fork_messages',
  {
    fork_session_id: text()
      .notNull()
      .references(() => sessions.id),
    position: integer().notNull(),
    id: text().notNull(),
    session_id: text().notNull(),
    turn_id: text(),
    role: text().notNull(),
    status: text().notNull(),
    created_at: integer().notNull(),
    metadata_json: text().notNull(),
    content_json: text().notNull(),
    provider_raw_json: text(),
  },
  (t) => [primaryKey({ columns: [t.fork_session_id, t.position] })],
);

export const tool_calls = sqliteTable(
  'tool_calls',
  {
    id: text().primaryKey().notNull(),
    session_id: text()
      .notNull()
      .references(() => sessions.id),
    turn_id: text()
      .notNull()
      .references(() => turns.id),
    message_id: text()
      .notNull()
      .references(() => messages.id),
    result_message_id: text()
      .unique('tool_calls_result')
      .references(() => messages.id),
    name: text().notNull(),
    status: text().notNull(),
    provider: text().notNull(),
    provider_id: text(),
    created_at: integer().notNull(),
    completed_at: integer(),
    result_json: text(),
    changed_json: text(),
  },
  (t) => [
    index('tool_calls_session').on(t.session_id, t.status),
    index('tool_calls_turn').on(t.turn_id),
    index('tool_calls_message').on(t.message_id),
    restrictWords('tool_calls', 'status', ToolCallStatusSchema.options),
  ],
);

export const delegations = sqliteTable(
  'delegations',
  {
    tool_use_id: text().primaryKey().notNull(),
    parent_session_id: text()
      .notNull()
      .references(() => sessions.id),
    parent_turn_id: text(),
    worker_session_id: text()
      .unique('delegations_worker')
      .references(() => sessions.id),
    entry: text().notNull(),
    worker_name: text(),
    worker_digest: text(),
    tier: text(),
    resolved_model: text(),
    context_mode: text().notNull(),
    context_reference_count: integer().notNull(),
    task_size_tokens: integer().notNull(),
    effective_tools_json: text().notNull(),
    allowed_tool_count: integer().notNull(),
    dropped_tools_json: text().notNull(),
    max_tokens: integer(),
    max_cost_pusd: integer(),
    timeout_seconds: real().notNull(),
    active_seconds: real().notNull(),
    status: text().notNull(),
    failure_mode: text(),
    error_message: text(),
    created_at: integer().notNull(),
    ended_at: integer(),
    output_json: text(),
    request_json: text().notNull(),
    changes_json: text(),
  },
  (t) => [
    index('delegations_parent').on(t.parent_session_id, t.tool_use_id),
    index('delegations_open').on(t.parent_turn_id).where(sql`status IN ('running','interrupted')`),
    checkValues('delegations', 'entry', EntrySchema.options),
    checkValues('delegations', 'tier', TierSchema.options),
    checkValues('delegations', 'context_mode', ContextModeSchema.options),
    checkValues('delegations', 'status', DelegationStatusSchema.options),
    checkValues('delegations', 'failure_mode', FailureModeSchema.options),
  ],
);

/** Results of background workers: stored with the end of their delegations, read by the turns that own the workers (20 §9). */
export const deliveries = sqliteTable(
  'deliveries',
  {
    id: text().primaryKey().notNull(),
    session_id: text()
      .notNull()
      .references(() => sessions.id),
    turn_id: text()
      .notNull()
      .references(() => turns.id),
    worker_session_id: text().notNull().unique('deliveries_worker'),
    created_at: integer().notNull(),
    read_by: text(),
    delivered_at: integer(),
    message_id: text(),
  },
  (t) => [
    index('deliveries_waiting').on(t.turn_id, t.id).where(sql`delivered_at IS NULL`),
    index('deliveries_session').on(t.session_id),
  ],
);

export const confirmations = sqliteTable(
  'confirmations',
  {
    id: text().primaryKey().notNull(),
    session_id: text()
      .notNull()
      .references(() => sessions.id),
    root_session_id: text().notNull(),
    turn_id: text().notNull(),
    tool_use_id: text().notNull(),
    tool_name: text().notNull(),
    rule: text(),
    key_hash: text(),
    request_json: text().notNull(),
    input_json: text().notNull(),
    requested_at: integer().notNull(),
    expires_at: integer().notNull(),
    decision: text(),
    scope: text(),
    reason: text(),
    modified_json: text(),
    resolved_by: text(),
    resolved_at: integer(),
    answered_by: text(),
  },
  (t) => [
    index('confirmations_open').on(t.id).where(sql`decision IS NULL`),
    index('confirmations_granted').on(t.root_session_id, t.key_hash).where(sql`scope = 'identical'`),
    index('confirmations_session').on(t.session_id, t.id),
    checkValues('confirmations', 'decision', DecisionSchema.options),
    checkValues('confirmations', 'scope', ScopeSchema.options),
    checkValues('confirmations', 'resolved_by', ResolvedBySchema.options),
  ],
);
