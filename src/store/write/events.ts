// Events and cost facts as their tables hold them (01 §11.3, 07 §9.3).
import { packPayload } from '#core/policy/journal/stored-payload.ts';
import type { Event } from '#protocol/event.ts';
import { ROLLUPS, rollupColumns, rollupKey, TOKEN_COUNTS } from '../schema/rollups.ts';
import { ACTOR_NUMBERS, SENSITIVITY_NUMBERS, type TypeNumbers } from '../schema/words.ts';

/** Beside the columns of `eventRow`, `session_key` names the session's row. */
export const EVENT_COLUMNS = [
  'id',
  'timestamp_ms',
  'session_key',
  'turn_id',
  'parent_event_id',
  'type',
  'actor',
  'sensitivity',
  'payload_json',
] as const;
export const LEDGER_SESSION_COLUMNS = [
  'session_id',
  'root_session_id',
  'parent_key',
  'is_worker',
  'workspace_hash',
  'delegation_tier',
  'worker_name',
  'delegated_by_model',
  'door',
  'caller',
  'owner',
  'share',
] as const;
/** Beside the columns of `costFact`, `session_key` names the session's row. */
export const FACT_COLUMNS = [
  'event_id',
  'ts_ms',
  'session_key',
  'turn_id',
  'model',
  'provider',
  'pricing_version',
  'purpose',
  ...TOKEN_COUNTS,
  'usage_estimated',
  'priced',
  'cancelled',
  'latency_ms',
  'cost_pusd',
  'effort',
  'fees_pusd',
  'surcharge_pusd',
  'fees_unpriced',
  'surcharge_unknown',
  'rounds_unknown',
  'bill_json',
] as const;
/** Columns of `roundRows`. */
export const ROUND_COLUMNS = [
  'event_id',
  'seq',
  'kind',
  'model',
  ...TOKEN_COUNTS,
  'cost_pusd',
  'priced',
  'billed',
] as const;
export const EVENT_SESSION_KEY = 'SELECT session_key FROM event_sessions WHERE session_id = ?';
export const LEDGER_SESSION_KEY = 'SELECT session_key FROM ledger_sessions WHERE session_id = ?';

export const ADD_OWNER_DAY =
  'ON CONFLICT (owner, day) DO UPDATE SET cost_pusd = owner_days.cost_pusd + excluded.cost_pusd';

/** @param at Unix milliseconds */
export function eventRow(event: Event, at: number, typeNumbers: TypeNumbers) {
  return {
    id: event.id,
    timestamp_ms: at,
    session_id: event.session_id,
    turn_id: event.turn_id,
    parent_event_id: event.parent_event_id,
    type: typeNumbers.get(event.type),
    actor: ACTOR_NUMBERS[event.actor],
    sensitivity: SENSITIVITY_NUMBERS[event.sensitivity],
    payload_json: packPayload(event.type, event.payload, event),
  };
}

/** Each rollup with its columns and how a fact is added to a row that is there. */
export const ROLLUP_UPSERTS = ROLLUPS.map((rollup) => ({
  table: rollup.table,
  key: rollupKey(rollup),
  measures: rollup.measures,
  apart: rollup.apart ?? false,
  columns: rollupColumns(rollup),
  conflict: `ON CONFLICT (${rollupKey(rollup).join(', ')})
    DO UPDATE SET ${rollup.measures.map((m) => `${m} = ${rollup.table}.${m} + excluded.${m}`).join(', ')}`,
}));
