// A real PostgreSQL schema with its journal, store and bus; the clock is set by the test.

import { resolve } from 'node:path';
import pg from 'pg';
import { onTestFinished } from 'vitest';
import { prepareBatch } from '#core/policy/journal/prepare.ts';
import type { Journal } from '#core/ports/journal-writer.ts';
import type { LiveBus, Published } from '#core/ports/live-bus.ts';
import type { Logger } from '#core/ports/logger.ts';
import type { Hold, TreeWork } from '#core/ports/tree-ownership.ts';
import { type Clock, systemClock } from '#protocol/clock.ts';
import { createIdGenerator, type SessionId } from '#protocol/ids.ts';
import { createBus } from '#store/bus/memory/local-bus.ts';
import { createHeldCaches } from '#store/cluster/held-caches.ts';
import { createRootWatch } from '#store/cluster/shared-roots.ts';
import { createTrees, type NodeTrees } from '#store/cluster/trees.ts';
import { filesIn, openDatabase } from '#store/postgres/connection/open.ts';
import { createReadDatabase } from '#store/postgres/connection/patient-reads.ts';
import type { Pool } from '#store/postgres/connection/pool.ts';
import { createJournal, findPlace, ROOT_OF } from '#store/postgres/write/journal.ts';
import { rebuildRollups, verifyPostgresRollups } from '#store/postgres/write/postgres-maintenance.ts';
import { createStore } from '#store/read/store.ts';
import { ownSchema, type Schema } from '../../support/services.ts';
import { type LogLine, NOON, recordingLogger, type World } from '../suite/world.ts';

export const MIGRATIONS = resolve(import.meta.dirname, '../../../migrations/postgres');

export interface PostgresWorld extends World {
  readonly url: string;
  readonly pool: Pool;
  readonly trees: NodeTrees;
  reopen(start?: number): Promise<PostgresWorld>;
}

/** Migrated, and free for the next test: to make one takes a hundred times as long as to empty it. */
const free = new Set<Schema>();

/** A world on an empty schema, perhaps one that an earlier test of the file has used: the file ends with `dropSchemas`. */
export async function openWorld(service: string): Promise<PostgresWorld> {
  const [used] = free;
  if (used !== undefined) {
    free.delete(used);
    await emptied(used);
  }
  const schema = used ?? (await ownSchema(service));
  // One that a test has failed on may be in use still.
  onTestFinished(({ task }) => void (task.result?.state === 'fail' ? failed : free).add(schema));
  const world = await openSchema(schema.url, NOON);
  return {
    ...world,
    async close() {
      await world.close();
      free.add(schema);
    },
  };
}
const failed = new Set<Schema>();

export async function dropSchemas(): Promise<void> {
  // Files that share a process share these sets.
  for (const schemas of [free, failed]) {
    for (const schema of schemas) await schema.drop();
    schemas.clear();
  }
}

/** Leaves what the migrations leave. */
async function emptied({ url }: Schema): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    await client.query('DROP TRIGGER IF EXISTS full_disk ON event_rows; DROP FUNCTION IF EXISTS fail()');
    const { rows } = await client.query<{ name: string }>(
      "SELECT tablename AS name FROM pg_tables WHERE schemaname = current_schema() AND tablename NOT IN ('meta', 'event_types')",
    );
    await client.query('DELETE FROM event_types WHERE number > 900');
    // Quicker than to truncate; references are looked at when all of it is done.
    const each = rows.map(({ name }, i) => `gone${i} AS (DELETE FROM ${name})`);
    const marks = "DELETE FROM meta WHERE key NOT IN ('schema_version', 'compatible_from')";
    await client.query(`WITH ${each.join(', ')} ${marks}`);
  } finally {
    await client.end();
  }
}

/** What a bus over several nodes needs of its node. */
export type Around = Pick<PostgresWorld, 'pool' | 'store' | 'trees'> & { readonly clock: Clock; readonly log: Logger };

export interface NodeOptions {
  /** In place of one that tells this process alone. */
  readonly bus?: (around: Around) => Promise<LiveBus>;
  readonly name?: string;
  readonly leaseSeconds?: number;
  /** Beside the time of the world, which the test sets. */
  readonly clock?: Clock;
  readonly takeUp?: TreeWork['takeUp'];
  /** What the statements of trees and journal go through. */
  readonly through?: (pool: Pool) => Pool;
  /** Trees are held by whoever commits; else the test holds them. */
  readonly holds?: boolean;
}

