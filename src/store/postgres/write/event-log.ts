// Inserts events and cost facts of a flush, many rows per statement (02 §2, 16 §3.3).

import { getTableColumns, getTableName, is } from 'drizzle-orm';
import { SQLiteTable } from 'drizzle-orm/sqlite-core';
import { costFact, roundRows } from '#core/policy/journal/cost-fact.ts';
import { type PreparedBatch, type SessionStamp, stampedEvent } from '#core/policy/journal/prepare.ts';
import type { Published } from '#core/ports/live-bus.ts';
import { type Event, type PayloadOf, SYSTEM_SESSION } from '#protocol/event.ts';
import { JournalConflict } from '#protocol/journal-batch.ts';
import { compareText } from '#protocol/text/compare-text.ts';
import { SIMULATED_PROVIDER } from '#protocol/text/simulated.ts';
import * as conversation from '#store/schema/conversation.ts';
import * as ledger from '#store/schema/ledger.ts';
import * as memory from '#store/schema/memory.ts';
import type { TypeNumbers } from '#store/schema/words.ts';
import {
  ADD_OWNER_DAY,
  EVENT_COLUMNS,
  eventRow,
  FACT_COLUMNS,
  LEDGER_SESSION_COLUMNS,
  ROLLUP_UPSERTS,
  ROUND_COLUMNS,
} from '#store/write/events.ts';
import type { Tx } from '#store/write/transaction.ts';
import { encodeTextArray } from '../connection/text-array.ts';

// INSERT statements by the columns of a table: one row, or many as one array a column.

const TYPES: Readonly<Record<string, string>> = { text: 'text', integer: 'bigint', real: 'double precision' };

/** PostgreSQL's type of each column, by table and column. */
const columnTypes = new Map<string, ReadonlyMap<string, string>>(
  Object.values({ ...conversation, ...ledger, ...memory })
    .filter((value) => is(value, SQLiteTable))
    .map((table) => [
      getTableName(table),
      new Map(Object.entries(getTableColumns(table)).map(([name, column]) => [name, TYPES[column.getSQLType()]!])),
    ]),
);

type Row = Readonly<Record<string, unknown>>;

/**
 * Takes any number of rows in one statement.
 * @param keys where a `session_key` is looked up: the rows bring the session's id for it; without a key there the statement
 * fails, so that no row is left out
 */
function insertRows(
  table: string,
  columns: readonly string[],
  conflict = '',
  keys = '',
): (tx: Tx, rows: readonly Row[]) => void {
  const types = columnTypes.get(table)!;
  const columnType = (column: string) => (column === 'session_key' ? 'text' : types.get(column));
  const arrays = columns.map((column) => `CAST(? AS ${columnType(column)}[])`).join(', ');
  // A subquery a row: a join reads the whole table of keys where PostgreSQL has no statistics of it yet.
  const key = `(SELECT s.session_key FROM ${keys} s WHERE s.session_id = r.session_key)`;
  const given = columns.map((column) => (column === 'session_key' ? key : `r.${column}`)).join(', ');
  const from = `unnest(${arrays}) AS r (${columns.join(', ')})`;
  const sql = `INSERT INTO ${table} (${columns.join(', ')}) SELECT ${given} FROM ${from} ${conflict}`;
  return (tx, rows) => {
    if (rows.length === 0) return;
    tx.run(
      sql,
      columns.map((column) => {
        const values = rows.map((row) => row[column] ?? null);
        return columnType(column) === 'text' ? encodeTextArray(values as (string | null)[]) : values;
      }),
    );
  };
}

