// A node of a cluster: PostgreSQL stores everything and assigns each session tree to a node (16). Loaded only when `database.url` is set.

import { hostname } from 'node:os';
import path from 'node:path';
import { listPlaces } from '#core/policy/cluster/tree-place.ts';
import type { StorageFigures } from '#core/ports/meter.ts';
import type { Config } from '#protocol/config.ts';
import { canonicalJson, sha256Hex } from '#protocol/text/canonical-json.ts';
import { createClusterBus } from '#store/bus/nats/cluster-bus.ts';
import { type Link, openLink } from '#store/bus/nats/link.ts';
import { createDayLimit } from '#store/cluster/day-limit.ts';
import { createHeldCaches } from '#store/cluster/held-caches.ts';
import type { NodeSelf } from '#store/cluster/node-lease.ts';
import { createNotices } from '#store/cluster/notices.ts';
import { createRootWatch, markSharedRoots } from '#store/cluster/shared-roots.ts';
import { frameKey, standings } from '#store/cluster/tree-claims.ts';
import { createTrees, type NodeTrees } from '#store/cluster/trees.ts';
import { filesIn, openDatabase } from '#store/postgres/connection/open.ts';
import { createReadDatabase, patientReads } from '#store/postgres/connection/patient-reads.ts';
import { createSingle, type Pool } from '#store/postgres/connection/pool.ts';
import { createWorkspaceLock } from '#store/postgres/connection/workspace-lock.ts';
import { createAnalytics } from '#store/postgres/report/analytics.ts';
import { createJournal } from '#store/postgres/write/journal.ts';
import { COUNT_DELIVERIES } from '#store/read/delegations.ts';
import { createPriceVersionReader, createStore } from '#store/read/store.ts';
import { CONFIG_KEYS, readKey } from '../config.ts';
import { makeDataFolder, type Storage, type StorageOptions } from './storage.ts';

/** Of the lease: a heartbeat that was not answered by then is sent again. */
const HEARTBEAT_PATIENCE = 0.4;

/** Throws `StartupError`. */
export async function openCluster(options: StorageOptions & { readonly url: string }): Promise<Storage> {
  const { url, config, packageDir, log, ids, clock, trusted } = options;
  const { database, cluster } = config;
  makeDataFolder(options.dataDir);
  const migrationsDir = path.join(packageDir, 'migrations', 'postgres');
  const pool = await openDatabase({
    url,
    size: database.pool_size,
    synchronousCommit: database.synchronous_commit,
    migrationsDir,
    patienceMs: database.start_timeout_seconds === null ? null : database.start_timeout_seconds * 1000,
    clock,
    log,
    ...(options.leave !== undefined && { leave: options.leave }),
  });
  const checkRoot = await markSharedRoots(pool, cluster.shared_roots, ids.next()).catch(async (error: unknown) => {
    await pool.close();
    throw error;
  });
  const heartbeat = createSingle(url, cluster.lease_seconds * 1000 * HEARTBEAT_PATIENCE);
  const trees = createTrees({
    pool,
    heartbeat: heartbeat.send,
    selfAt: (bound) => describeNode(bound, options, filesIn(migrationsDir).length),
    roots: createRootWatch(cluster.shared_roots, checkRoot, log),
    files: { shared_roots: cluster.shared_roots, no_files: options.gatewayFolder },
    leaseSeconds: cluster.lease_seconds,
    ids,
    clock,
    log,
    ...(options.leave !== undefined && { leave: options.leave }),
  });
  const caches = createHeldCaches(trees);
  const reads = patientReads(pool, clock, trees.valid);
  const readDatabase = createReadDatabase(reads);
  const store = createStore(readDatabase, caches);
  const link = config.nats.url === null ? null : openLink({ url: config.nats.url, name: cluster.name, clock, log });
  const bus = createClusterBus({
    cluster: cluster.name,
    link,
    key: await frameKey(pool.send),
    owns: trees.holds,
    standings: (roots) => standings(pool.send, roots),
    store,
    clock,
    log,
  });
  const workspaceLock = createWorkspaceLock({ url, isOfUse: trees.valid, clock, log });
  const dayLimit = createDayLimit({ pool, trees, leaseSeconds: cluster.lease_seconds, clock, log });
  trees.onLost((root) => {
    caches.dropTree(root);
    bus.forget(root);
  });
  return {
    bus,
    journal: createJournal({
      pool,
      trees,
      ids,
      clock,
      bus,
      log,
      trusted,
      noticed: options.noticed,
      ...caches.following,
    }),
    store,
    analytics: createAnalytics(reads),
    priceVersions: createPriceVersionReader(readDatabase.reads),
    trees,
    dayLimit,
    lockWorkspace: workspaceLock.run,
    notices: createNotices(pool, clock, log),
    figures: createFigures(pool, trees, link),
    fault: (cause) => cause,
    close: async () => {
      dayLimit.close();
      await trees.close();
      await bus.close();
      await heartbeat.close();
      await workspaceLock.close();
      await pool.close();
    },
  };
}

