// Reads over a connection to SQLite.
import type Database from 'better-sqlite3';
import type { Awaitable } from '#protocol/async/awaitable.ts';
import type { EventId } from '#protocol/ids.ts';
import type { ReadDatabase, Reads } from '#store/read/read-database.ts';
import { PRUNED_THROUGH } from '#store/schema/words.ts';
import { type Answer, createAnsweredTx, readValue, type Tx, type Values } from '#store/write/transaction.ts';
import { journalFault } from '../write/conflict.ts';

// Statements of a connection to SQLite, each prepared once, with their values by position.

/** Maximum cached statements. Their texts come from code alone, but reports compose too many to keep all. */
const MAX_STATEMENTS = 256;

type Statement = Database.Statement<unknown[], unknown>;

/** @param isExact whether integers come back as bigint */
function createStatementCache(db: Database.Database, isExact: boolean): (sql: string) => Statement {
  return createCache((sql) => db.prepare<unknown[], unknown>(sql).safeIntegers(isExact));
}

function createCache<T>(make: (sql: string) => T): (sql: string) => T {
  const made = new Map<string, T>();
  return (sql) => {
    const known = made.get(sql);
    if (known !== undefined) return known;
    if (made.size >= MAX_STATEMENTS) made.clear();
    const value = make(sql);
    made.set(sql, value);
    return value;
  };
}

const NO_ROWS: Answer['rows'] = [];

/** Runs statements inside the journal's transactions, which the journal begins and ends. */
export function createTx(db: Database.Database): Tx {
  const prepare = createCache((sql) => {
    const { text, names } = placeByPosition(sql);
    return { statement: db.prepare<unknown[], Record<string, unknown>>(text), names };
  });
  return createAnsweredTx((sql, values, check) => {
    const { statement, names } = prepare(sql);
    const bound = bindValues(names, values);
    if (statement.reader) {
      const rows = statement.all(bound);
      check?.({ rows, changes: rows.length });
    } else {
      const { changes } = statement.run(bound);
      check?.({ rows: NO_ROWS, changes });
    }
  });
}

/** SQLite would look the `@names` up again for every row. */
function placeByPosition(sql: string): { readonly text: string; readonly names: readonly string[] } {
  const names: string[] = [];
  const text = sql.replaceAll(/@(\w+)/g, (_, name: string) => {
    names.push(name);
    return '?';
  });
  return { text, names };
}

function bindValues(names: readonly string[], values: Values): readonly unknown[] {
  if (Array.isArray(values)) return values;
  return names.map((name) => readValue(values, name));
}

/**
 * The driver answers synchronously, so code after a read runs in microtasks. The journal writes in `setImmediate`, and
 * no microtask waits for that: a reader that awaits only reads sees one state, however many statements it needs.
 */
export function createReads(db: Database.Database): Reads {
  const prepare = createStatementCache(db, false);
  const prepareExact = createStatementCache(db, true);
  return {
    all: <Row>(sql: string, ...values: unknown[]) => answerAtOnce(() => prepare(sql).all(...values) as Row[]),
    get: <Row>(sql: string, ...values: unknown[]) => answerAtOnce(() => prepare(sql).get(...values) as Row | undefined),
    allExact: <Row>(sql: string, ...values: unknown[]) => answerAtOnce(() => prepareExact(sql).all(...values) as Row[]),
    getExact: <Row>(sql: string, ...values: unknown[]) =>
      answerAtOnce(() => prepareExact(sql).get(...values) as Row | undefined),
  };
}

/** A fault is a rejection: thrown at once, it would leave the promises of reads beside it without a handler. */
function answerAtOnce<T>(read: () => T): Awaitable<T> {
  try {
    return read();
  } catch (error) {
    return Promise.reject(error);
  }
}

export function createReadDatabase(db: Database.Database): ReadDatabase {
  const reads = createReads(db);
  const begin = db.prepare('BEGIN');
  const commit = db.prepare('COMMIT');

  /**
   * One transaction, since each statement would otherwise open and close its own: a long list would take three times as long.
   * `work` may await nothing but reads, so that the transaction ends before the journal begins the next one. Work that
   * awaits anything else loses the transaction and is rejected.
   */
  async function together<T>(work: () => Promise<T>): Promise<T> {
    if (db.inTransaction) return work();
    begin.run();
    try {
      return await endInMicrotasks(work());
    } finally {
      if (db.inTransaction) commit.run();
    }
  }
  return {
    reads,
    together,
    atOneMoment: (work) => together(() => work(reads)),
    eventMarks,
    probe: async (sql) => db.prepare(sql).run(),
    journalFault,
  };
}

/** Rejects when `work` is pending after all microtasks, before anything else can run. */
function endInMicrotasks<T>(work: Promise<T>): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    work.then(resolve, reject);
    // `process.nextTick` from a microtask runs when no microtask is left.
    queueMicrotask(() =>
      process.nextTick(() => reject(new Error('work in a read transaction awaited something other than a read'))),
    );
  });
}

function eventMarks({ get }: Reads): ReturnType<ReadDatabase['eventMarks']> {
  const readId = async (sql: string, ...values: string[]) =>
    (await get<{ id: EventId | null }>(sql, ...values))?.id ?? null;
  return {
    newestId: () => readId('SELECT max(id) AS id FROM event_rows'),
    prunedThrough: () => readId('SELECT value AS id FROM meta WHERE key = ?', PRUNED_THROUGH),
  };
}