const insertEvents = insertRows('event_rows', EVENT_COLUMNS, '', 'event_sessions');
const insertEventSessions = insertRows('event_sessions', ['session_id'], 'ON CONFLICT (session_id) DO NOTHING');
const insertSessions = insertRows('ledger_sessions', LEDGER_SESSION_COLUMNS, 'ON CONFLICT (session_id) DO NOTHING');
const insertFacts = insertRows('ledger_calls', FACT_COLUMNS, '', 'ledger_sessions');
const insertRounds = insertRows('llm_call_rounds', ROUND_COLUMNS);
/** A call is charged to the owner of its session and to who submitted its turn: once where they are the same (23 §3). */
const ADD_OWNER_SPEND = `INSERT INTO owner_days (owner, day, cost_pusd)
  SELECT p.owner, c.day, CAST(sum(c.cost_pusd) AS bigint)
  FROM unnest(CAST(@sessions AS text[]), CAST(@turns AS text[]), CAST(@days AS bigint[]), CAST(@costs AS bigint[]))
      AS c (session_id, turn_id, day, cost_pusd),
    LATERAL (SELECT s.owner FROM sessions s WHERE s.id = c.session_id
      UNION SELECT t.submitted_by FROM turns t WHERE t.id = c.turn_id) AS p
  WHERE p.owner IS NOT NULL GROUP BY p.owner, c.day ORDER BY p.owner, c.day ${ADD_OWNER_DAY}`;
const NOTICE = `INSERT INTO notices (receiver, event_id) SELECT CAST(@receiver AS text), unnest(CAST(@ids AS text[]))`;

/** Types of events by the external receiver of their notices. */
export type Noticed = ReadonlyMap<string, ReadonlySet<string>>;
/** Sums over all trees: the transactions of all nodes wait for each other's rows, so they come last. */
const OF_ALL_TREES: readonly string[] = ['rollup_day', 'rollup_bill_hour'];
const rollups = [
  ...ROLLUP_UPSERTS.filter(({ table }) => !OF_ALL_TREES.includes(table)),
  ...ROLLUP_UPSERTS.filter(({ table }) => OF_ALL_TREES.includes(table)),
].map(({ table, key, measures, columns, conflict, apart }) => ({
  apart,
  key,
  measures: measures as readonly string[],
  insert: insertRows(table, columns, conflict, 'ledger_sessions'),
}));

/** The session's key is looked up by the database. */
type Fact = ReturnType<typeof costFact> & { readonly session_key: string };

/** Id and time of an event, generated once: a second attempt writes the same values. */
export interface Drawn {
  readonly id: Event['id'];
  readonly at: number;
}

/** Likewise; receivers of notices get the type as a word. */
type EventFact = ReturnType<typeof eventRow> & { readonly session_key: string; readonly event_type: string };

/** Collects the events and notices of one transaction's batches. */
export interface Collected {
  readonly typeNumbers: TypeNumbers;
  readonly events: EventFact[];
  readonly facts: Fact[];
  readonly rounds: ReturnType<typeof roundRows>;
  /** Facts whose money a person may be charged with. */
  readonly owned: ReturnType<typeof costFact>[];
}

/** What the transaction knows of the sessions and turns of a batch. */
interface Known {
  readonly stampOf: (session: string) => SessionStamp | null;
  readonly mayHaveSubmitter: (turn: string) => boolean;
}

/** The items to publish: events and deltas in order. */
export function collectEvents(
  { emit }: PreparedBatch,
  drawn: readonly Drawn[],
  { stampOf, mayHaveSubmitter }: Known,
  collected: Collected,
): readonly Published[] {
  const published: Published[] = [];
  let next = 0;
  for (const item of emit) {
    if (item.kind === 'transient') {
      published.push(item);
      continue;
    }
    const { draft, payload_json } = item;
    const { id, at } = drawn[next++]!;
    const parent = typeof draft.parent === 'number' ? idAt(published, draft.parent) : draft.parent;
    const stamp = draft.session_id === SYSTEM_SESSION ? null : stampOf(draft.session_id);
    if (stamp === null && draft.session_id !== SYSTEM_SESSION)
      throw new JournalConflict('session_gone', `no session ${draft.session_id}`);
    const event = stampedEvent(draft, { id, at, parent, stamp });
    collected.events.push({
      ...eventRow(event, at, collected.typeNumbers),
      session_key: event.session_id,
      event_type: event.type,
    });
    if (draft.type === 'llm.call_completed' && stamp !== null) {
      const payload = draft.payload as PayloadOf<'llm.call_completed'>;
      const call = { id, at, session_id: event.session_id, turn_id: event.turn_id, payload };
      const fact = costFact(call, stamp);
      collected.facts.push({ ...fact, session_key: fact.session_id });
      const isOwned = fact.owner !== '' || (event.turn_id !== null && mayHaveSubmitter(event.turn_id));
      if (isOwned && fact.provider !== SIMULATED_PROVIDER) collected.owned.push(fact);
      collected.rounds.push(...roundRows(call));
    }
    published.push({ kind: 'event', event, payload_json });
  }
  return published;
}

