// Commands on the database: `metis rollups verify|rebuild` (07 §9.5), `metis prune`, `metis backup` and `metis restore` (02 §6).

import fs from 'node:fs';
import path from 'node:path';
import type Database from 'better-sqlite3';
import { toPrintable } from '#cli/printable-text.ts';
import { ApiError, createMetisClient } from '#client/client.ts';
import type { PruneReport } from '#core/ports/journal-writer.ts';
import { isoTime, systemClock } from '#protocol/clock.ts';
import { AppError, StartupError } from '#protocol/errors.ts';
import { createIdGenerator } from '#protocol/ids.ts';
import { readErrorMessage } from '#protocol/text/error-message.ts';
import { createBus } from '#store/bus/memory/local-bus.ts';
import { TURN_IS_OPEN } from '#store/schema/words.ts';
import { copyDatabase, makeDatabase } from '#store/sqlite/connection/copy.ts';
import { isOwned } from '#store/sqlite/connection/database-file.ts';
import { missingMigrations } from '#store/sqlite/connection/migrate.ts';
import { databaseFault, inspectDatabase, openDatabase, openReader } from '#store/sqlite/connection/open.ts';
import { createJournal } from '#store/sqlite/write/journal.ts';
import { verifySqliteRollups as differencesIn, rebuildRollups } from '#store/sqlite/write/sqlite-maintenance.ts';
import type { ConfigFlags } from '../config.ts';
import { type CommandContext, getConfiguredServer, loadSettings, refuse, type Settings } from '../context.ts';
import { findServer } from '../find-server.ts';
import { startLog } from '../log.ts';
import type { ClusterUpkeep } from '../storage/cluster-commands.ts';

/** Also beside a running server. Exit code: 1 with one line on stdout a difference, 0 without any. */
export async function verifyRollups(context: CommandContext, flags: ConfigFlags): Promise<number> {
  return withSettings(context, flags, async (settings) => {
    const { config } = settings;
    if (config.database.url !== null) {
      const { readCluster } = await import('../storage/cluster-commands.ts');
      return readCluster(toClusterPlace(context, settings), async (reads) =>
        reportDifferences(context, await reads.verifyRollups(), reads.calls),
      );
    }
    const { db_path } = config.storage;
    const reader = openReader(db_path);
    try {
      if (missingMigrations(reader, db_path, path.join(context.packageDir, 'migrations')).length > 0) {
        return refuse(context, [
          `${db_path} was written by an older version; start the server once, which brings it forward`,
        ]);
      }
      return await reportDifferences(context, differencesIn(reader), async () => countCalls(reader));
    } finally {
      reader.close();
    }
  });
}

async function reportDifferences(
  { stdout }: CommandContext,
  differences: readonly string[],
  calls: () => Promise<number>,
): Promise<number> {
  for (const line of differences) stdout.write(`${line}\n`);
  if (differences.length > 0) return 1;
  stdout.write(`rollups and ledger agree: ${await calls()} calls\n`);
  return 0;
}

/** Refuses while a server owns the database file; the nodes of a cluster wait for it with their calls. */
export async function rebuildCostSums(context: CommandContext, flags: ConfigFlags): Promise<number> {
  return withSettings(context, flags, async (settings) => {
    if (settings.config.database.url !== null) {
      return withClusterUpkeep(context, settings, async (upkeep) => {
        await upkeep.rebuildRollups();
        context.stdout.write(`rollups made again from ${await upkeep.calls()} calls\n`);
        return 0;
      });
    }
    const { db_path, synchronous } = settings.config.storage;
    const log = startLog(context, settings);
    const migrationsDir = path.join(context.packageDir, 'migrations');
    const database = openDatabase({ path: db_path, synchronous, migrationsDir, log });
    try {
      rebuildRollups(database.db);
      context.stdout.write(`rollups made again from ${countCalls(database.db)} calls\n`);
      return 0;
    } finally {
      database.close();
    }
  });
}

async function withClusterUpkeep(
  context: CommandContext,
  settings: Settings,
  work: (upkeep: ClusterUpkeep) => Promise<number>,
): Promise<number> {
  const { withCluster } = await import('../storage/cluster-commands.ts');
  return withCluster(toClusterPlace(context, settings), work);
}

function toClusterPlace(context: CommandContext, settings: Settings) {
  const { url } = settings.config.database;
  return { url: url!, packageDir: context.packageDir, log: startLog(context, settings) };
}

