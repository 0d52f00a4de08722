// `metis migrate`: all of a data folder's database into the database of a cluster (16 §9).
import fs from 'node:fs';
import { hostname } from 'node:os';
import path from 'node:path';
import type Database from 'better-sqlite3';
import { toPrintable } from '#cli/printable-text.ts';
import { StartupError } from '#protocol/errors.ts';
import { acquireOwnerLock, resolveDatabasePath } from '#store/sqlite/connection/database-file.ts';
import { missingMigrations } from '#store/sqlite/connection/migrate.ts';
import { databaseFault, openReader } from '#store/sqlite/connection/open.ts';
import type { ConfigFlags } from '../config.ts';
import { type CommandContext, loadSettings, refuse, type Settings } from '../context.ts';
import { startLog } from '../log.ts';

export interface MigrateFlags extends ConfigFlags {
  readonly to: string;
  readonly verify?: boolean;
}

/** Exit code: 0 when the whole copy stands and agrees, 1 otherwise. The source is not changed. */
export async function migrateDatabase(context: CommandContext, flags: MigrateFlags): Promise<number> {
  const settings = loadSettings(context, flags);
  if (!settings.ok) return refuse(context, settings.error);
  const { db_path } = settings.value.config.storage;
  if (!isPostgres(flags.to)) return refuse(context, ['--to must be an address like postgres://user@host/database']);
  if (!fs.existsSync(db_path)) return refuse(context, [`there is no database at ${db_path}; see --data`]);
  try {
    return await withLockedSource(context, db_path, (source) => moveRows(context, settings.value, flags, source));
  } catch (cause) {
    const error = databaseFault(db_path, cause);
    if (error instanceof StartupError) return refuse(context, error.problems);
    throw error;
  }
}

function isPostgres(address: string): boolean {
  return URL.canParse(address) && ['postgres:', 'postgresql:'].includes(new URL(address).protocol);
}

/** No server can open the file meanwhile. Throws `StartupError('database_in_use')`. */
async function withLockedSource<T>(
  { packageDir }: CommandContext,
  file: string,
  work: (source: Database.Database) => Promise<T>,
): Promise<T> {
  const real = resolveDatabasePath(file);
  const lock = acquireOwnerLock(real);
  try {
    const source = openReader(real);
    try {
      if (missingMigrations(source, real, path.join(packageDir, 'migrations')).length > 0) {
        throw new StartupError('database_not_migrated', [
          `database_not_migrated: ${real} was written by an older version; start the server once, which brings it forward`,
        ]);
      }
      return await work(source);
    } finally {
      source.close();
    }
  } finally {
    lock.release();
  }
}

async function moveRows(
  context: CommandContext,
  settings: Settings,
  flags: MigrateFlags,
  source: Database.Database,
): Promise<number> {
  const transfer = await import('#store/postgres/transfer/to-postgres.ts');
  const { copyToPostgres, listUnsharedWorkspaces, verifyCopy } = transfer;
  const { cluster } = settings.config;
  const places = findNodePlaces(settings);
  const unshared = listUnsharedWorkspaces(source, places);
  if (unshared.length > 0 && !cluster.local_workspaces) return refuse(context, [describeUnshared(unshared)]);
  const print = (line: string) => void context.stdout.write(`${toPrintable(line)}\n`);
  if (unshared.length > 0) print(`${unshared.length} workspaces stay on the node ${places.node_name}`);
  const leaving = new AbortController();
  void context.stopSignal().then((signal) => {
    leaving.abort(
      new StartupError('migration_stopped', [`stopped by ${signal}; the same command continues with what is missing`]),
    );
  });
  const url = flags.to;
  const moved = await copyToPostgres({
    source,
    url,
    migrationsDir: path.join(context.packageDir, 'migrations', 'postgres'),
    places,
    report: print,
    leave: leaving.signal,
  });
  if (moved.wasDone) print('the database holds the whole copy already');
  if (moved.changedTexts > 0)
    print(`${moved.changedTexts} texts held U+0000, which PostgreSQL cannot store; U+FFFD replaces it`);
  if (flags.verify !== true) return 0;
  const differences = [
    ...(await verifyCopy({ source, url }, print)),
    ...(await verifyCopiedRollups(context, settings, url)),
  ];
  for (const line of differences) print(line);
  if (differences.length > 0) return 1;
  print('source and copy agree in every row; rollups and ledger agree');
  return 0;
}

function findNodePlaces({ config, dataDir }: Settings) {
  const { cluster, server } = config;
  return {
    node_name: cluster.node_name ?? `${hostname()}:${server.port}`,
    shared_roots: cluster.shared_roots,
    no_files: path.join(dataDir, 'gateway'),
  };
}

const SHOWN_PATHS = 3;

function describeUnshared(paths: readonly string[]): string {
  const shown = paths.slice(0, SHOWN_PATHS).join(', ');
  const more = paths.length > SHOWN_PATHS ? ` and ${paths.length - SHOWN_PATHS} more` : '';
  return `workspace_not_shared: no root of cluster.shared_roots holds ${shown}${more}; name a root, or set cluster.local_workspaces and cluster.node_name of the node that has these folders`;
}

async function verifyCopiedRollups(
  context: CommandContext,
  settings: Settings,
  url: string,
): Promise<readonly string[]> {
  const { readCluster } = await import('../storage/cluster-commands.ts');
  const log = startLog(context, settings);
  return readCluster({ url, packageDir: context.packageDir, log }, (reads) => reads.verifyRollups());
}
