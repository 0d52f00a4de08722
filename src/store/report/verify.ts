// Compares rollups with the ledger, and the ledger with its events, and describes each difference (07 §9.5).

import { billColumns } from '#core/policy/journal/cost-fact.ts';
import { unpackPayload } from '#core/policy/journal/stored-payload.ts';
import type { LlmCallCompleted } from '#protocol/event/turn-events.ts';
import { toPusd } from '#protocol/money.ts';
import { ROLLUPS, rollupColumns, rollupFromCalls, TOKEN_COUNTS } from '../schema/rollups.ts';
import { typeIs } from '../schema/words.ts';

/** Maximum differences per kind; more call for a rebuild, not for a longer list. */
export const MAX_DIFFERENCES = 100;

type Values = Readonly<Record<string, unknown>>;

/** Each statement finds rows that only one side has; integers are read as bigint. */
export const COMPARISONS: readonly { readonly sql: string; readonly line: (row: Values) => string }[] = ROLLUPS.flatMap(
  (rollup) => {
    const stored = `SELECT ${rollupColumns(rollup).join(', ')} FROM ${rollup.table}`;
    const derived = rollupFromCalls(rollup);
    return [
      { sql: onlyIn(derived, stored), line: (row) => `${rollup.table} lacks ${formatRow(row)}` },
      {
        sql: onlyIn(stored, derived),
        line: (row) => `${rollup.table} has ${formatRow(row)}, which llm_calls do not give`,
      },
    ];
  },
);

function onlyIn(left: string, right: string): string {
  return `SELECT * FROM (${left}) AS these EXCEPT SELECT * FROM (${right}) AS those LIMIT ${MAX_DIFFERENCES}`;
}
function formatRow(row: Values): string {
  return Object.entries(row)
    .map(([column, value]) => `${column}=${value}`)
    .join(' ');
}

export interface CallEvent {
  readonly id: string;
  readonly timestamp_ms: number | bigint;
  readonly session_id: string;
  readonly turn_id: string | null;
  readonly payload_json: string;
}
export const CALL_EVENTS = `SELECT e.id, e.timestamp_ms, s.session_id, e.turn_id, e.payload_json
  FROM event_rows e JOIN event_sessions s ON s.session_key = e.session_key WHERE e.${typeIs('llm.call_completed')}`;
export const FACT = 'SELECT * FROM llm_calls WHERE event_id = ?';

/** A fact without an event is no difference: its event was pruned or purged. */
export function factDifferences(event: CallEvent, fact: Values | undefined): string[] {
  if (fact === undefined) return [`llm_calls lacks event ${event.id}`];
  return Object.entries(factFrom(event))
    .filter(([column, expected]) => String(fact[column]) !== String(expected))
    .map(([column, expected]) => `llm_calls ${event.id}: ${column} is ${fact[column]}, its event has ${expected}`);
}

/** NULL amounts and flags of a plain call are 0 in `llm_calls`. */
function restoreZeros({ bill_json, ...amounts }: ReturnType<typeof billColumns>): Record<string, unknown> {
  return { ...Object.fromEntries(Object.entries(amounts).map(([name, value]) => [name, value ?? 0])), bill_json };
}

/** The columns of a fact that its event determines. */
function factFrom({ timestamp_ms, session_id, turn_id, payload_json }: CallEvent): Record<string, unknown> {
  const stored = JSON.parse(payload_json) as Partial<LlmCallCompleted>;
  const call = unpackPayload('llm.call_completed', stored, { session_id, turn_id }) as unknown as LlmCallCompleted;
  return {
    ts_ms: timestamp_ms,
    session_id,
    turn_id,
    root_session_id: call.root_session_id,
    parent_session_id: call.parent_session_id,
    is_worker: Number(call.is_worker),
    model: call.model,
    provider: call.provider,
    pricing_version: call.pricing_version,
    purpose: call.purpose,
    ...Object.fromEntries(TOKEN_COUNTS.map((name) => [name, call[name]])),
    usage_estimated: Number(call.usage_estimated),
    priced: Number(call.priced),
    cancelled: Number(call.stop_reason === 'cancelled'),
    latency_ms: call.latency_ms,
    cost_pusd: toPusd(call.cost_usd),
    ...restoreZeros(billColumns(call)),
  };
}
