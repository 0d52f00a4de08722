// Inserts events: id, time, parent and actor are settled here, inside the transaction (02 §2).
import type Database from 'better-sqlite3';
import { type CallRecorded, costFact, roundRows } from '#core/policy/journal/cost-fact.ts';
import { type PreparedBatch, type SessionStamp, stampedEvent } from '#core/policy/journal/prepare.ts';
import type { Published } from '#core/ports/live-bus.ts';
import type { Clock } from '#protocol/clock.ts';
import { type Event, type EventDraft, type PayloadOf, SYSTEM_SESSION } from '#protocol/event.ts';
import type { IdGenerator } from '#protocol/ids.ts';
import { JournalConflict } from '#protocol/journal-batch.ts';
import { SIMULATED_PROVIDER } from '#protocol/text/simulated.ts';
import type { TypeNumbers } from '#store/schema/words.ts';
import {
  ADD_OWNER_DAY,
  EVENT_COLUMNS,
  EVENT_SESSION_KEY,
  eventRow,
  FACT_COLUMNS,
  LEDGER_SESSION_COLUMNS,
  LEDGER_SESSION_KEY,
  ROLLUP_UPSERTS,
  ROUND_COLUMNS,
} from '#store/write/events.ts';
import { insertRow, insertRows, type Tx } from '#store/write/transaction.ts';
import type { LiveSessions, LiveTurns } from './live-sessions.ts';

/** The numbers of sessions. */
interface Keys {
  find(session: string): number | undefined;
  keepKey(session: string, key: number): void;
  clear(): void;
}

/** Maximum entries, as many as a busy server has open; others are looked up again. */
const MAX_KEYS = 4096;

function createKeys(read: Database.Statement<[string], number>): Keys {
  const known = new Map<string, number>();
  function keepKey(session: string, key: number): void {
    if (known.size >= MAX_KEYS) known.clear();
    known.set(session, key);
  }
  return {
    find(session) {
      const key = known.get(session) ?? read.get(session);
      if (key !== undefined) keepKey(session, key);
      return key;
    },
    keepKey,
    clear: () => known.clear(),
  };
}

// The ledger and its rollups: one cost fact per finished call, projected in the transaction of its event (07 §9.3).

interface Ledger {
  readonly keys: Keys;
  /**
   * Inserts the fact and adds it to the rollups; an event that is already there changes nothing.
   * Throws when a money sum would leave 64 bits: the caller's transaction must fail as a whole.
   */
  project(call: CallRecorded, stamp: SessionStamp): void;
}

/** A call is charged to the owner of its session and to who submitted its turn: once where they are the same (23 §3). */
const ADD_OWNER_SPEND = `INSERT INTO owner_days (owner, day, cost_pusd)
  SELECT p.owner, @day, @cost_pusd FROM (SELECT owner FROM sessions WHERE id = @session_id
    UNION SELECT submitted_by FROM turns WHERE id = @turn_id) AS p WHERE p.owner IS NOT NULL ${ADD_OWNER_DAY}`;
const insertSession = insertRow('ledger_sessions', LEDGER_SESSION_COLUMNS);
const insertFact = insertRow('ledger_calls', FACT_COLUMNS, 'ON CONFLICT (event_id) DO NOTHING');
const insertRound = insertRow('llm_call_rounds', ROUND_COLUMNS);
const upserts = ROLLUP_UPSERTS.map(({ table, columns, conflict, apart }) => ({
  apart,
  add: insertRow(table, columns, conflict),
}));

