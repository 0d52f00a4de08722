// Sessions: records for the engine, wire objects with their derived fields for people (01 §7.1).
import type { BudgetView, Session, SessionRecord, SessionStatus } from '../../../domain/session.ts';
import type { SessionId } from '../../../kernel/ids.ts';
import { fromPusd, toPusd } from '../../../kernel/money.ts';
import type { SessionQuery, SessionReader } from '../../../ports/store.ts';
import type { SqliteStoreHandle } from '../connection/open.ts';
import { createStatementCache } from '../connection/statements.ts';
import { isoOrNull, LIMIT_AS_TEXT, type SessionRow, sessionRecord, usdOrNull } from '../schema/rows.ts';
import { TURN_IS_OPEN, WITH_TREE } from '../schema/words.ts';
import { pageOf } from './page.ts';
import type { Spend } from './spend-reader.ts';
import { createTitles, firstLine } from './titles.ts';

const SELECT = `SELECT s.*, ${LIMIT_AS_TEXT} FROM sessions s`;
const OPEN_TURN = `SELECT 1 FROM turns t WHERE t.session_id = s.id AND ${TURN_IS_OPEN}`;
const STATUS_IS: Readonly<Record<SessionStatus, string>> = {
  ended: 's.ended_at IS NOT NULL',
  idle: `s.ended_at IS NULL AND NOT EXISTS (${OPEN_TURN})`,
  running: `s.ended_at IS NULL AND EXISTS (${OPEN_TURN} AND t.status <> 'interrupted')`,
  interrupted: `s.ended_at IS NULL AND EXISTS (${OPEN_TURN} AND t.status = 'interrupted')`,
};