const COUNT_WAITING = `SELECT (${COUNT_DELIVERIES}) AS deliveries, (SELECT count(*) FROM notices) AS notices`;

function createFigures(pool: Pool, trees: NodeTrees, link: Link | null): StorageFigures {
  return {
    node() {
      const { waiting, ...connections } = pool.usage();
      const is_nats_connected = link === null ? null : link.up();
      return { ...trees.figures(), connections, connections_waiting: waiting, is_nats_connected };
    },
    async measure() {
      const counting = pool.send<{ deliveries: number; notices: number }>(COUNT_WAITING, []);
      const [trip, { rows }] = await Promise.all([link?.measureRoundTrip() ?? null, counting]);
      return {
        deliveries_waiting: rows[0]!.deliveries,
        notices_waiting: rows[0]!.notices,
        nats_round_trip_seconds: trip === null ? null : trip / 1000,
      };
    },
  };
}

const ALL_ADDRESSES: readonly string[] = ['0.0.0.0', '[::]'];

function describeNode(
  bound: { readonly url: string },
  { config, version, alike, dataDir }: StorageOptions,
  schema: number,
): NodeSelf {
  const { cluster } = config;
  const at = bound.url === '' ? null : new URL(bound.url);
  if (at !== null && ALL_ADDRESSES.includes(at.hostname)) at.hostname = hostname();
  const name = cluster.node_name ?? `${hostname()}:${at?.port ?? config.server.port}`;
  return {
    name,
    url: cluster.advertise_url ?? at?.origin ?? '',
    version,
    schema,
    places: listPlaces({ node_name: name, shared_roots: cluster.shared_roots }),
    configKeys: hashConfiguration(config, alike, dataDir),
  };
}

/** Keys and groups of keys that a node may have of its own (16 §7.5). Contents of registry and prices are compared, not their places. */
const OWN_KEYS: readonly string[] = [
  ...['server.host', 'server.port', 'server.allowed_hosts', 'storage', 'database', 'nats', 'log', 'providers'],
  ...[
    'cluster.node_name',
    'cluster.advertise_url',
    'cluster.max_turns',
    'registry.path',
    'pricing.tables',
    'gateway.record',
  ],
];
const HASH_CHARACTERS = 16;

/** A hash of each key that must be alike. Each node's data folder may be called otherwise: what lies in it is what counts. */
function hashConfiguration(
  config: Config,
  alike: StorageOptions['alike'],
  dataDir: string,
): Readonly<Record<string, string>> {
  const shared = [...CONFIG_KEYS.keys()].filter(
    (key) => !OWN_KEYS.some((own) => key === own || key.startsWith(`${own}.`)),
  );
  const values = [...shared.map((key) => [key, readKey(config, key)] as const), ...Object.entries(alike)];
  const hash = (value: unknown) =>
    sha256Hex(canonicalJson(value).replaceAll(dataDir, '~/.metis')).slice(0, HASH_CHARACTERS);
  return Object.fromEntries(values.map(([key, value]) => [key, hash(value)]));
}
