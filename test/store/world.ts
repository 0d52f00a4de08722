// A real database in a temporary folder with its journal, store and bus; the clock is set by the test.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { onTestFinished } from 'vitest';
import { createBus } from '../../src/bus/memory/bus.ts';
import type { AnyEvent } from '../../src/domain/event.ts';
import { type Clock, systemClock } from '../../src/kernel/clock.ts';
import { createIdGenerator, type IdGenerator } from '../../src/kernel/ids.ts';
import type { Journal } from '../../src/ports/journal.ts';
import type { LiveBus, Published } from '../../src/ports/live-bus.ts';
import { type Logger, silentLogger } from '../../src/ports/log.ts';
import type { Store } from '../../src/ports/store.ts';
import { openDatabase, type SqliteStoreHandle } from '../../src/store/sqlite/connection/open.ts';
import { newestId } from '../../src/store/sqlite/read/id-seed.ts';
import { createStore } from '../../src/store/sqlite/read/store.ts';
import { createJournal } from '../../src/store/sqlite/write/journal.ts';

export const MIGRATIONS = resolve(import.meta.dirname, '../../migrations');

export interface LogLine {
  readonly level: 'warn' | 'error';
  readonly fields: Readonly<Record<string, unknown>>;
  readonly message: string;
}

export interface World {
  readonly path: string;
  readonly handle: SqliteStoreHandle;
  readonly journal: Journal;
  readonly store: Store;
  readonly bus: LiveBus;
  readonly ids: IdGenerator;
  /** Unix milliseconds; set it to move the time. */
  readonly time: { now: number };
  readonly published: Published[];
  readonly logged: LogLine[];
  /** Rows of a query, integers as bigint. */
  rows(sql: string, ...values: unknown[]): Record<string, unknown>[];
  count(table: string): number;
  reopen(): World;
}

export function tempFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'metis-store-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

export function recordingLogger(lines: LogLine[]): Logger {
  const log: Logger = {
    ...silentLogger,
    warn: (fields, message) => lines.push({ level: 'warn', fields, message }),
    error: (fields, message) => lines.push({ level: 'error', fields, message }),
    child: () => log,
  };
  return log;
}

export const NOON = Date.parse('2026-05-08T12:00:00.000Z');

export function openWorld(path = join(tempFolder(), 'metis.db'), start = NOON): World {
  const logged: LogLine[] = [];
  const log = recordingLogger(logged);
  const handle = openDatabase({ path, synchronous: 'NORMAL', migrationsDir: MIGRATIONS, log });
  onTestFinished(() => handle.close());
  const time = { now: start };
  const clock: Clock = { ...systemClock, now: () => time.now };
  const ids = createIdGenerator(clock.now, Math.random);
  const seed = newestId(handle.db);
  if (seed !== null) ids.seed(seed);
  const bus = createBus(log);
  const published: Published[] = [];
  bus.subscribe('test', (items) => void published.push(...items));
  const journal = createJournal({ db: handle, ids, clock, bus, log });
  return {
    path,
    handle,
    journal,
    store: createStore(handle),
    bus,
    ids,
    time,
    published,
    logged,
    rows: (sql, ...values) =>
      handle.db
        .prepare<unknown[], Record<string, unknown>>(sql)
        .safeIntegers()
        .all(...values),
    count: (table) => handle.db.prepare<[], number>(`SELECT count(*) FROM ${table}`).pluck().get() ?? -1,
    reopen() {
      handle.close();
      return openWorld(path, time.now);
    },
  };
}

export function publishedEvents(world: World): AnyEvent[] {
  return world.published.flatMap((item) => (item.kind === 'event' ? [item.event as AnyEvent] : []));
}
