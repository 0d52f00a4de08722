// Delegations and what their workers really spent (01 §9, 04 §4.2).
import type { Delegation, DelegationRecord, UsageSummary } from '../../../domain/delegate.ts';
import type { CallChanges } from '../../../domain/file-change.ts';
import { isoTime } from '../../../kernel/clock.ts';
import { fromPusd } from '../../../kernel/money.ts';
import type { DelegationReader, WorkerUsage } from '../../../ports/store.ts';
import type { SqliteStoreHandle } from '../connection/open.ts';
import { type DelegationRow, delegationRecord, isoOrNull, LIMIT_AS_TEXT } from '../schema/rows.ts';
import { WITH_TREE } from '../schema/words.ts';
import { pageOf } from './page.ts';
import type { Spend } from './spend-reader.ts';

const SELECT = `SELECT d.*, ${LIMIT_AS_TEXT} FROM delegations d`;

export function createDelegationReader({ db }: SqliteStoreHandle, spend: Spend): DelegationReader {
  const byCall = db.prepare<[string], DelegationRow>(`${SELECT} WHERE tool_use_id = ?`);
  const byWorker = db.prepare<[string], DelegationRow>(`${SELECT} WHERE worker_session_id = ?`);
  const own = db.prepare<[string, string, number], DelegationRow>(
    `${SELECT} WHERE parent_session_id = ? AND tool_use_id > ? ORDER BY tool_use_id LIMIT ?`,
  );
  const ofTree = db.prepare<[string, string, number], DelegationRow>(`${WITH_TREE}
    ${SELECT} WHERE parent_session_id IN (SELECT id FROM tree) AND tool_use_id > ? ORDER BY tool_use_id LIMIT ?`);
  // Spelled as in their index.
  const IS_OPEN = "INDEXED BY delegations_open WHERE status IN ('running','interrupted')";
  const open = db.prepare<[], DelegationRow>(`${SELECT} ${IS_OPEN} ORDER BY tool_use_id`);
  const openOfTree = db.prepare<[string], DelegationRow>(
    `${SELECT} ${IS_OPEN} AND parent_session_id IN (SELECT id FROM sessions WHERE root_session_id = ?)
     ORDER BY tool_use_id`,
  );
  const openOfTurn = db.prepare<[string], DelegationRow>(
    `${SELECT} ${IS_OPEN} AND parent_turn_id = ? ORDER BY tool_use_id`,
  );
  const changed = db.prepare<[string], { changed_json: string }>(`${WITH_TREE}
    SELECT changed_json FROM tool_calls WHERE session_id IN (SELECT id FROM tree) AND changed_json IS NOT NULL
    ORDER BY completed_at, id`);
  const worker = db.prepare<[string], { turn_count: number; created_at: number; tool_call_count: number }>(`
    SELECT s.turn_count, s.created_at,
      (SELECT count(*) FROM tool_calls c WHERE c.session_id = s.id AND c.result_json IS NOT NULL) AS tool_call_count
    FROM sessions s WHERE s.id = ?`);

  function usageOf(sessionId: string): WorkerUsage {
    const calls = spend.calls(sessionId);
    const last = spend.lastCall(sessionId);
    const row = worker.get(sessionId);
    return {
      model: last?.model ?? '',
      pricing_version: last?.pricing_version ?? '',
      turn_count: row?.turn_count ?? 0,
      llm_call_count: calls.calls,
      tool_call_count: row?.tool_call_count ?? 0,
      input_tokens: calls.input_tokens,
      output_tokens: calls.output_tokens,
      cost_pusd: calls.cost_pusd,
    };
  }

  function summaryOf(record: DelegationRecord): UsageSummary {
    const id = record.worker_session_id;
    const usage = id === null ? null : usageOf(id);
    const model = usage?.model || (record.resolved_model ?? '');
    return {
      model,
      turn_count: usage?.turn_count ?? 0,
      input_tokens: usage?.input_tokens ?? 0,
      output_tokens: usage?.output_tokens ?? 0,
      cost_usd: fromPusd(usage?.cost_pusd ?? 0n),
      wall_time_seconds: id === null ? 0 : wallTime(record, id),
      tool_call_count: usage?.tool_call_count ?? 0,
    };
  }
  /** From the worker's creation to its end; while it runs, to the last call it finished. */
  function wallTime(record: DelegationRecord, workerId: string): number {
    const from = worker.get(workerId)?.created_at ?? record.created_at;
    const to = record.ended_at ?? spend.lastCall(workerId)?.ts_ms ?? from;
    return Math.max(0, to - from) / 1000;
  }

  function view(row: DelegationRow): Delegation {
    const { request, ...record } = delegationRecord(row);
    return {
      ...record,
      effective_tools: [...record.effective_tools],
      dropped_tools: [...record.dropped_tools],
      created_at: isoTime(record.created_at),
      ended_at: isoOrNull(record.ended_at),
      usage_summary: summaryOf({ ...record, request }),
    };
  }
  const recordOrNull = (row: DelegationRow | undefined) => (row === undefined ? null : delegationRecord(row));

  return {
    get: async (toolUseId) => recordOrNull(byCall.get(toolUseId)),
    ofWorker: async (sessionId) => recordOrNull(byWorker.get(sessionId)),
    list: async (sessionId, { recursive, after, limit }) => {
      const rows = (recursive ? ofTree : own).all(sessionId, after ?? '', limit + 1);
      return pageOf(rows, limit, (row) => row.tool_use_id, view);
    },
    changes: async (workerSessionId) =>
      changed.all(workerSessionId).map((row) => JSON.parse(row.changed_json) as CallChanges),
    usage: async (workerSessionId) => usageOf(workerSessionId),
    open: async (turnId) => openOfTurn.all(turnId).map(delegationRecord),
    allOpen: async (root) => (root === undefined ? open.all() : openOfTree.all(root)).map(delegationRecord),
  };
}
