// What a server keeps its data in: a file of its own, or a database that nodes share (16 §12).
import fs from 'node:fs';
import path from 'node:path';
import { isBelow } from '#core/policy/cluster/tree-place.ts';
import type { Journal } from '#core/ports/journal-writer.ts';
import type { LiveBus } from '#core/ports/live-bus.ts';
import type { Logger } from '#core/ports/logger.ts';
import type { StorageFigures } from '#core/ports/meter.ts';
import type { Notices } from '#core/ports/notice-queue.ts';
import type { PriceVersions } from '#core/ports/price-versions.ts';
import type { Analytics } from '#core/ports/report-reader.ts';
import type { DayLimit } from '#core/ports/shared-limit.ts';
import type { Store } from '#core/ports/store-reader.ts';
import type { Trees } from '#core/ports/tree-ownership.ts';
import type { WorkspaceLock } from '#core/ports/worktrees.ts';
import type { Clock } from '#protocol/clock.ts';
import type { Config } from '#protocol/config.ts';
import { StartupError } from '#protocol/errors.ts';
import { makeFolder } from '#protocol/folder.ts';
import type { IdGenerator } from '#protocol/ids.ts';
import { readErrorMessage } from '#protocol/text/error-message.ts';
import { createBus } from '#store/bus/memory/local-bus.ts';
import { COUNT_DELIVERIES } from '#store/read/delegations.ts';
import { createPriceVersionReader, createStore } from '#store/read/store.ts';
import { newestId } from '#store/sqlite/connection/id-seed.ts';
import { databaseFault, openDatabase, type SqliteStoreHandle } from '#store/sqlite/connection/open.ts';
import { createReadDatabase, createReads } from '#store/sqlite/connection/reads.ts';
import { createAnalytics } from '#store/sqlite/report/analytics.ts';
import { createThreadedAnalytics, type ThreadedAnalytics } from '#store/sqlite/report/threaded-analytics.ts';
import { createJournal } from '#store/sqlite/write/journal.ts';
import { findThreadProgram } from '../models.ts';

export interface StorageOptions {
  readonly config: Config;
  readonly packageDir: string;
  /** Absolute; made where it is missing. */
  readonly dataDir: string;
  /** Workspace of the gateway's sessions, which have no files. */
  readonly gatewayFolder: string;
  /** Of the package. */
  readonly version: string;
  readonly ids: IdGenerator;
  readonly clock: Clock;
  readonly log: Logger;
  /** What is stored of the server's own making is not checked once more. */
  readonly trusted: boolean;
  /** Reports run on a thread of their own, for which the package must be built; else on this one, in slices. */
  readonly reportsOnThread: boolean;
  /** Types of events by receiver. */
  readonly noticed: ReadonlyMap<string, ReadonlySet<string>>;
  /** What must be alike on all nodes and is no key of the configuration, by name: registry, prices. */
  readonly alike: Readonly<Record<string, unknown>>;
  /** Ends the wait for a database that is not there, with its reason. */
  readonly leave?: AbortSignal;
}

export interface Storage {
  readonly bus: LiveBus;
  readonly journal: Journal;
  readonly store: Store;
  readonly analytics: Analytics;
  readonly priceVersions: PriceVersions;
  readonly trees: Trees;
  /** Null = no other process spends from the limits of a day. */
  readonly dayLimit: DayLimit | null;
  /** Null = no other process merges into the same workspaces. */
  readonly lockWorkspace: WorkspaceLock | null;
  /** Null = no other process sends webhooks. */
  readonly notices: Notices | null;
  readonly figures: StorageFigures;
  /** What to throw for `cause`: a fault of the storage as its one line, any other error as it is. */
  fault(cause: unknown): unknown;
  close(): Promise<void>;
}

/** Throws `StartupError`; what was opened by then is closed again. */
export function openEmbedded(options: StorageOptions): Storage {
  const { config, packageDir, log, ids, clock, trusted } = options;
  const { db_path, synchronous } = config.storage;
  const migrationsDir = path.join(packageDir, 'migrations');
  const database = openDatabase({ path: db_path, synchronous, migrationsDir, log });
  try {
    makeDataFolder(options.dataDir);
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
    const reads = createReads(db.reader);
    const reports = options.reportsOnThread ? startReportThread(options) : null;
    return {
      bus,
      journal: createJournal({ db, ids, clock, bus, log, trusted }),
      store,
      analytics: reports ?? createAnalytics(db.reader),
      priceVersions: createPriceVersionReader(reads),
      trees: createOwnTrees({
        version: options.version,
        id: () => ids.next(),
        open: async () => (await store.sessions.counts()).active_sessions,
      }),
      dayLimit: null,
      lockWorkspace: null,
      notices: null,
      figures: {
        node: () => null,
        measure: async () => ({
          deliveries_waiting: (await reads.get<{ deliveries: number }>(COUNT_DELIVERIES))?.deliveries ?? 0,
          notices_waiting: null,
          nats_round_trip_seconds: null,
        }),
      },
      fault: (cause) => databaseFault(db_path, cause),
      close: async () => {
        await reports?.close();
        db.close();
      },
    };
  }
}

/** The database may be elsewhere. Throws `StartupError`. */
export function makeDataFolder(dataDir: string): void {
  try {
    makeFolder(dataDir, 0o700);
  } catch (cause) {
    throw new StartupError('data_folder_unwritable', [
      `data_folder_unwritable: ${dataDir} cannot be made (${readErrorMessage(cause)}); check --data and the rights of the folder above it`,
    ]);
  }
}

const HELD = { own: true, epoch: 0, release: () => {} } as const;

/** What an embedded server reports about itself. */
interface Alone {
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
    release: () => {},
    onLost: () => {},
    drain: () => {
      draining = true;
    },
    releaseAll: async () => {},
    async nodes() {
      const name = url === '' ? '' : new URL(url).host;
      const trees = await open();
      return [
        {
          id: node,
          name,
          version,
          url,
          draining,
          places: [],
          turns: running(),
          trees,
          config_matches: true,
          config_differs: [],
        },
      ];
    },
  };
}

function startReportThread({ config, packageDir, log }: StorageOptions): ThreadedAnalytics {
  const program = findThreadProgram(packageDir, 'store/sqlite/report/analytics-thread');
  const { free_providers: freeProviders } = config.pricing;
  return createThreadedAnalytics(program, { path: config.storage.db_path, freeProviders }, log);
}

/** The folder of worktrees, links resolved; null where several nodes share none. Throws `StartupError('config_invalid')`. */
export function findWorktreesFolder({ database, cluster }: Config, dataDir: string): string | null {
  if (database.url === null) return path.join(fs.realpathSync(dataDir), 'worktrees');
  const { worktree_root: root, shared_roots } = cluster;
  if (root === null) return null;
  if (!isBelow(root, shared_roots))
    throw new StartupError('config_invalid', [
      `cluster.worktree_root: ${root} lies below none of cluster.shared_roots; name a folder below one of them`,
    ]);
  fs.mkdirSync(root, { recursive: true, mode: 0o700 });
  return fs.realpathSync(root);
}
