// Delegations and what their workers really spent (01 §9, 04 §4.2).

import type { DelegationReader } from '#core/ports/store.ts';
import type { CallChanges } from '#protocol/file-change.ts';
import * as sql from '#store/read/delegations.ts';
import { pageOf } from '#store/read/page.ts';
import { type DelegationRow, delegationRecord } from '#store/schema/rows.ts';
import type { Reads } from '../connection/reads.ts';
import type { Spend } from './spend-reader.ts';

export function createDelegationReader({ all, get }: Reads, spend: Spend): DelegationReader {
  async function factsOf(sessionId: string): Promise<sql.WorkerFacts> {
    const [calls, last, session] = await Promise.all([
      spend.calls(sessionId),
      spend.lastCall(sessionId),
      get<NonNullable<sql.WorkerFacts['session']>>(sql.WORKER, sessionId),
    ]);
    return { calls, last, session };
  }
  async function view(row: DelegationRow) {
    const id = row.worker_session_id;
    return sql.delegationView(delegationRecord(row), id === null ? null : await factsOf(id));
  }
  async function recordOrNull(text: string, id: string) {
    const row = await get<DelegationRow>(text, id);
    return row === undefined ? null : delegationRecord(row);
  }
  const records = async (text: string, ...values: string[]) =>
    (await all<DelegationRow>(text, ...values)).map(delegationRecord);

  return {
    get: (toolUseId) => recordOrNull(sql.BY_CALL, toolUseId),
    ofWorker: (sessionId) => recordOrNull(sql.BY_WORKER, sessionId),
    list: async (sessionId, { recursive, after, limit }) => {
      const rows = await all<DelegationRow>(recursive ? sql.OF_TREE : sql.OWN, sessionId, after ?? '', limit + 1);
      const page = pageOf(rows, limit, (row) => row.tool_use_id, view);
      return { rows: await Promise.all(page.rows), next: page.next };
    },
    view: async (toolUseId) => {
      const row = await get<DelegationRow>(sql.BY_CALL, toolUseId);
      return row === undefined ? null : view(row);
    },
    changes: async (workerSessionId) =>
      (await all<{ changed_json: string }>(sql.CHANGED, workerSessionId)).map(
        (row) => JSON.parse(row.changed_json) as CallChanges,
      ),
    usage: async (workerSessionId) => sql.workerUsage(await factsOf(workerSessionId)),
    open: (turnId) => records(sql.OPEN_OF_TURN, turnId),
    allOpen: (root) => (root === undefined ? records(sql.OPEN) : records(sql.OPEN_OF_TREE, root)),
  };
}
