// A real database filled through the real journal: sessions in trees, calls at chosen moments.
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { onTestFinished } from 'vitest';
import { encodeCursor, parseCostQuery } from '#core/policy/analytics/query.ts';
import type { CallRecorded } from '#core/policy/journal/cost-fact.ts';
import type { SessionStamp } from '#core/policy/journal/prepare.ts';
import type { PriceTable } from '#core/policy/pricing/price-table.ts';
import type { Journal, Write } from '#core/ports/journal-writer.ts';
import { silentLogger } from '#core/ports/logger.ts';
import type { Analytics, CallPricer, CostAnswer } from '#core/ports/report-reader.ts';
import type { CostRow, CostTotals } from '#protocol/analytics.ts';
import type { LlmCallCompleted } from '#protocol/event/turn-events.ts';
import type { Event, EventDraft } from '#protocol/event.ts';
import { createIdGenerator, type IdGenerator } from '#protocol/ids.ts';
import { fromPusd } from '#protocol/money.ts';
import type { Tier } from '#protocol/scalars.ts';
import type { SessionRecord } from '#protocol/session.ts';
import { NO_TOKENS, type TokenUsage } from '#protocol/usage.ts';
import { createBus } from '#store/bus/memory/local-bus.ts';
import { openDatabase, type SqliteStoreHandle } from '#store/sqlite/connection/open.ts';
import { createTx } from '#store/sqlite/connection/reads.ts';
import { createAnalytics } from '#store/sqlite/report/analytics.ts';
import { createLedger } from '#store/sqlite/write/event-log.ts';
import { createJournal } from '#store/sqlite/write/journal.ts';
import { rebuildRollups, verifySqliteRollups } from '#store/sqlite/write/sqlite-maintenance.ts';
import { callCompleted } from '../support/drafts.ts';
import { manualClock } from '../support/manual-clock.ts';
import { newDatabase } from '../support/new-database.ts';
import { delegationRecord, type Source, sessionRecord, workerRecord } from '../support/records.ts';

export const OPUS = 'anthropic:claude-opus-4-7';
export const SONNET = 'anthropic:claude-sonnet-4-6';
export const HAIKU = 'anthropic:claude-haiku-4-5';
/** Later than every call of the tests. */
export const NOW = Date.parse('2026-06-10T12:00:00Z');

export interface WorkerOptions {
  readonly tier?: Tier | null;
  readonly by?: string;
  readonly name?: string | null;
}
export interface Call {
  readonly session: SessionRecord;
  readonly at: number;
  readonly model: string;
  /** Priced with this table, unless `cost_usd` says otherwise. */
  readonly prices?: PriceTable;
  readonly tokens?: Partial<TokenUsage>;
  readonly latency_ms?: number;
  readonly over?: Partial<LlmCallCompleted>;
}

/** What a database is filled and asked through. Its SQL is what every database understands, with `?` for values. */
export interface Database {
  readonly journal: Journal;
  readonly analytics: Analytics;
  /** Rows, integers as bigint. */
  stored(sql: string, ...values: unknown[]): Promise<readonly Record<string, unknown>[]>;
  execute(sql: string, ...values: unknown[]): Promise<void>;
  count(table: string): Promise<number>;
  /** Types of the values in a column. */
  typesOf(table: string, column: string): Promise<readonly string[]>;
  /** Adds a call to the ledger and its rollups past the journal. */
  project(call: CallRecorded, stamp: SessionStamp): Promise<void>;
  /** Between rollups, ledger and events. */
  differences(): Promise<readonly string[]>;
  rebuildRollups(): Promise<void>;
}

/** Opens an empty database; it goes with the test. */
export type OpenWorld = () => Promise<World>;

export interface World extends Database {
  planner(workspace?: string, over?: Partial<SessionRecord>): Promise<SessionRecord>;
  worker(parent: SessionRecord, options?: WorkerOptions): Promise<SessionRecord>;
  /** All in one commit, in this order, each with its own time. */
  record(calls: readonly Call[]): Promise<readonly Event[]>;
  /** Any other event, at this moment. */
  emit(at: number, events: readonly EventDraft[]): Promise<readonly Event[]>;
  /** `GET /analytics/cost?from=all&<query>` as of `NOW`. */
  cost(query: string, pricer?: CallPricer | null): Promise<CostAnswer>;
  rows(query: string, pricer?: CallPricer | null): Promise<readonly CostRow[]>;
  /** Every row, fetched page by page. */
  walk(query: string, limit: number, pricer?: CallPricer | null): Promise<readonly CostRow[]>;
  none(query?: string, pricer?: CallPricer | null): Promise<CostTotals>;
}

/** With the database as SQLite has it. */
export interface SqliteWorld extends World {
  readonly folder: string;
  /** Lets go of the database, for a server to open. */
  close(): void;
  readonly db: SqliteStoreHandle;
}

/** Moments for the events to come, each taken once; then `NOW`. */
export function momentsThenNow(): { readonly times: number[]; readonly now: () => number } {
  const times: number[] = [];
  return { times, now: () => times.shift() ?? NOW };
}

