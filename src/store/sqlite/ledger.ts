// The ledger and its rollups: one cost fact per finished call, projected in the transaction of its event (07 §9.3).
import type Database from 'better-sqlite3';
import type { LlmCallCompleted } from '../../domain/event/llm.ts';
import { toPusd } from '../../kernel/money.ts';
import { insertInto } from './sql.ts';
import type { SessionStamp } from './stamp.ts';

export const HOUR_MS = 3_600_000;
export const DAY_MS = 86_400_000;

/** Summed per rollup row; the ledger has columns of the same names. */
export const TOKEN_COUNTS = [
  'input_tokens',
  'cached_input_tokens',
  'cache_creation_input_tokens',
  'cache_creation_1h_input_tokens',
  'output_tokens',
  'reasoning_tokens',
] as const;
export const MEASURES = ['calls', 'unpriced_calls', 'latency_sum', 'latency_n', ...TOKEN_COUNTS, 'cost_pusd'] as const;

/** The two rollups: key columns first, then what the first fact of a row says. */
export const ROLLUPS = [
  {
    table: 'rollup_session_hour',
    bucket: 'hour',
    bucket_ms: HOUR_MS,
    key: ['session_id', 'model'],
    attributes: [
      'parent_key',
      'root_session_id',
      'is_worker',
      'delegation_tier',
      'worker_name',
      'workspace_hash',
      'provider',
    ],
  },
  {
    table: 'rollup_parent_day',
    bucket: 'day',
    bucket_ms: DAY_MS,
    key: ['parent_key', 'is_worker', 'delegation_tier', 'worker_name', 'model'],
    attributes: ['root_session_id', 'workspace_hash', 'provider'],
  },
] as const;

const FACT_COLUMNS = [
  'event_id',
  'ts_ms',
  'session_id',
  'root_session_id',
  'parent_key',
  'parent_session_id',
  'is_worker',
  'turn_id',
  'workspace_hash',
  'model',
  'provider',
  'pricing_version',
  'purpose',
  ...TOKEN_COUNTS,
  'usage_estimated',
  'priced',
  'cancelled',
  'delegation_tier',
  'worker_name',
  'delegated_by_model',
  'latency_ms',
  'cost_pusd',
] as const;

/** The envelope of the projected event. */
export interface CallRecorded {
  readonly id: string;
  /** Unix milliseconds. */
  readonly at: number;
  readonly session_id: string;
  readonly turn_id: string | null;
  readonly payload: LlmCallCompleted;
}

export interface Ledger {
  /**
   * Inserts the fact and adds it to both rollups; an event that is already there changes nothing.
   * Throws when a money sum would leave 64 bits: the caller's transaction must fail as a whole.
   */
  project(call: CallRecorded, stamp: SessionStamp): void;
}

export function createLedger(db: Database.Database): Ledger {
  const insertFact = insertInto(db, 'llm_calls', FACT_COLUMNS, 'ON CONFLICT (event_id) DO NOTHING');
  const upserts = ROLLUPS.map(({ table, bucket, key, attributes }) =>
    insertInto(
      db,
      table,
      [bucket, ...key, ...attributes, ...MEASURES],
      `ON CONFLICT (${[bucket, ...key].join(', ')})
       DO UPDATE SET ${MEASURES.map((m) => `${m} = ${m} + excluded.${m}`).join(', ')}`,
    ),
  );
  return {
    project({ id, at, session_id, turn_id, payload }, stamp) {
      const fact = {
        ...payload,
        ...stamp,
        event_id: id,
        ts_ms: at,
        session_id,
        turn_id,
        parent_key: stamp.parent_session_id ?? session_id,
        is_worker: Number(stamp.is_worker),
        usage_estimated: Number(payload.usage_estimated),
        priced: Number(payload.priced),
        cancelled: Number(payload.stop_reason === 'cancelled'),
        cost_pusd: toPusd(payload.cost_usd),
      };
      if (insertFact(fact).changes === 0) return;
      const row = {
        ...fact,
        hour: Math.floor(at / HOUR_MS),
        day: Math.floor(at / DAY_MS),
        calls: 1,
        unpriced_calls: 1 - fact.priced,
        // The time of a call that was cut off says nothing about its model.
        latency_sum: fact.cancelled === 1 ? 0 : payload.latency_ms,
        latency_n: 1 - fact.cancelled,
      };
      for (const upsert of upserts) upsert(row);
    },
  };
}
