// Delegations and what their workers really spent (01 §9, 04 §4.2).

import type { DelegationReader } from '#core/ports/store.ts';
import type { CallChanges } from '#protocol/file-change.ts';
import * as sql from '#store/read/delegations.ts';
import { pageOf } from '#store/read/page.ts';
import { type DelegationRow, delegationRecord } from '#store/schema/rows.ts';
import type { SqliteStoreHandle } from '../connection/open.ts';
import type { Spend } from './spend-reader.ts';

export function createDelegationReader({ db }: SqliteStoreHandle, spend: Spend): DelegationReader {
  const byCall = db.prepare<[string], DelegationRow>(sql.BY_CALL);
  const byWorker = db.prepare<[string], DelegationRow>(sql.BY_WORKER);
  const own = db.prepare<[string, string, number], DelegationRow>(sql.OWN);
  const ofTree = db.prepare<[string, string, number], DelegationRow>(sql.OF_TREE);
  const open = db.prepare<[], DelegationRow>(sql.OPEN);
  const openOfTree = db.prepare<[string], DelegationRow>(sql.OPEN_OF_TREE);
  const openOfTurn = db.prepare<[string], DelegationRow>(sql.OPEN_OF_TURN);
  const changed = db.prepare<[string], { changed_json: string }>(sql.CHANGED);
  const worker = db.prepare<[string], NonNullable<sql.WorkerFacts['session']>>(sql.WORKER);

  const factsOf = (sessionId: string): sql.WorkerFacts => ({
    calls: spend.calls(sessionId),
    last: spend.lastCall(sessionId),
    session: worker.get(sessionId),
  });
  function view(row: DelegationRow) {
    const id = row.worker_session_id;
    return sql.delegationView(delegationRecord(row), id === null ? null : factsOf(id));
  }
  const recordOrNull = (row: DelegationRow | undefined) => (row === undefined ? null : delegationRecord(row));

  return {
    get: async (toolUseId) => recordOrNull(byCall.get(toolUseId)),
    view: async (toolUseId) => {
      const row = byCall.get(toolUseId);
      return row === undefined ? null : view(row);
    },
    ofWorker: async (sessionId) => recordOrNull(byWorker.get(sessionId)),
    list: async (sessionId, { recursive, after, limit }) => {
      const rows = (recursive ? ofTree : own).all(sessionId, after ?? '', limit + 1);
      return pageOf(rows, limit, (row) => row.tool_use_id, view);
    },
    changes: async (workerSessionId) =>
      changed.all(workerSessionId).map((row) => JSON.parse(row.changed_json) as CallChanges),
    usage: async (workerSessionId) => sql.workerUsage(factsOf(workerSessionId)),
    open: async (turnId) => openOfTurn.all(turnId).map(delegationRecord),
    allOpen: async (root) => (root === undefined ? open.all() : openOfTree.all(root)).map(delegationRecord),
  };
}