/** Sessions whose key is stored for certain: for events, and for cost facts. */
export interface Keyed {
  readonly events: ReadonlySet<string>;
  readonly facts: ReadonlySet<string>;
}

/** Statements of a transaction for its events: sessions, events, notices, calls with their sessions and rounds, owners, sums. */
export const MAX_OF_EVENTS = 16;
const NO_RECEIVERS: Noticed = new Map();

/**
 * Throws when a money sum would leave 64 bits: the transaction fails as a whole.
 * @param keyed whose keys need not be looked up
 */
export function writeEvents(
  { events, facts, rounds, owned }: Collected,
  tx: Tx,
  keyed: Keyed,
  noticed: Noticed = NO_RECEIVERS,
): void {
  const unkeyed = events.filter(({ session_id }) => !keyed.events.has(session_id));
  insertEventSessions(tx, [...new Map(unkeyed.map((event) => [event.session_id, event])).values()]);
  insertEvents(tx, events);
  for (const [receiver, types] of noticed) {
    const ids = events.filter(({ event_type }) => types.has(event_type)).map(({ id }) => id);
    if (ids.length > 0) tx.run(NOTICE, { receiver, ids });
  }
  const unbilled = facts.filter(({ session_id }) => !keyed.facts.has(session_id));
  insertSessions(tx, [...new Map(unbilled.map((fact) => [fact.session_id, fact])).values()]);
  insertFacts(tx, facts);
  insertRounds(tx, rounds);
  addOwnerSpend(tx, owned);
  const billedApart = facts.filter(({ bill_json }) => bill_json !== null);
  for (const { key, measures, insert, apart } of rollups) {
    let added = facts;
    if (apart) added = billedApart;
    insert(tx, sumFacts(added, key, measures));
  }
}

function addOwnerSpend(tx: Tx, facts: Collected['owned']): void {
  if (facts.length === 0) return;
  tx.run(ADD_OWNER_SPEND, {
    sessions: facts.map(({ session_id }) => session_id),
    turns: facts.map(({ turn_id }) => turn_id),
    days: facts.map(({ day }) => day),
    costs: facts.map(({ cost_pusd }) => cost_pusd),
  });
}

/** One row per key, in key order: otherwise two flushes could deadlock. */
function sumFacts(facts: readonly Fact[], key: readonly string[], measures: readonly string[]) {
  const rows = new Map<string, Record<string, unknown>>();
  for (const fact of facts as readonly Readonly<Record<string, unknown>>[]) {
    const id = key.map((column) => String(fact[column])).join('\n');
    const row = rows.get(id);
    if (row === undefined) rows.set(id, { ...fact });
    else for (const measure of measures) row[measure] = addIntegers(row[measure], fact[measure]);
  }
  return [...rows].sort(([a], [b]) => compareText(a, b)).map(([, row]) => row);
}

function addIntegers(a: unknown, b: unknown): bigint {
  return BigInt(a as number | bigint) + BigInt(b as number | bigint);
}

function idAt(published: readonly Published[], index: number): Event['parent_event_id'] {
  const item = published[index];
  if (item?.kind === 'event') return item.event.id;
  return null;
}