export async function openSchema(url: string, start: number, options: NodeOptions = {}): Promise<PostgresWorld> {
  const { name = 'alone', leaseSeconds = 60, holds = false, takeUp = async () => {}, through } = options;
  const logged: LogLine[] = [];
  const log = recordingLogger(logged);
  const time = { now: start };
  const clock: Clock = { ...(options.clock ?? systemClock), now: () => time.now };
  const direct = await openDatabase({
    url,
    size: 4,
    synchronousCommit: 'on',
    log,
    migrationsDir: MIGRATIONS,
    clock,
  });
  const pool = { ...direct, ...through?.(direct) };
  const ids = createIdGenerator(clock.now, Math.random);
  const schema = filesIn(MIGRATIONS).length;
  const trees = createTrees({
    pool,
    heartbeat: pool.send,
    selfAt: ({ url }) => ({ name, url, version: '0', places: [`node:${name}`, 'shared:/'], configKeys: {}, schema }),
    roots: createRootWatch([], async () => null, log),
    files: { shared_roots: ['/'], no_files: '' },
    leaseSeconds,
    ids,
    clock,
    log,
  });
  await trees.join(
    { url: `http://${name}` },
    { running: () => 0, inUse: () => true, watched: () => false, takeUp, abandonTree: async () => {} },
  );
  let open = true;
  const close = async () => {
    if (!open) return;
    open = false;
    await trees.close();
    await pool.close();
  };
  onTestFinished(close);
  const caches = createHeldCaches(trees);
  const store = createStore(createReadDatabase(pool), caches);
  const bus = (await options.bus?.({ pool, store, trees, clock, log })) ?? createBus(log);
  const published: Published[] = [];
  bus.subscribe('test', (items) => void published.push(...items));
  const journal = createJournal({ pool, trees, ids, clock, bus, log, ...caches.following });
  const rows = async (sql: string, ...values: unknown[]) => {
    const found = await pool.send<Record<string, unknown>>(sql, values, 'exact');
    return [...found.rows];
  };
  return {
    several: true,
    url,
    pool,
    trees,
    journal: holds ? holding(journal, trees, pool) : journal,
    store,
    bus,
    ids,
    time,
    published,
    logged,
    rows,
    eventsAsWritten: async () =>
      (await rows('SELECT id FROM event_rows ORDER BY CAST(CAST(xmin AS text) AS bigint), id')).map(({ id }) =>
        String(id),
      ),
    count: async (table) => Number((await rows(`SELECT count(*) AS n FROM ${table}`))[0]?.n ?? -1),
    execute: async (sql, ...values) => void (await pool.send(sql, values)),
    failOn: async (word) => {
      await pool.send(
        `CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS
          $$ BEGIN IF new.payload_json LIKE '%${word}%' THEN RAISE EXCEPTION 'disk full'; END IF; RETURN new; END $$`,
        [],
      );
      await pool.send('CREATE TRIGGER full_disk BEFORE INSERT ON event_rows FOR EACH ROW EXECUTE FUNCTION fail()', []);
    },
    async moneyTypes() {
      const columns = await rows(`
        SELECT CAST(table_name AS text) AS tab, CAST(column_name AS text) AS col, CAST(data_type AS text) AS type
        FROM information_schema.columns WHERE table_schema = current_schema() AND column_name LIKE '%\\_pusd%'`);
      const types: Record<string, string[]> = {};
      for (const { tab, col, type } of columns) {
        const [found] = await rows(`SELECT count(${col}) AS n, count(*) AS all FROM ${tab}`);
        types[`${tab}.${col}`] = [
          ...(found?.n === 0n ? [] : [type === 'bigint' ? 'integer' : String(type)]),
          ...(found?.n === found?.all ? [] : ['null']),
        ];
      }
      return types;
    },
    differences: () => verifyPostgresRollups(pool),
    rebuildRollups: () => rebuildRollups(pool),
    close,
    async reopen(from = time.now) {
      await close();
      return openSchema(url, from, { holds: true });
    },
  };
}

/** What is held to the end keeps the node from going down for as long as the longest request. */
export function released<H extends Hold | null>(hold: H): H {
  if (hold?.own) hold.release();
  return hold;
}

/** The engine holds a tree before it writes; here the journal does. */
function holding(journal: Journal, trees: NodeTrees, pool: Pool): Journal {
  const hold = async (by: keyof typeof ROOT_OF, id: string) => {
    const { rows } = await pool.send<{ root: SessionId }>(ROOT_OF[by], [id]);
    const root = rows[0]?.root;
    if (root !== undefined && !trees.holds(root)) released(await trees.hold(root));
  };
  return {
    ...journal,
    async commit(batch) {
      const place = findPlace(prepareBatch(batch));
      if (place !== null) await hold(place.by === 'root' ? 'session' : place.by, place.id);
      return journal.commit(batch);
    },
    async purge(sessionId) {
      await hold('session', sessionId);
      return journal.purge(sessionId);
    },
  };
}