async function withSettings(
  context: CommandContext,
  flags: ConfigFlags,
  work: (settings: Settings) => Promise<number>,
): Promise<number> {
  const settings = loadSettings(context, flags);
  if (!settings.ok) return refuse(context, settings.error);
  const { database, storage } = settings.value.config;
  const { db_path } = storage;
  if (database.url === null && !fs.existsSync(db_path))
    return refuse(context, [`there is no database at ${db_path}; see --data`]);
  try {
    return await work(settings.value);
  } catch (cause) {
    const error = databaseFault(db_path, cause);
    if (error instanceof StartupError) return refuse(context, error.problems);
    if (error instanceof AppError) return refuse(context, [`${error.code}: ${error.message}`]);
    throw error;
  }
}

function countCalls(db: Database.Database): number {
  return (db.prepare('SELECT count(*) AS n FROM ledger_calls').get() as { n: number }).n;
}

export interface PruneFlags extends ConfigFlags {
  readonly days?: number;
  readonly dryRun?: boolean;
  /** Of the server that holds the file; else the server of the data folder, else the configured address. */
  readonly server?: string;
  readonly token?: string;
}

/** The flags with the age that holds. */
type Deletion = PruneFlags & { readonly days: number };

interface Report {
  readonly cutoff: string;
  readonly rows_deleted: number;
  readonly sessions_skipped: number;
  readonly oldest_kept_timestamp: string | null;
}

const DAY_MS = 24 * 60 * 60 * 1000;

/** Exit code: 0 also when there was nothing to delete, 1 when it could not be done. */
export async function prune(context: CommandContext, flags: PruneFlags): Promise<number> {
  const settings = loadSettings(context, flags);
  if (!settings.ok) return refuse(context, settings.error);
  const { config } = settings.value;
  const { db_path } = config.storage;
  const days = flags.days ?? config.trace.retention_days;
  if (days === null) return refuse(context, ['--days is required: trace.retention_days keeps events for ever']);
  if (config.database.url === null && !fs.existsSync(db_path))
    return refuse(context, [`there is no database at ${db_path}; see --data`]);
  try {
    const report = await choosePruner(settings.value)(context, settings.value, { ...flags, days });
    const { rows_deleted, cutoff, sessions_skipped, oldest_kept_timestamp } = report;
    const verb = flags.dryRun ? 'would delete' : 'deleted';
    const summary =
      `${verb} ${rows_deleted} events older than ${cutoff}; ` +
      `${sessions_skipped} sessions with an open turn keep theirs; oldest kept: ${oldest_kept_timestamp ?? 'none'}`;
    context.stdout.write(`${toPrintable(summary)}\n`);
    return 0;
  } catch (cause) {
    const error = databaseFault(db_path, cause);
    if (error instanceof StartupError) return refuse(context, error.problems);
    if (error instanceof AppError) return refuse(context, [`${error.code}: ${error.message}`]);
    if (error instanceof ApiError) return refuse(context, [`the server refused: ${error.code}: ${error.message}`]);
    throw error;
  }
}

/** A server that holds the file does it; in a cluster any program may, one at a time. */
function choosePruner({ config }: Settings): typeof pruneFile {
  if (config.database.url !== null) return pruneInCluster;
  if (isOwned(config.storage.db_path)) return pruneThroughServer;
  return pruneFile;
}

async function pruneInCluster(context: CommandContext, settings: Settings, flags: Deletion): Promise<Report> {
  const { withCluster } = await import('../storage/cluster-commands.ts');
  return withCluster(toClusterPlace(context, settings), async (upkeep) =>
    toReport(await upkeep.prune(computeCutoff(flags), flags.dryRun ?? false)),
  );
}

async function pruneThroughServer(context: CommandContext, settings: Settings, flags: Deletion): Promise<Report> {
  const configured = getConfiguredServer(context, settings, flags);
  const found = flags.server === undefined ? await findServer(settings, configured, true) : null;
  const server = { ...configured, baseUrl: found?.baseUrl ?? configured.baseUrl };
  try {
    return await createMetisClient(server).pruneEvents({
      days: flags.days,
      dry_run: flags.dryRun ?? false,
    });
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    throw new StartupError('address_unusable', [
      `a server holds ${settings.config.storage.db_path}, but nothing answers at ${server.baseUrl}; name its address with --server`,
    ]);
  }
}

