// Delegations, and what their workers spent (01 §9, 04 §4.2).
import type { DelegationReader, TurnTotals, WorkerUsage } from '#core/ports/store-reader.ts';
import { isoTime } from '#protocol/clock.ts';
import type { Delegation, DelegationRecord } from '#protocol/delegate.ts';
import type { CallChanges } from '#protocol/file-change.ts';
import { fromPusd, fromPusdOrNull } from '#protocol/money.ts';
import {
  type DelegationRow,
  type DeliveryRow,
  delegationRecord,
  deliveryRecord,
  isoOrNull,
  LIMIT_AS_TEXT,
} from '../schema/rows.ts';
import { TURN_T_IS_OPEN, WITH_TREE } from '../schema/words.ts';
import { type Reads, toPage } from './read-database.ts';
import type { LastCall, Spend } from './spend.ts';

const SELECT = `SELECT d.*, ${LIMIT_AS_TEXT} FROM delegations d`;
/** Written exactly as in the index, so that SQLite uses it. */
const IS_OPEN = "{index(delegations_open)} WHERE status IN ('running','interrupted')";

export const BY_CALL = `${SELECT} WHERE tool_use_id = ?`;
export const BY_WORKER = `${SELECT} WHERE worker_session_id = ?`;
export const OWN = `${SELECT} WHERE parent_session_id = ? AND tool_use_id > ? ORDER BY tool_use_id LIMIT ?`;
export const OF_TREE = `${WITH_TREE}
  ${SELECT} WHERE parent_session_id IN (SELECT id FROM tree) AND tool_use_id > ? ORDER BY tool_use_id LIMIT ?`;
export const OPEN = `${SELECT} ${IS_OPEN} ORDER BY tool_use_id`;
export const OPEN_OF_TREE = `${SELECT} ${IS_OPEN}
  AND parent_session_id IN (SELECT id FROM sessions WHERE root_session_id = ?) ORDER BY tool_use_id`;
export const OPEN_OF_TURN = `${SELECT} ${IS_OPEN} AND parent_turn_id = ? ORDER BY tool_use_id`;
/** No call of a turn has a smaller id than the turn. */
export const OF_TURN = `${SELECT} WHERE parent_session_id = ? AND tool_use_id > ? AND parent_turn_id = ? ORDER BY tool_use_id`;
/** Results that open turns wait for, of the whole database. */
export const COUNT_DELIVERIES = `SELECT count(*) AS deliveries FROM deliveries d JOIN turns t ON t.id = d.turn_id
  WHERE d.delivered_at IS NULL AND ${TURN_T_IS_OPEN}`;
export const UNDELIVERED = 'SELECT * FROM deliveries WHERE turn_id = ? AND delivered_at IS NULL ORDER BY id';
export const CHANGED = `${WITH_TREE}
  SELECT changed_json FROM tool_calls WHERE session_id IN (SELECT id FROM tree) AND changed_json IS NOT NULL
  ORDER BY completed_at, id`;
export const WORKER = `
  SELECT s.turn_count AS completed_turn_count, s.created_at,
    (SELECT count(*) FROM turns t WHERE t.session_id = s.id) AS turn_count,
    (SELECT count(*) FROM tool_calls c WHERE c.session_id = s.id AND c.result_json IS NOT NULL) AS tool_call_count
  FROM sessions s WHERE s.id = ?`;

/** Facts about a worker's session. */
export interface WorkerFacts {
  readonly calls: Omit<TurnTotals, 'cached_input_tokens' | 'cache_creation_input_tokens'>;
  readonly last: LastCall | null;
  readonly session:
    | {
        readonly turn_count: number;
        readonly completed_turn_count: number;
        readonly created_at: number;
        readonly tool_call_count: number;
      }
    | undefined;
}

