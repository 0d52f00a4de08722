// A real SQLite file in a temporary folder with its journal, store and bus; the clock is set by the test.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { onTestFinished } from 'vitest';
import type { Published } from '#core/ports/live-bus.ts';
import { type Clock, systemClock } from '#protocol/clock.ts';
import { createIdGenerator } from '#protocol/ids.ts';
import { createBus } from '#store/bus/memory/local-bus.ts';
import { createStore } from '#store/read/store.ts';
import { newestId } from '#store/sqlite/connection/id-seed.ts';
import { openDatabase, type SqliteStoreHandle } from '#store/sqlite/connection/open.ts';
import { createReadDatabase } from '#store/sqlite/connection/reads.ts';
import { createJournal } from '#store/sqlite/write/journal.ts';
import { rebuildRollups, verifySqliteRollups } from '#store/sqlite/write/sqlite-maintenance.ts';
import { type LogLine, NOON, recordingLogger, type World } from '../suite/world.ts';

export const MIGRATIONS = resolve(import.meta.dirname, '../../../migrations');

export interface SqliteWorld extends World {
  readonly path: string;
  readonly handle: SqliteStoreHandle;
  reopen(start?: number): Promise<SqliteWorld>;
}

export function tempFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'metis-store-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

export function openWorld(path = join(tempFolder(), 'metis.db'), start = NOON): SqliteWorld {
  const logged: LogLine[] = [];
  const log = recordingLogger(logged);
  const handle = openDatabase({ path, synchronous: 'NORMAL', migrationsDir: MIGRATIONS, log });
  onTestFinished(() => handle.close());
  const { db } = handle;
  const time = { now: start };
  const clock: Clock = { ...systemClock, now: () => time.now };
  const ids = createIdGenerator(clock.now, Math.random);
  const seed = newestId(db);
  if (seed !== null) ids.seed(seed);
  const bus = createBus(log);
  const published: Published[] = [];
  bus.subscribe('test', (items) => void published.push(...items));
  const rows = async (sql: string, ...values: unknown[]) =>
    db
      .prepare<unknown[], Record<string, unknown>>(sql)
      .safeIntegers()
      .all(...values);
  return {
    several: false,
    path,
    handle,
    journal: createJournal({ db: handle, ids, clock, bus, log }),
    store: createStore(createReadDatabase(db), handle.caches),
    bus,
    ids,
    time,
    published,
    logged,
    rows,
    eventsAsWritten: async () => db.prepare<[], string>('SELECT id FROM event_rows ORDER BY rowid').pluck().all(),
    count: async (table) => db.prepare<[], number>(`SELECT count(*) FROM ${table}`).pluck().get() ?? -1,
    execute: async (sql, ...values) => void db.prepare(sql).run(...values),
    failOn: async (word) => {
      db.exec(`CREATE TRIGGER full BEFORE INSERT ON event_rows WHEN new.payload_json LIKE '%${word}%'
        BEGIN SELECT raise(ROLLBACK, 'disk full'); END`);
    },
    async moneyTypes() {
      const columns = await rows(`
        SELECT t.name AS tab, c.name AS col FROM pragma_table_list t, pragma_table_info(t.name) c
        WHERE t.schema = 'main' AND c.name LIKE '%\\_pusd%' ESCAPE '\\'`);
      const types: Record<string, string[]> = {};
      for (const { tab, col } of columns) {
        const classes = await rows(`SELECT DISTINCT typeof(${col}) AS class FROM ${tab}`);
        types[`${tab}.${col}`] = classes.map((row) => String(row.class));
      }
      return types;
    },
    differences: async () => verifySqliteRollups(db),
    rebuildRollups: async () => rebuildRollups(db),
    close: async () => handle.close(),
    async reopen(from = time.now) {
      handle.close();
      return openWorld(path, from);
    },
  };
}
