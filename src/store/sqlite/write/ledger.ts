// The ledger and its rollups: one cost fact per finished call, projected in the transaction of its event (07 §9.3).
import type Database from 'better-sqlite3';
import { type CallRecorded, costFact } from '#core/policy/journal/cost-fact.ts';
import type { SessionStamp } from '#core/policy/journal/prepare.ts';
import { FACT_COLUMNS, LEDGER_SESSION_COLUMNS, LEDGER_SESSION_KEY, ROLLUP_UPSERTS } from '#store/write/events.ts';
import { insertRow, type Tx } from '#store/write/transaction.ts';

export interface Ledger {
  /**
   * Inserts the fact and adds it to the rollups; an event that is already there changes nothing.
   * Throws when a money sum would leave 64 bits: the caller's transaction must fail as a whole.
   */
  project(call: CallRecorded, stamp: SessionStamp): void;
}

const insertSession = insertRow('ledger_sessions', LEDGER_SESSION_COLUMNS);
const insertFact = insertRow('ledger_calls', FACT_COLUMNS, 'ON CONFLICT (event_id) DO NOTHING');
const upserts = ROLLUP_UPSERTS.map(({ table, columns, conflict }) => insertRow(table, columns, conflict));

export function createLedger(db: Database.Database, tx: Tx): Ledger {
  const readKey = db.prepare<[string], number>(LEDGER_SESSION_KEY).pluck();

  /** Not remembered: a key that is rolled back is given to another session. */
  function sessionKey(fact: ReturnType<typeof costFact>): number {
    const known = readKey.get(fact.session_id);
    if (known !== undefined) return known;
    insertSession(tx, fact);
    return readKey.get(fact.session_id)!;
  }
  return {
    project(call, stamp) {
      const fact = costFact(call, stamp);
      const row = { ...fact, session_key: sessionKey(fact) };
      insertFact(tx, row, ({ changes }) => {
        if (changes === 0) return;
        for (const upsert of upserts) upsert(tx, row);
      });
    },
  };
}
