// `metis migrate`: all of a data folder's database into the database of a cluster, and back into a new folder (16 §9).
import fs from 'node:fs';
import { hostname } from 'node:os';
import path from 'node:path';
import type Database from 'better-sqlite3';
import { toPrintable } from '#cli/printable-text.ts';
import { StartupError } from '#protocol/errors.ts';
import type { Copying, Moved } from '#store/postgres/transfer/copy-rows.ts';
import { acquireOwnerLock, resolveDatabasePath } from '#store/sqlite/connection/database-file.ts';
import { missingMigrations } from '#store/sqlite/connection/migrate.ts';
import { databaseFault, openReader } from '#store/sqlite/connection/open.ts';
import { verifySqliteRollups } from '#store/sqlite/write/sqlite-maintenance.ts';
import type { ConfigFlags } from '../config.ts';
import { type CommandContext, loadSettings, refuse, type Settings } from '../context.ts';
import { startLog } from '../log.ts';
import { mapEventTypes } from '../notify.ts';

export interface MigrateFlags extends ConfigFlags {
  readonly to: string;
  readonly verify?: boolean;
}

/** Exit code: 0 when the whole copy stands and agrees, 1 otherwise. The source is not changed. */
export async function migrateDatabase(context: CommandContext, flags: MigrateFlags): Promise<number> {
  const settings = loadSettings(context, flags);
  if (!settings.ok) return refuse(context, settings.error);
  const { db_path } = settings.value.config.storage;
  if (flags.to.startsWith(TO_SQLITE)) return copyOut(context, settings.value, flags);
  if (!isPostgres(flags.to))
    return refuse(context, ['--to must be an address like postgres://user@host/database, or sqlite:FOLDER']);
  if (!fs.existsSync(db_path)) return refuse(context, [`there is no database at ${db_path}; see --data`]);
  try {
    return await withLockedSource(context, db_path, (source) => moveRows(context, settings.value, flags, source));
  } catch (cause) {
    const error = databaseFault(db_path, cause);
    if (error instanceof StartupError) return refuse(context, error.problems);
    throw error;
  }
}

const TO_SQLITE = 'sqlite:';

/** The database of the configured cluster as a data folder of one server. */
async function copyOut(context: CommandContext, settings: Settings, flags: MigrateFlags): Promise<number> {
  const { url } = settings.config.database;
  const named = flags.to.slice(TO_SQLITE.length);
  if (url === null)
    return refuse(context, [
      'database.url is not set; --to sqlite:FOLDER copies the database that it names: set METIS_DATABASE_URL',
    ]);
  if (named === '') return refuse(context, ['--to sqlite:FOLDER must name a folder']);
  const file = path.join(path.resolve(context.cwd, named), 'metis.db');
  const { copyToSqlite } = await import('#store/postgres/transfer/to-sqlite.ts');
  try {
    const { differences, ...moved } = await copyToSqlite({
      url,
      file,
      migrationsDir: path.join(context.packageDir, 'migrations'),
      verify: flags.verify === true,
      ...startCopying(context),
    });
    return reportCopy(context, moved, flags.verify === true ? [...differences, ...verifyCopiedSums(file)] : null);
  } catch (error) {
    if (error instanceof StartupError) return refuse(context, error.problems);
    throw error;
  }
}

function verifyCopiedSums(file: string): readonly string[] {
  const reader = openReader(file);
  try {
    return verifySqliteRollups(reader);
  } finally {
    reader.close();
  }
}

/** What both ways have in common: lines on stdout, and an end by a signal. */
function startCopying(context: CommandContext): Copying {
  const leaving = new AbortController();
  void context.stopSignal().then((signal) => {
    leaving.abort(
      new StartupError('migration_stopped', [`stopped by ${signal}; the same command continues with what is missing`]),
    );
  });
  return { report: (line) => printLine(context, line), leave: leaving.signal };
}

const printLine = ({ stdout }: CommandContext, line: string) => void stdout.write(`${toPrintable(line)}\n`);

/** @param differences null = not compared */
function reportCopy(context: CommandContext, moved: Moved, differences: readonly string[] | null): number {
  if (moved.wasDone) printLine(context, 'the database holds the whole copy already');
  if (moved.changedTexts > 0)
    printLine(context, `${moved.changedTexts} texts held U+0000, which PostgreSQL cannot store; U+FFFD replaces it`);
  if (differences === null) return 0;
  for (const line of differences) printLine(context, line);
  if (differences.length > 0) return 1;
  printLine(context, 'source and copy agree in every row; rollups and ledger agree');
  return 0;
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
  const { cluster, notify } = settings.config;
  const places = findNodePlaces(settings);
  const unshared = listUnsharedWorkspaces(source, places);
  if (unshared.length > 0 && !cluster.local_workspaces) return refuse(context, [describeUnshared(unshared)]);
  const copying = startCopying(context);
  if (unshared.length > 0) copying.report(`workspaces that stay on the node ${places.node_name}: ${unshared.length}`);
  const url = flags.to;
  const migrationsDir = path.join(context.packageDir, 'migrations', 'postgres');
  const moved = await copyToPostgres({
    source,
    url,
    migrationsDir,
    places,
    noticed: mapEventTypes(notify),
    ...copying,
  });
  if (flags.verify !== true) return reportCopy(context, moved, null);
  const differences = await verifyCopy({ source, url }, copying.report);
  return reportCopy(context, moved, [...differences, ...(await verifyCopiedRollups(context, settings, url))]);
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