export function workerUsage({ calls, last, session }: WorkerFacts): WorkerUsage {
  return {
    model: last?.model ?? '',
    pricing_version: last?.pricing_version ?? '',
    turn_count: session?.turn_count ?? 0,
    completed_turn_count: session?.completed_turn_count ?? 0,
    llm_call_count: calls.calls,
    tool_call_count: session?.tool_call_count ?? 0,
    input_tokens: calls.input_tokens,
    output_tokens: calls.output_tokens,
    cost_pusd: calls.cost_pusd,
  };
}

/** @param facts null when no worker was opened */
export function delegationView(record: DelegationRecord, facts: WorkerFacts | null): Delegation {
  const usage = facts && workerUsage(facts);
  const { request, max_cost_pusd, output, ...rest } = record;
  return {
    ...rest,
    effective_tools: [...record.effective_tools],
    dropped_tools: [...record.dropped_tools],
    max_cost_usd: fromPusdOrNull(max_cost_pusd),
    output,
    created_at: isoTime(record.created_at),
    ended_at: isoOrNull(record.ended_at),
    usage_summary: {
      model: usage?.model || (record.resolved_model ?? ''),
      turn_count: usage?.turn_count ?? 0,
      input_tokens: usage?.input_tokens ?? 0,
      output_tokens: usage?.output_tokens ?? 0,
      cost_usd: fromPusd(usage?.cost_pusd ?? 0n),
      wall_time_seconds: facts === null ? 0 : wallTime(record, facts),
      tool_call_count: usage?.tool_call_count ?? 0,
    },
  };
}

/** From the worker's creation to its end; while it runs, to the last call it finished. */
function wallTime(record: DelegationRecord, { session, last }: WorkerFacts): number {
  const from = session?.created_at ?? record.created_at;
  const to = record.ended_at ?? last?.ts_ms ?? from;
  return Math.max(0, to - from) / 1000;
}

export function createDelegationReader({ all, get }: Reads, spend: Spend): DelegationReader {
  async function readFacts(sessionId: string): Promise<WorkerFacts> {
    const [calls, last, session] = await Promise.all([
      spend.calls(sessionId),
      spend.lastCall(sessionId),
      get<NonNullable<WorkerFacts['session']>>(WORKER, sessionId),
    ]);
    return { calls, last, session };
  }
  async function viewDelegation(row: DelegationRow) {
    const id = row.worker_session_id;
    return delegationView(delegationRecord(row), id === null ? null : await readFacts(id));
  }
  async function recordOrNull(text: string, id: string) {
    const row = await get<DelegationRow>(text, id);
    if (row === undefined) return null;
    return delegationRecord(row);
  }
  const records = async (text: string, ...values: string[]) =>
    (await all<DelegationRow>(text, ...values)).map(delegationRecord);

  return {
    get: (toolUseId) => recordOrNull(BY_CALL, toolUseId),
    findByWorker: (sessionId) => recordOrNull(BY_WORKER, sessionId),
    list: async (sessionId, { recursive, after, limit }) => {
      const rows = await all<DelegationRow>(recursive ? OF_TREE : OWN, sessionId, after ?? '', limit + 1);
      const page = toPage(rows, limit, (row) => row.tool_use_id, viewDelegation);
      return { rows: await Promise.all(page.rows), next: page.next };
    },
    view: async (toolUseId) => {
      const row = await get<DelegationRow>(BY_CALL, toolUseId);
      if (row === undefined) return null;
      return viewDelegation(row);
    },
    changes: async (workerSessionId) =>
      (await all<{ changed_json: string }>(CHANGED, workerSessionId)).map(
        (row) => JSON.parse(row.changed_json) as CallChanges,
      ),
    usage: async (workerSessionId) => workerUsage(await readFacts(workerSessionId)),
    open: (turnId) => records(OPEN_OF_TURN, turnId),
    ofTurn: (sessionId, turnId) => records(OF_TURN, sessionId, `tu_${turnId}`, turnId),
    deliveries: async (turnId) => (await all<DeliveryRow>(UNDELIVERED, turnId)).map(deliveryRecord),
    allOpen: (root) => (root === undefined ? records(OPEN) : records(OPEN_OF_TREE, root)),
  };
}
