// A schema of PostgreSQL with one node on it, emptied for each test.
import path from 'node:path';
import { costFact, roundRows } from '#core/policy/journal/cost-fact.ts';
import type { Journal } from '#core/ports/journal-writer.ts';
import { silentLogger } from '#core/ports/logger.ts';
import { systemClock } from '#protocol/clock.ts';
import { createIdGenerator } from '#protocol/ids.ts';
import { createBus } from '#store/bus/memory/local-bus.ts';
import { createRootWatch } from '#store/cluster/shared-roots.ts';
import { createTrees } from '#store/cluster/trees.ts';
import { openDatabase } from '#store/postgres/connection/open.ts';
import { createAnalytics } from '#store/postgres/report/analytics.ts';
import { writeEvents } from '#store/postgres/write/event-log.ts';
import { createJournal } from '#store/postgres/write/journal.ts';
import { rebuildRollups, verifyPostgresRollups } from '#store/postgres/write/postgres-maintenance.ts';
import { ownSchema, type Schema } from '../support/services.ts';
import { type Database, momentsThenNow, NOW, type World, worldOver } from './world.ts';

export interface PostgresDatabase {
  readonly schema: Schema;
  emptyWorld(): Promise<World>;
  close(): Promise<void>;
}

const KEPT = ['event_types', 'meta', 'nodes'];

/** @param statementMs the longest statement; as nodes have it unless told */
export async function startDatabase(service: string, statementMs?: number): Promise<PostgresDatabase> {
  const schema = await ownSchema(service);
  const { times, now } = momentsThenNow();
  const clock = { ...systemClock, now };
  const log = silentLogger;
  const migrationsDir = path.resolve(import.meta.dirname, '../../migrations/postgres');
  const pool = await openDatabase({
    url: schema.url,
    size: 4,
    synchronousCommit: 'off',
    ...(statementMs === undefined ? {} : { statementMs }),
    log,
    migrationsDir,
    clock,
  });
  const ids = createIdGenerator(() => NOW, Math.random);
  const trees = createTrees({
    pool,
    heartbeat: pool.send,
    selfAt: () => ({ name: 'reports', url: '', version: '0', places: ['shared:/'], configKeys: {}, schema: 0 }),
    roots: createRootWatch([], async () => null, log),
    files: { shared_roots: ['/'], no_files: '' },
    // No test here is about a lease, and a property may hold this process up on a busy machine.
    leaseSeconds: 3600,
    ids,
    clock,
    log,
  });
  await trees.join(
    { url: '' },
    { running: () => 0, inUse: () => true, watched: () => false, takeUp: async () => {}, abandonTree: async () => {} },
  );
  const kept = { keepCurrent: () => {}, forget: () => {} };
  const journal = createJournal({ pool, trees, ids, clock, bus: createBus(log), log, ...kept });
  const all = async (sql: string, ...values: unknown[]) =>
    (await pool.send<Record<string, unknown>>(sql, values, 'exact')).rows;
  const database: Database = {
    journal: byTree(journal, (session) => rootOf(session)),
    analytics: createAnalytics(pool),
    stored: all,
    execute: async (sql, ...values) => void (await pool.send(sql, values)),
    count: async (table) => Number((await all(`SELECT count(*) AS n FROM ${table}`))[0]?.n),
    typesOf: async (table, column) =>
      (await all(`SELECT DISTINCT CAST(pg_typeof(${column}) AS text) AS type FROM ${table}`)).map(({ type }) =>
        type === 'bigint' ? 'integer' : String(type),
      ),
    project: (call, stamp) =>
      pool.transaction(async (tx) => {
        const fact = costFact(call, stamp);
        const facts = [{ ...fact, session_key: fact.session_id }];
        const written = { typeNumbers: pool.typeNumbers, events: [], facts, rounds: roundRows(call), owned: facts };
        writeEvents(written, tx, { events: new Set(), facts: new Set() });
      }),
    differences: () => verifyPostgresRollups(pool),
    rebuildRollups: () => rebuildRollups(pool),
  };
  const roots = new Map<string, string>();
  async function rootOf(session: string): Promise<string> {
    const known = roots.get(session);
    if (known !== undefined) return known;
    const [row] = await all('SELECT root_session_id FROM sessions WHERE id = ?', session);
    const root = String(row?.root_session_id ?? '');
    roots.set(session, root);
    return root;
  }
  const tables = await all(`SELECT CAST(tablename AS text) AS name FROM pg_tables WHERE schemaname = current_schema()`);
  const emptied = tables.map(({ name }) => String(name)).filter((name) => !KEPT.includes(name));
  return {
    schema,
    async emptyWorld() {
      times.length = 0;
      // Quicker than to truncate; references are looked at when all of it is done.
      const each = emptied.map((table, i) => `gone${i} AS (DELETE FROM ${table})`);
      await pool.send(`WITH ${each.join(', ')} SELECT 1`, []);
      return worldOver(database, ids, times);
    },
    async close() {
      await trees.close();
      await pool.close();
      await schema.drop();
    },
  };
}

/** A batch belongs to one tree: what a test tells of several at once comes as one commit a run of events of one tree (16 §3.1). */
function byTree(journal: Journal, rootOf: (session: string) => Promise<string>): Journal {
  return {
    ...journal,
    async commit(batch) {
      const roots: string[] = [];
      for (const { session_id } of batch.emit as readonly { session_id: string }[])
        roots.push(await rootOf(session_id));
      const events: Awaited<ReturnType<Journal['commit']>>[number][] = [];
      let from = 0;
      do {
        let to = from;
        while (to < roots.length && roots[to] === roots[from]) to += 1;
        const part = { ...batch, writes: from === 0 ? (batch.writes ?? []) : [], emit: batch.emit.slice(from, to) };
        events.push(...(await journal.commit(part)));
        from = to;
      } while (from < roots.length);
      return events;
    },
  };
}