async function pruneFile(context: CommandContext, settings: Settings, flags: Deletion): Promise<Report> {
  const { db_path, synchronous } = settings.config.storage;
  const log = startLog(context, settings);
  const migrationsDir = path.join(context.packageDir, 'migrations');
  const db = openDatabase({ path: db_path, synchronous, migrationsDir, log });
  try {
    const ids = createIdGenerator(() => systemClock.now(), Math.random);
    const journal = createJournal({ db, ids, clock: systemClock, bus: createBus(log), log });
    return toReport(await journal.prune(computeCutoff(flags), flags.dryRun ?? false));
  } finally {
    db.close();
  }
}

const computeCutoff = ({ days }: Deletion) => systemClock.now() - days * DAY_MS;

function toReport(report: PruneReport): Report {
  return {
    ...report,
    cutoff: isoTime(report.cutoff),
    oldest_kept_timestamp: report.oldest_kept === null ? null : isoTime(report.oldest_kept),
  };
}

/** Exit code: 0 when the file is complete, 1 with one line when there is none. */
export async function backup(context: CommandContext, flags: ConfigFlags, file: string): Promise<number> {
  const settings = loadSettings(context, flags);
  if (!settings.ok) return refuse(context, settings.error);
  if (settings.value.config.database.url !== null) {
    return refuse(context, [
      'the database of a cluster is copied by its own means: pg_dump, or snapshots; pg_restore brings it back',
    ]);
  }
  const source = settings.value.config.storage.db_path;
  const target = path.resolve(context.cwd, file);
  if (!fs.existsSync(source)) return refuse(context, [`there is no database at ${source}; see --data`]);
  try {
    // Taking the name and refusing one that exists is one step; only its owner may read what agents wrote.
    fs.closeSync(fs.openSync(target, 'wx', 0o600));
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    if (code === 'EEXIST') return refuse(context, [`${target} exists already; choose another name`]);
    return refuse(context, [`${target} cannot be written: ${code}`]);
  }
  try {
    copyDatabase(source, target);
  } catch (cause) {
    fs.rmSync(target, { force: true });
    return refuse(context, [`${source} could not be copied: ${readErrorMessage(cause)}`]);
  }
  context.stdout.write(`${target}: ${fs.statSync(target).size} bytes, a copy of ${source}\n`);
  return 0;
}

/**
 * Makes the database of a data folder that has none from a backup. Exit code: 0 when it is whole, 1 with one line when
 * nothing was changed.
 */
export async function restore(context: CommandContext, flags: ConfigFlags, file: string): Promise<number> {
  const settings = loadSettings(context, flags);
  if (!settings.ok) return refuse(context, settings.error);
  if (settings.value.config.database.url !== null)
    return refuse(context, ['the database of a cluster is restored by its own means: pg_restore, or snapshots']);
  const source = path.resolve(context.cwd, file);
  const target = settings.value.config.storage.db_path;
  const found = fs.statSync(source, { throwIfNoEntry: false });
  if (found?.isFile() !== true || found.size === 0) {
    const state = found === undefined ? 'does not exist' : found.isFile() ? 'is empty' : 'is not a file';
    return refuse(context, [`${source} ${state}; name a file that metis backup wrote`]);
  }
  const migrationsDir = path.join(context.packageDir, 'migrations');
  try {
    inspectDatabase(source, migrationsDir);
    const restored = await makeDatabase(target, (unfinished) => {
      try {
        fs.truncateSync(unfinished);
        copyDatabase(source, unfinished);
        inspectDatabase(unfinished, migrationsDir);
        return describeRestored(unfinished, source);
      } catch (cause) {
        fs.rmSync(unfinished, { force: true });
        throw cause;
      }
    });
    context.stdout.write(`${target}: ${restored}, a copy of ${source}\n`);
    return 0;
  } catch (cause) {
    if (cause instanceof StartupError) return refuse(context, cause.problems);
    return refuse(context, [`${target} was not restored: ${readErrorMessage(cause)}`]);
  }
}

/** Tables that every version has: the start of the server brings an older backup forward. */
function describeRestored(file: string, source: string): string {
  const reader = openReader(file);
  try {
    if (reader.pragma('user_version', { simple: true }) === 0)
      throw new StartupError('database_corrupt', [
        `database_corrupt: ${source} holds no sessions; name a file that metis backup wrote`,
      ]);
    const countFrom = (from: string) => reader.prepare<[], number>(`SELECT count(*) FROM ${from}`).pluck().get();
    const open = countFrom(`turns WHERE ${TURN_IS_OPEN}`);
    return `${countFrom('sessions')} sessions, ${countFrom('llm_calls')} calls, ${open} open turns`;
  } finally {
    reader.close();
  }
}
