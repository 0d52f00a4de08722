// Sessions: records for the engine, wire objects with their derived fields for people (01 §7.1).
import type { Session, SessionStatus } from '../../../domain/session.ts';
import type { SessionId } from '../../../kernel/ids.ts';
import type { Pusd } from '../../../kernel/money.ts';
import { type SessionFacts, type Spent, sessionView } from '../../../policy/session/session-view.ts';
import type { SessionQuery, SessionReader } from '../../../ports/store.ts';
import type { SqliteStoreHandle } from '../connection/open.ts';
import { createStatementCache } from '../connection/statements.ts';
import { LIMIT_AS_TEXT, type SessionRow, sessionRecord, usdOrNull } from '../schema/rows.ts';
import { TURN_IS_OPEN, WITH_TREE } from '../schema/words.ts';
import { pageOf } from './page.ts';
import type { Spend } from './spend-reader.ts';
import { createTitles } from './titles.ts';

const SELECT = `SELECT s.*, ${LIMIT_AS_TEXT} FROM sessions s`;
const WORKERS = 'count(*) AS count, count(*) FILTER (WHERE s.ended_at IS NULL) AS active';
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
  const openTurn = db.prepare<[string], NonNullable<SessionFacts['open_turn']>>(
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
  const lastModel = db
    .prepare<[string], string | null>('SELECT chosen_model FROM turns WHERE session_id = ? ORDER BY id DESC LIMIT 1')
    .pluck();
  const workersOfTree = db.prepare<[string], SessionFacts['descendants']>(
    `SELECT ${WORKERS} FROM sessions s WHERE s.root_session_id = ? AND s.is_worker = 1`,
  );
  // CROSS JOIN keeps the order: walk the tree, then look each session up.
  const workersBelow = db.prepare<[string], SessionFacts['descendants']>(
    `${WITH_TREE} SELECT ${WORKERS} FROM tree CROSS JOIN sessions s ON s.id = tree.id WHERE tree.depth > 0`,
  );
  const titleOf = createTitles(db);

  function view(row: SessionRow): Session {
    const record = sessionRecord(row);
    const own = spend.ofSession(row.id);
    const delegation = record.is_worker ? (delegationOf.get(row.id) ?? null) : null;
    return sessionView(record, {
      open_turn: openTurn.get(row.id) ?? null,
      own,
      // A root finds all of its tree by one index; any other session walks down.
      workers: record.is_worker ? spend.ofDescendants(row.id) : lessOwn(spend.ofTree(row.id), own),
      last_model: lastModel.get(row.id) ?? null,
      descendants: (record.is_worker ? workersBelow : workersOfTree).get(row.id) as SessionFacts['descendants'],
      delegation: delegation && { task: delegation.task, max_cost_usd: usdOrNull(delegation.max_cost_text) },
      title: delegation === null ? titleOf(row.id) : null,
    });
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

/** What is left of a tree without its root; an unpriced call of the root's own is among its own anyway. */
function lessOwn(tree: Spent, own: Spent): Spent {
  return { cost_pusd: (tree.cost_pusd - own.cost_pusd) as Pusd, unpriced: tree.unpriced };
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
