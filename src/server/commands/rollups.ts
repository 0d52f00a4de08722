// `metis rollups verify|rebuild`: whether the cost sums agree with the ledger, and making them again (07 §9.5).
import fs from 'node:fs';
import path from 'node:path';
import type Database from 'better-sqlite3';
import { AppError, StartupError } from '#protocol/errors.ts';
import { missingMigrations } from '#store/sqlite/connection/migrate.ts';
import { databaseFault, openDatabase, openReader } from '#store/sqlite/connection/open.ts';
import { verifyRollups as differencesIn } from '#store/sqlite/report/verify.ts';
import { rebuildRollups } from '#store/sqlite/write/rebuild.ts';
import type { ConfigFlags } from '../config.ts';
import { type CommandContext, refuse } from '../context.ts';
import { startLog } from '../log.ts';
import { loadSettings, type Settings } from '../start.ts';
import type { ClusterUpkeep } from '../storage/cluster-upkeep.ts';

/** Also beside a running server. Exit code: 1 with one line on stdout a difference, 0 without any. */
export async function verifyRollups(context: CommandContext, flags: ConfigFlags): Promise<number> {
  return withSettings(context, flags, async (settings) => {
    const { config } = settings;
    if (config.database.url !== null) {
      return withClusterUpkeep(context, settings, async (upkeep) =>
        reportDifferences(context, await upkeep.verifyRollups(), upkeep.calls),
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
  const { withCluster } = await import('../storage/cluster-upkeep.ts');
  const at = { url: settings.config.database.url!, packageDir: context.packageDir, log: startLog(context, settings) };
  return withCluster(at, work);
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