export function createSessionReader({ db, sessions }: SqliteStoreHandle, spend: Spend): SessionReader {
  const byId = db.prepare<[string], SessionRow>(`${SELECT} WHERE s.id = ?`);
  const listed = createStatementCache<SessionRow>(db);
  const openTurn = db.prepare<[string], { id: string; status: string }>(
    `SELECT id, status FROM turns WHERE session_id = ? AND ${TURN_IS_OPEN}`,
  );
  const delegationOf = db.prepare<[string], { max_cost_text: string | null; task: string }>(
    `SELECT ${LIMIT_AS_TEXT}, request_json ->> 'task' AS task FROM delegations WHERE worker_session_id = ?`,
  );
  const descendants = db
    .prepare<[string], SessionId>(`${WITH_TREE} SELECT id FROM tree WHERE depth > 0 ORDER BY depth DESC, id`)
    .pluck();
  const lineage = db
    .prepare<[string], SessionId>(`
      WITH RECURSIVE up(id, parent, distance) AS (
        SELECT id, parent_session_id, 0 FROM sessions WHERE id = ?
        UNION ALL SELECT s.id, s.parent_session_id, distance + 1 FROM sessions s JOIN up ON s.id = up.parent)
      SELECT id FROM up ORDER BY distance`)
    .pluck();
  const activeSessions = db
    .prepare<[number], number>('SELECT count(*) FROM sessions WHERE ended_at IS NULL AND is_worker = ?')
    .pluck();
  const activeTurns = db
    .prepare<[], number>(`SELECT count(*) FROM turns WHERE ${TURN_IS_OPEN} AND status <> 'interrupted'`)
    .pluck();
  const titleOf = createTitles(db);

  function view(row: SessionRow): Session {
    const record = sessionRecord(row);
    const turn = openTurn.get(row.id) ?? null;
    const own = spend.ofSession(row.id);
    // A root finds all of its tree by one index; any other session walks down.
    const tree = record.is_worker ? null : spend.ofTree(row.id);
    const below = tree === null ? spend.ofDescendants(row.id) : null;
    const workersCost = below?.cost_pusd ?? (tree?.cost_pusd ?? 0n) - own.cost_pusd;
    const delegation = record.is_worker ? (delegationOf.get(row.id) ?? null) : null;
    const limit = record.is_worker ? usdOrNull(delegation?.max_cost_text ?? null) : record.max_cost_usd;
    return {
      id: record.id,
      workspace_path: record.workspace_path,
      active_model: record.active_model,
      pending_active_model: record.pending_active_model,
      swap_queued: record.pending_active_model !== null,
      routing_policy_version: record.routing_policy_version,
      cost_so_far_usd: fromPusd(own.cost_pusd),
      workers_cost_usd: fromPusd(workersCost),
      has_unpriced_calls: own.unpriced || (tree ?? below)?.unpriced === true,
      turn_count: record.turn_count,
      current_turn_id: (turn?.id ?? null) as Session['current_turn_id'],
      current_turn_status: (turn?.status ?? null) as Session['current_turn_status'],
      status: statusOf(record.ended_at, turn?.status ?? null),
      ended_at: isoOrNull(record.ended_at),
      disposition: record.disposition,
      created_at: new Date(record.created_at).toISOString(),
      updated_at: new Date(record.updated_at).toISOString(),
      parent_session_id: record.parent_session_id,
      parent_tool_use_id: record.parent_tool_use_id,
      is_worker: record.is_worker,
      root_session_id: record.root_session_id,
      delegation_depth: record.delegation_depth,
      worker_name: record.worker_name,
      worker_digest: record.worker_digest,
      worker_origin: record.worker_origin,
      approval_mode: record.approval_mode,
      // The first message of a worker is the same for all of them.
      title: delegation === null ? titleOf(row.id) : firstLine(delegation.task),
      task: delegation?.task ?? null,
      max_cost_usd: record.max_cost_usd,
      on_reached: record.on_reached,
      budget: limit === null ? null : budgetOf(limit, own.cost_pusd + workersCost, workersCost),
    };
  }

  return {
    limit: async (rootSessionId) => {
      const root = sessions.get(rootSessionId);
      if (root === null) return null;
      const { max_cost_usd, on_reached } = root.record;
      return { max_cost_usd, on_reached, warned_usd: root.warned_usd };
    },
    record: async (id) => sessions.get(id)?.record ?? null,
    view: async (id) => {
      const row = byId.get(id);
      return row === undefined ? null : view(row);
    },
    list: async (query) => {
      const { where, values } = conditions(query);
      const rows = listed(`${SELECT} ${where} ORDER BY s.id DESC LIMIT ?`).all(...values, query.limit + 1);
      return pageOf(rows, query.limit, (row) => row.id, view);
    },
    descendants: async (id) => descendants.all(id),
    lineage: async (id) => lineage.all(id),
    counts: async () => ({
      active_sessions: activeSessions.get(0) ?? 0,
      active_workers: activeSessions.get(1) ?? 0,
      active_turns: activeTurns.get() ?? 0,
    }),
  };
}

function statusOf(endedAt: SessionRecord['ended_at'], turnStatus: string | null): SessionStatus {
  if (endedAt !== null) return 'ended';
  if (turnStatus === null) return 'idle';
  return turnStatus === 'interrupted' ? 'interrupted' : 'running';
}

/** What the ledger knows; reservations live in memory and are added by whoever holds them (14 §4). */
function budgetOf(limit: string, spent: bigint, workers: bigint): BudgetView {
  const remaining = toPusd(limit) - spent;
  return {
    max_cost_usd: limit,
    spent_usd: fromPusd(spent),
    reserved_usd: '0',
    remaining_usd: fromPusd(remaining > 0n ? remaining : 0n),
    worker_spent_usd: fromPusd(workers),
  };
}

function conditions(query: SessionQuery): { readonly where: string; readonly values: readonly unknown[] } {
  const terms: string[] = [];
  const values: unknown[] = [];
  const add = (term: string, ...bound: unknown[]) => {
    terms.push(term);
    values.push(...bound);
  };
  if (query.parent_session_id !== null) add('s.parent_session_id = ?', query.parent_session_id);
  else if (!query.include_workers) add('s.is_worker = 0');
  if (query.workspace_path !== null) add('s.workspace_path = ?', query.workspace_path);
  if (query.before !== null) add('s.id < ?', query.before);
  if (query.status !== null) add(`(${query.status.map((status) => `(${STATUS_IS[status]})`).join(' OR ') || '0'})`);
  return { where: terms.length === 0 ? '' : `WHERE ${terms.join(' AND ')}`, values };
}
