// Statements of a purge and of pruning (01 §7.4, 02 §6).
import { JournalConflict } from '#core/ports/journal-writer.ts';
import { AppError } from '#protocol/errors.ts';
import { COPY_CHECKPOINTS, COPY_MESSAGES, OPEN_FOREIGN_FORKS } from '../schema/fork-prefix.ts';
import { LAST_PURGE, SET_META, TURN_IS_OPEN, TURN_T_IS_OPEN, WITH_TREE } from '../schema/words.ts';
import { unlearnTurns } from './patterns.ts';
import type { Tx } from './transaction.ts';

/** Child tables before their parents, as the foreign keys require; each statement takes the ids of the sessions. */
const DELETIONS = [
  ['tool_calls', 'session_id {in_list}'],
  ['delegations', 'parent_session_id {in_list}'],
  ['deliveries', 'session_id {in_list}'],
  ['confirmations', 'session_id {in_list}'],
  ['worktrees', 'session_id {in_list}'],
  ['delegation_attempts', 'worker_session_id {in_list}'],
  ['fork_messages', 'fork_session_id {in_list}'],
  ['fork_checkpoints', 'fork_session_id {in_list}'],
  ['case_starts', 'session_id {in_list}'],
  ['case_calls', 'session_id {in_list}'],
  ['worker_definitions', 'root_session_id {in_list}'],
  ['compaction_checkpoints', 'session_id {in_list}'],
  ['event_rows', 'session_key IN (SELECT session_key FROM event_sessions WHERE session_id {in_list})'],
  ['event_sessions', 'session_id {in_list}'],
  ['idempotency_keys', 'session_id {in_list}'],
  ['turn_inputs', 'session_id {in_list}'],
  ['messages', 'session_id {in_list}'],
  ['tree_costs', 'id IN (SELECT id FROM turns WHERE session_id {in_list})'],
  ['tree_costs', 'id {in_list}'],
  ['turns', 'session_id {in_list}'],
  ['sessions', 'id {in_list}'],
].map(([table, where]) => `DELETE FROM ${table} WHERE ${where}`);

export const TREE = `${WITH_TREE}
  SELECT s.id, s.is_worker, tree.depth,
    EXISTS (SELECT 1 FROM turns t WHERE t.session_id = s.id AND ${TURN_IS_OPEN}) AS open
  FROM tree {join_in_order} sessions s ON s.id = tree.id`;

export interface TreeRow {
  readonly id: string;
  readonly is_worker: number;
  readonly depth: number;
  readonly open: number;
}

/** The ids to delete; throws where they must not be deleted. */
export function checkPurge(sessionId: string, rows: readonly TreeRow[]): readonly string[] {
  if (rows.some((row) => row.depth === 0 && row.is_worker === 1)) {
    throw new AppError('session_is_worker', 'a worker session goes with its planner; purge the planner');
  }
  if (rows.some((row) => row.open === 1)) {
    throw new JournalConflict('turn_in_flight', `session ${sessionId} or a worker of it has a turn that runs`);
  }
  return rows.map((row) => row.id);
}

const KEEP_RUNS = `INSERT INTO purged_runs (experiment_id, session_id)
  SELECT experiment_id, id FROM sessions WHERE id {in_list} AND experiment_id IS NOT NULL AND is_worker = 0`;

/** Deletes the rows of sessions: everything but their cost facts and rollups, and what was learned of them. */
export function deleteSessions(tx: Tx, sessionIds: readonly string[]): void {
  const ids = JSON.stringify(sessionIds);
  unlearnTurns(tx, ids);
  copyIntoForks(tx, ids);
  tx.run(KEEP_RUNS, [ids]);
  for (const deletion of DELETIONS) tx.run(deletion, [ids]);
  tx.run(SET_META, { key: LAST_PURGE, value: sessionIds[0] });
}

// Pruning deletes old events, except those of trees with an open turn.

export const SLICE_ROWS = 5000;

export interface OldEvent {
  readonly id: string;
  readonly timestamp_ms: number;
}

const BUSY_KEYS = `SELECT k.session_key FROM sessions s JOIN event_sessions k ON k.session_id = s.id WHERE s.root_session_id IN (
  SELECT r.root_session_id FROM turns t JOIN sessions r ON r.id = t.session_id WHERE ${TURN_T_IS_OPEN})`;
export const OLD = `
  SELECT id, timestamp_ms FROM event_rows
  WHERE timestamp_ms < ? AND (timestamp_ms, id) > (?, ?) AND session_key NOT IN (${BUSY_KEYS})
  ORDER BY timestamp_ms, id LIMIT ${SLICE_ROWS}`;
export const SKIPPED = `
  SELECT count(*) AS n FROM (${BUSY_KEYS}) AS b
  WHERE EXISTS (SELECT 1 FROM event_rows e WHERE e.session_key = b.session_key AND e.timestamp_ms < ?)`;
export const OLDEST_KEPT = `
  SELECT min(t) AS t FROM (
    SELECT min(timestamp_ms) AS t FROM event_rows WHERE timestamp_ms >= ?
    UNION ALL SELECT min(timestamp_ms) FROM event_rows WHERE session_key IN (${BUSY_KEYS})) AS kept`;

/** A fork that is being stored at this moment is stored first, or not at all. */
const LOCK = 'SELECT id FROM sessions WHERE id {in_list} {lock_rows}';

/**
 * Throws `fork_open` where another owner's fork would lose its messages.
 * @param sessionIds JSON text of the sessions that are about to be deleted
 */
export function copyIntoForks(tx: Tx, sessionIds: string): void {
  tx.run(LOCK, [sessionIds]);
  tx.run(OPEN_FOREIGN_FORKS, [sessionIds], ({ rows }) => {
    if (rows.length > 0) throw new JournalConflict('fork_open', 'a fork of another owner has not ended');
  });
  tx.run(COPY_MESSAGES, [sessionIds]);
  tx.run(COPY_CHECKPOINTS, [sessionIds]);
}