export function openWorld(): SqliteWorld {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'metis-analytics-'));
  const file = path.join(folder, 'metis.db');
  newDatabase(file);
  const db = openDatabase({
    path: file,
    synchronous: 'NORMAL',
    migrationsDir: path.resolve(import.meta.dirname, '../../migrations'),
    log: silentLogger,
  });
  onTestFinished(() => {
    db.close();
    fs.rmSync(folder, { recursive: true, force: true });
  });
  const { times, now } = momentsThenNow();
  const clock = { ...manualClock(NOW), now };
  const ids = createIdGenerator(() => NOW, Math.random);
  const asked = (sql: string, ...values: unknown[]) =>
    db.db
      .prepare(sql)
      .safeIntegers()
      .all(...values) as Record<string, unknown>[];
  const database: Database = {
    journal: createJournal({ db, ids, clock, bus: createBus(silentLogger), log: silentLogger }),
    analytics: createAnalytics(db.reader),
    stored: async (sql, ...values) => asked(sql, ...values),
    execute: async (sql, ...values) => void db.db.prepare(sql).run(...values),
    count: async (table) => Number(asked(`SELECT count(*) AS n FROM ${table}`)[0]?.n),
    typesOf: async (table, column) =>
      asked(`SELECT DISTINCT typeof(${column}) AS type FROM ${table}`).map(({ type }) => String(type)),
    project: async (call, stamp) => createLedger(db.db, createTx(db.db), () => true).project(call, stamp),
    differences: async () => verifySqliteRollups(db.reader),
    rebuildRollups: async () => rebuildRollups(db.db),
  };
  return { ...worldOver(database, ids, times), folder, close: () => db.close(), db };
}

/** @param times moments of the events to come, of the journal's clock */
export function worldOver(database: Database, ids: IdGenerator, times: number[]): World {
  const { journal, analytics } = database;
  const source = { ids, time: { now: NOW } };

  async function emit(moments: readonly number[], writes: readonly Write[], events: readonly EventDraft[]) {
    times.push(...moments);
    return journal.commit({ writes, emit: events });
  }
  async function session(record: SessionRecord, writes: readonly Write[]): Promise<SessionRecord> {
    await emit([], [{ kind: 'session.insert', session: record }, ...writes], []);
    return record;
  }
  const parse = (query: string) => {
    const parsed = parseCostQuery({ from: 'all', ...Object.fromEntries(new URLSearchParams(query)) }, NOW);
    if (!parsed.ok) throw new Error(JSON.stringify(parsed.error));
    return parsed.value;
  };
  const cost: World['cost'] = async (query, pricer = null) => analytics.cost(parse(query).query, pricer);

  return {
    ...database,
    planner: (workspace_hash = 'a'.repeat(64), over = {}) =>
      session(sessionRecord(source, { workspace_hash, ...over }), []),
    worker(parent, { tier = 'fast', by = OPUS, name = null } = {}) {
      const worker_digest = name && 'd'.repeat(64);
      const call = ids.toolUse();
      const record = workerRecord(source, parent, call, {
        workspace_hash: parent.workspace_hash,
        delegated_by_model: by,
        worker_name: name,
        worker_digest,
        worker_origin: name === null ? null : 'project',
      });
      const delegation = delegationRecord(source, { id: ids.turn(), session_id: parent.id }, call, {
        worker_session_id: record.id,
        entry: name === null ? 'delegate' : 'worker_tool',
        worker_name: name,
        worker_digest,
        tier,
      });
      return session(record, [{ kind: 'delegation.insert', delegation }]);
    },
    record: (calls) =>
      emit(
        calls.map((call) => call.at),
        [],
        calls.map((call) => completed(call, source)),
      ),
    emit: (at, events) =>
      emit(
        events.map(() => at),
        [],
        events,
      ),
    cost,
    rows: async (query, pricer) => {
      const { data } = await cost(query, pricer);
      return Array.isArray(data) ? data : [];
    },
    async walk(query, limit, pricer = null) {
      const rows: CostRow[] = [];
      for (let cursor = ''; ; ) {
        const request = parse(`${query}&limit=${limit}${cursor && `&cursor=${cursor}`}`);
        const { data, next } = await analytics.cost(request.query, pricer);
        rows.push(...(data as readonly CostRow[]));
        if (next === null) return rows;
        cursor = encodeCursor(request, next);
      }
    },
    none: async (query = '', pricer = null) => (await cost(`group_by=none&${query}`, pricer)).data as CostTotals,
  };
}

/** The event of one call. */
export function completed({ session, model, prices, tokens, latency_ms = 0, over }: Call, of: Source) {
  const usage: TokenUsage = { ...NO_TOKENS, ...tokens };
  const priced = prices?.cost(model, usage);
  return callCompleted(of, session, null, {
    ...usage,
    cost_usd: fromPusd(priced?.cost_pusd ?? 0n),
    pricing_version: prices?.version ?? 'A',
    priced: priced?.priced ?? true,
    latency_ms,
    model,
    ...over,
  });
}
