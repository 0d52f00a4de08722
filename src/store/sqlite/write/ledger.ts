// The ledger and its rollups: one cost fact per finished call, projected in the transaction of its event (07 §9.3).
import type Database from 'better-sqlite3';
import { type CallRecorded, costFact } from '#core/policy/journal/cost-fact.ts';
import type { SessionStamp } from '#core/policy/journal/prepare.ts';
import { FACT_COLUMNS, LEDGER_SESSION_COLUMNS, LEDGER_SESSION_KEY, ROLLUP_UPSERTS } from '#store/write/events.ts';
import { insertInto } from '../connection/named.ts';

export interface Ledger {
  /**
   * Inserts the fact and adds it to the rollups; an event that is already there changes nothing.
   * Throws when a money sum would leave 64 bits: the caller's transaction must fail as a whole.
   */
  project(call: CallRecorded, stamp: SessionStamp): void;
}

export function createLedger(db: Database.Database): Ledger {
  const keyOf = db.prepare<[string], number>(LEDGER_SESSION_KEY).pluck();
  const insertSession = insertInto(db, 'ledger_sessions', LEDGER_SESSION_COLUMNS);
  const insertFact = insertInto(db, 'ledger_calls', FACT_COLUMNS, 'ON CONFLICT (event_id) DO NOTHING');
  const upserts = ROLLUP_UPSERTS.map(({ table, columns, conflict }) => insertInto(db, table, columns, conflict));
  return {
    project(call, stamp) {
      const fact = costFact(call, stamp);
      // Not remembered: a key that is rolled back is given to another session.
      const session_key = keyOf.get(fact.session_id) ?? Number(insertSession(fact).lastInsertRowid);
      const row = { ...fact, session_key };
      if (insertFact(row).changes === 0) return;
      for (const upsert of upserts) upsert(row);
    },
  };
}
