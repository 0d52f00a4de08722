// Sessions: records for the engine, wire objects with their derived fields for people (01 §7.1).

import { type SessionFacts, sessionView } from '#core/policy/session/session-view.ts';
import type { Page, SessionQuery, SessionReader } from '#core/ports/store.ts';
import type { SessionId } from '#protocol/ids.ts';
import type { Session } from '#protocol/session.ts';
import { pageOf } from '#store/read/page.ts';
import * as sql from '#store/read/sessions.ts';
import { type SessionRow, sessionRecord } from '#store/schema/rows.ts';
import type { SqliteStoreHandle } from '../connection/open.ts';
import { createStatementCache } from '../connection/statements.ts';
import type { Spend } from './spend-reader.ts';
import { createTitles } from './titles.ts';
import { createWaiting } from './waiting-reader.ts';

export function createSessionReader(handle: SqliteStoreHandle, spend: Spend): SessionReader {
  const { db, sessions } = handle;
  const byId = db.prepare<[string], SessionRow>(sql.BY_ID);
  const listed = createStatementCache<SessionRow>(db);
  const openTurn = db.prepare<[string], NonNullable<SessionFacts['open_turn']>>(sql.OPEN_TURN);
  const delegationOf = db.prepare<[string], sql.DelegationRow>(sql.DELEGATION);
  const descendants = db.prepare<[string], SessionId>(sql.DESCENDANTS).pluck();
  const lineage = db.prepare<[string], SessionId>(sql.LINEAGE).pluck();
  const activeSessions = db.prepare<[number], number>(sql.ACTIVE_SESSIONS).pluck();
  const activeTurns = db.prepare<[], number>(sql.ACTIVE_TURNS).pluck();
  const lastModel = db.prepare<[string], string | null>(sql.LAST_MODEL).pluck();
  const workersOfTree = db.prepare<[string], SessionFacts['descendants']>(sql.WORKERS_OF_TREE);
  const workersBelow = db.prepare<[string], SessionFacts['descendants']>(sql.WORKERS_BELOW);
  const idOfClient = db.prepare<[string, string], string>(sql.OF_CLIENT).pluck();
  const idOfCallersWorker = db.prepare<[string, string], string>(sql.WORKER_OF_CALLER).pluck();
  const idOfClientWorker = db.prepare<[string, string], string>(sql.WORKER_OF_CLIENT).pluck();
  const knownOrNull = (id: string | undefined) => (id === undefined ? null : (sessions.get(id)?.record ?? null));
  const titleOf = createTitles(db);
  const waitingOn = createWaiting(handle);

  function view(row: SessionRow): Session {
    const record = sessionRecord(row);
    const own = spend.ofSession(row.id);
    const delegation = record.is_worker ? (delegationOf.get(row.id) ?? null) : null;
    const open = openTurn.get(row.id) ?? null;
    return sessionView(record, {
      open_turn: open,
      own,
      // A root finds all of its tree by one index; any other session walks down.
      workers: record.is_worker ? spend.ofDescendants(row.id) : sql.lessOwn(spend.ofTree(row.id), own),
      last_model: (record.door === 'gateway' ? spend.lastCall(row.id)?.model : lastModel.get(row.id)) ?? null,
      descendants: (record.is_worker ? workersBelow : workersOfTree).get(row.id) as SessionFacts['descendants'],
      delegation: delegation && sql.delegationFacts(delegation),
      title: delegation === null ? titleOf(row.id) : null,
      // A worker runs only under a turn that is open.
      waiting_on: open === null ? [] : waitingOn(row),
    });
  }

  // One transaction: each of its some 300 statements would open and close one of its own, three times their time.
  const list = db.transaction((query: SessionQuery): Page<Session> => {
    const page = sql.pageOf(query);
    const rows = listed(page.sql).all(...page.values);
    return pageOf(rows, query.limit, (row) => row.id, view);
  });

  return {
    limit: async (rootSessionId) => {
      const root = sessions.get(rootSessionId);
      if (root === null) return null;
      const { max_cost_usd, on_reached } = root.record;
      return { max_cost_usd, on_reached, warned_usd: root.warned_usd };
    },
    record: async (id) => sessions.get(id)?.record ?? null,
    ofClient: async (caller, ref) => knownOrNull(idOfClient.get(caller, ref)),
    workerOfClient: async (root, ref) => knownOrNull(idOfClientWorker.get(root, ref)),
    workerOfCaller: async (caller, ref) => knownOrNull(idOfCallersWorker.get(caller, ref)),
    view: async (id) => {
      const row = byId.get(id);
      return row === undefined ? null : view(row);
    },
    list: async (query) => list(query),
    descendants: async (id) => descendants.all(id),
    lineage: async (id) => lineage.all(id),
    counts: async () => ({
      active_sessions: activeSessions.get(0) ?? 0,
      active_workers: activeSessions.get(1) ?? 0,
      active_turns: activeTurns.get() ?? 0,
    }),
  };
}
