// The ledger and its rollups: one cost fact per finished call, projected in the transaction of its event (07 §9.3).
import type Database from 'better-sqlite3';
import type { LlmCallCompleted } from '../../../domain/event/llm.ts';
import { toPusd } from '../../../kernel/money.ts';
import { bit, insertInto } from '../connection/sql.ts';
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
      const priced = bit(payload.priced);
      const cancelled = bit(payload.stop_reason === 'cancelled');
      // One row for the fact and both rollups, each takes its own columns.
      const row = {
        event_id: id,
        ts_ms: at,
        hour: Math.floor(at / HOUR_MS),
        day: Math.floor(at / DAY_MS),
        session_id,
        turn_id,
        root_session_id: stamp.root_session_id,
        parent_session_id: stamp.parent_session_id,
        parent_key: stamp.parent_session_id ?? session_id,
        is_worker: bit(stamp.is_worker),
        workspace_hash: stamp.workspace_hash,
        worker_name: stamp.worker_name,
        delegation_tier: stamp.delegation_tier,
        delegated_by_model: stamp.delegated_by_model,
        model: payload.model,
        provider: payload.provider,
        pricing_version: payload.pricing_version,
        purpose: payload.purpose,
        input_tokens: payload.input_tokens,
        cached_input_tokens: payload.cached_input_tokens,
        cache_creation_input_tokens: payload.cache_creation_input_tokens,
        cache_creation_1h_input_tokens: payload.cache_creation_1h_input_tokens,
        output_tokens: payload.output_tokens,
        reasoning_tokens: payload.reasoning_tokens,
        usage_estimated: bit(payload.usage_estimated),
        priced,
        cancelled,
        calls: 1,
        unpriced_calls: 1 - priced,
        latency_ms: payload.latency_ms,
        // The time of a call that was cut off says nothing about its model.
        latency_sum: cancelled === 1 ? 0 : payload.latency_ms,
        latency_n: 1 - cancelled,
        cost_pusd: toPusd(payload.cost_usd),
      };
      if (insertFact(row).changes === 0) return;
      for (const upsert of upserts) upsert(row);
    },
  };
}
