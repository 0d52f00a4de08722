// One process on a SQLite file: it owns every tree and waits for nobody.
import path from 'node:path';
import { createBus } from '../../bus/memory/bus.ts';
import type { NodeInfo, Trees } from '../../ports/trees.ts';
import { databaseFault, openDatabase, type SqliteStoreHandle } from '../../store/sqlite/connection/open.ts';
import { newestId } from '../../store/sqlite/read/id-seed.ts';
import { createPriceVersionReader } from '../../store/sqlite/read/price-version-reader.ts';
import { createStore } from '../../store/sqlite/read/store.ts';
import { createAnalytics } from '../../store/sqlite/report/analytics.ts';
import { createThreadedAnalytics, type ThreadedAnalytics } from '../../store/sqlite/report/threaded-analytics.ts';
import { createJournal } from '../../store/sqlite/write/journal.ts';
import type { Storage, StorageOptions } from './storage.ts';

/** Throws `StartupError`; what was opened by then is closed again. */
export function openEmbedded(options: StorageOptions): Storage {
  const { config, packageDir, log, ids, clock, trusted } = options;
  const { db_path, synchronous } = config.storage;
  const migrationsDir = path.join(packageDir, 'migrations');
  const database = openDatabase({ path: db_path, synchronous, migrationsDir, log });
  try {
    return openedStorage(database);
  } catch (error) {
    database.close();
    throw databaseFault(db_path, error);
  }

  function openedStorage(db: SqliteStoreHandle): Storage {
    const floor = newestId(db.db);
    if (floor !== null) ids.seed(floor);
    const bus = createBus(log);
    const reports = options.reportsOnThread ? threadedReports(options) : null;
    return {
      bus,
      journal: createJournal({ db, ids, clock, bus, log, trusted }),
      store: createStore(db),
      analytics: reports ?? createAnalytics(db.reader),
      priceVersions: createPriceVersionReader(db.reader),
      trees: createOwnTrees(),
      dayLimit: null,
      alone: true,
      fault: (cause) => databaseFault(db_path, cause),
      close: async () => {
        await reports?.close();
        db.close();
      },
    };
  }
}

const HELD = { own: true, release: () => {} } as const;

/** Every tree is this process's. */
export function createOwnTrees(): Trees {
  const nodes: NodeInfo[] = [];
  return {
    join: async () => {},
    hold: () => HELD,
    holds: () => true,
    onLost: () => {},
    drain: () => {},
    releaseAll: async () => {},
    nodes: async () => nodes,
  };
}

function threadedReports({ config, packageDir, log }: StorageOptions): ThreadedAnalytics {
  // From source like this file, where Node itself runs TypeScript: a test runner may, on a Node that does not.
  const fromSource = import.meta.filename.endsWith('.ts') && process.features.typescript !== false;
  const [folder, ending] = fromSource ? ['src', 'ts'] : ['dist', 'js'];
  const program = path.join(packageDir, folder, 'store', 'sqlite', 'report', `analytics-thread.${ending}`);
  const { free_providers: freeProviders } = config.pricing;
  return createThreadedAnalytics(program, { path: config.storage.db_path, freeProviders }, log);
}
