// One process on a SQLite file: it owns every tree and waits for nobody.
import path from 'node:path';
import type { Trees } from '#core/ports/trees.ts';
import { createBus } from '#store/bus/memory/bus.ts';
import { createPriceVersionReader, createStore } from '#store/read/store.ts';
import { newestId } from '#store/sqlite/connection/id-seed.ts';
import { databaseFault, openDatabase, type SqliteStoreHandle } from '#store/sqlite/connection/open.ts';
import { createReadDatabase, createReads } from '#store/sqlite/connection/reads.ts';
import { createAnalytics } from '#store/sqlite/report/analytics.ts';
import { createThreadedAnalytics, type ThreadedAnalytics } from '#store/sqlite/report/threaded-analytics.ts';
import { createJournal } from '#store/sqlite/write/journal.ts';
import type { Storage, StorageOptions } from './storage.ts';
import { findThreadProgram } from './thread-program.ts';

/** Throws `StartupError`; what was opened by then is closed again. */
export function openEmbedded(options: StorageOptions): Storage {
  const { config, packageDir, log, ids, clock, trusted } = options;
  const { db_path, synchronous } = config.storage;
  const migrationsDir = path.join(packageDir, 'migrations');
  const database = openDatabase({ path: db_path, synchronous, migrationsDir, log });
  try {
    return createStorage(database);
  } catch (error) {
    database.close();
    throw databaseFault(db_path, error);
  }

  function createStorage(db: SqliteStoreHandle): Storage {
    const floor = newestId(db.db);
    if (floor !== null) ids.seed(floor);
    const bus = createBus(log);
    const store = createStore(createReadDatabase(db.db), db.caches);
    const reports = options.reportsOnThread ? startReportThread(options) : null;
    return {
      bus,
      journal: createJournal({ db, ids, clock, bus, log, trusted }),
      store,
      analytics: reports ?? createAnalytics(db.reader),
      priceVersions: createPriceVersionReader(createReads(db.reader)),
      trees: createOwnTrees({
        version: options.version,
        id: () => ids.next(),
        open: async () => (await store.sessions.counts()).active_sessions,
      }),
      dayLimit: null,
      notices: null,
      fault: (cause) => databaseFault(db_path, cause),
      close: async () => {
        await reports?.close();
        db.close();
      },
    };
  }
}

const HELD = { own: true, epoch: 0, release: () => {} } as const;

/** What an embedded server says of itself. */
export interface Alone {
  readonly version: string;
  readonly id: () => string;
  /** Of all session trees, how many are open. */
  readonly open: () => Promise<number>;
}

/** Every tree is this process's. */
export function createOwnTrees({ version, id, open }: Alone): Trees {
  let node = '';
  let url = '';
  let running = () => 0;
  let draining = false;
  return {
    several: false,
    get node() {
      return node;
    },
    get url() {
      return url;
    },
    unready: () => null,
    join: async (bound, work) => {
      node = id();
      url = bound.url;
      running = () => work.running();
    },
    hold: () => HELD,
    holds: () => true,
    giveUp: () => {},
    onLost: () => {},
    drain: () => {
      draining = true;
    },
    releaseAll: async () => {},
    async nodes() {
      const name = url === '' ? '' : new URL(url).host;
      const trees = await open();
      return [{ id: node, name, version, url, draining, places: [], turns: running(), trees, config_matches: true }];
    },
  };
}

function startReportThread({ config, packageDir, log }: StorageOptions): ThreadedAnalytics {
  const program = findThreadProgram(packageDir, 'store/sqlite/report/analytics-thread');
  const { free_providers: freeProviders } = config.pricing;
  return createThreadedAnalytics(program, { path: config.storage.db_path, freeProviders }, log);
}