export function createLedger(db: Database.Database, tx: Tx, mayHaveSubmitter: LiveTurns['mayHaveSubmitter']): Ledger {
  const keys = createKeys(db.prepare<[string], number>(LEDGER_SESSION_KEY).pluck());

  function sessionKey(fact: ReturnType<typeof costFact>): number {
    const known = keys.find(fact.session_id);
    if (known !== undefined) return known;
    insertSession(tx, fact);
    return keys.find(fact.session_id)!;
  }
  return {
    keys,
    project(call, stamp) {
      const fact = costFact(call, stamp);
      const row = { ...fact, session_key: sessionKey(fact) };
      insertFact(tx, row, ({ changes }) => {
        if (changes === 0) return;
        const isApart = fact.bill_json !== null;
        for (const { apart, add } of upserts) if (isApart || !apart) add(tx, row);
        for (const round of roundRows(call)) insertRound(tx, round);
        const isOwned = fact.owner !== '' || (fact.turn_id !== null && mayHaveSubmitter(fact.turn_id));
        if (isOwned && fact.provider !== SIMULATED_PROVIDER) tx.run(ADD_OWNER_SPEND, fact);
      });
    },
  };
}

export interface EventLog {
  /** Returns the items to publish, events and deltas in order. A finished call is also written to the ledger. */
  append(emit: PreparedBatch['emit']): readonly Published[];
  /** Looks the keys of all sessions up again: one that was rolled back or purged is given to another session. */
  forgetKeys(): void;
}

const insertEvents = insertRows('event_rows', EVENT_COLUMNS);

interface EventLogOptions {
  readonly tx: Tx;
  readonly typeNumbers: TypeNumbers;
  readonly ids: IdGenerator;
  readonly clock: Clock;
  readonly sessions: LiveSessions;
  readonly turns: LiveTurns;
}

export function createEventLog(
  db: Database.Database,
  { tx, typeNumbers, ids, clock, sessions, turns }: EventLogOptions,
): EventLog {
  const keys = createKeys(db.prepare<[string], number>(EVENT_SESSION_KEY).pluck());
  const insertKey = db.prepare<[string]>('INSERT INTO event_sessions (session_id) VALUES (?)');
  const ledger = createLedger(db, tx, turns.mayHaveSubmitter);

  function requireStamp(sessionId: string): SessionStamp | null {
    if (sessionId === SYSTEM_SESSION) return null;
    const stamp = sessions.stamp(sessionId);
    if (stamp === null) throw new JournalConflict('session_gone', `no session ${sessionId}`);
    return stamp;
  }

  function requireKey(session: string): number {
    const known = keys.find(session);
    if (known !== undefined) return known;
    const added = Number(insertKey.run(session).lastInsertRowid);
    keys.keepKey(session, added);
    return added;
  }

  /** @param rows of the events of the batch, which are inserted together */
  function appendOne(draft: EventDraft, parent: Event['parent_event_id'], rows: object[]): Event {
    const at = clock.now();
    const stamp = requireStamp(draft.session_id);
    const event = stampedEvent(draft, { id: ids.event(), at, parent, stamp });
    rows.push({ ...eventRow(event, at, typeNumbers), session_key: requireKey(event.session_id) });
    if (draft.type === 'llm.call_completed' && stamp !== null) {
      const payload = draft.payload as PayloadOf<'llm.call_completed'>;
      ledger.project({ id: event.id, at, session_id: event.session_id, turn_id: event.turn_id, payload }, stamp);
    }
    return event;
  }

  return {
    append(emit) {
      const published: Published[] = [];
      const rows: object[] = [];
      for (const item of emit) {
        if (item.kind === 'transient') {
          published.push(item);
          continue;
        }
        const { draft, payload_json } = item;
        const parent = typeof draft.parent === 'number' ? idAt(published, draft.parent) : draft.parent;
        published.push({ kind: 'event', event: appendOne(draft, parent, rows), payload_json });
      }
      insertEvents(tx, rows);
      return published;
    },
    forgetKeys() {
      keys.clear();
      ledger.keys.clear();
    },
  };
}

function idAt(published: readonly Published[], index: number): Event['parent_event_id'] {
  const item = published[index];
  if (item?.kind === 'event') return item.event.id;
  return null;
}
