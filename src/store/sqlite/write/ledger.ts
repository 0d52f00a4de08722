// The ledger and its rollups: one cost fact per finished call, projected in the transaction of its event (07 §9.3).
import type Database from 'better-sqlite3';
import { type CallRecorded, costFact } from '../../../policy/journal/cost-fact.ts';
import type { SessionStamp } from '../../../policy/journal/envelope.ts';
import { insertInto } from '../connection/named.ts';
import { MEASURES, ROLLUPS, TOKEN_COUNTS } from '../schema/rollups.ts';

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
    project(call, stamp) {
      const row = costFact(call, stamp);
      if (insertFact(row).changes === 0) return;
      for (const upsert of upserts) upsert(row);
    },
  };
}
