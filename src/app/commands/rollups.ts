// `metis rollups verify|rebuild`: whether the cost sums agree with the ledger, and making them again (07 §9.5).
import fs from 'node:fs';
import path from 'node:path';
import type Database from 'better-sqlite3';
import { StartupError } from '../../kernel/errors.ts';
import { missingMigrations } from '../../store/sqlite/connection/migrate.ts';
import { databaseFault, openDatabase, openReader } from '../../store/sqlite/connection/open.ts';
import { verifyRollups as differencesIn } from '../../store/sqlite/report/verify.ts';
import { rebuildRollups } from '../../store/sqlite/write/rebuild.ts';
import type { ConfigFlags } from '../config.ts';
import { type CommandContext, refuse } from '../context.ts';
import { loadSettings, type Settings, startLog } from '../start.ts';

/** Also beside a running server. Exit code: 1 with one line on stdout a difference, 0 without any. */
export async function verifyRollups(context: CommandContext, flags: ConfigFlags): Promise<number> {
  return withSettings(context, flags, ({ config }) => {
    const { db_path } = config.storage;
    const reader = openReader(db_path);
    try {
      if (missingMigrations(reader, db_path, path.join(context.packageDir, 'migrations')).length > 0) {
        return refuse(context, [
          `${db_path} was written by an older version; start the server once, which brings it forward`,
        ]);
      }
      const differences = differencesIn(reader);
      for (const line of differences) context.stdout.write(`${line}\n`);
      if (differences.length > 0) return 1;
      context.stdout.write(`rollups and ledger agree: ${callsIn(reader)} calls\n`);
      return 0;
    } finally {
      reader.close();
    }
  });
}

/** Refuses while a server owns the database. */
export async function rebuild(context: CommandContext, flags: ConfigFlags): Promise<number> {
  return withSettings(context, flags, (settings) => {
    const { db_path, synchronous } = settings.config.storage;
    const log = startLog(context, settings);
    const migrationsDir = path.join(context.packageDir, 'migrations');
    const database = openDatabase({ path: db_path, synchronous, migrationsDir, log });
    try {
      rebuildRollups(database.db);
      context.stdout.write(`rollups made again from ${callsIn(database.db)} calls\n`);
      return 0;
    } finally {
      database.close();
    }
  });
}

function withSettings(context: CommandContext, flags: ConfigFlags, work: (settings: Settings) => number): number {
  const settings = loadSettings(context, flags);
  if (!settings.ok) return refuse(context, settings.error);
  const { db_path } = settings.value.config.storage;
  if (!fs.existsSync(db_path)) return refuse(context, [`there is no database at ${db_path}; see --data`]);
  try {
    return work(settings.value);
  } catch (cause) {
    const error = databaseFault(db_path, cause);
    if (error instanceof StartupError) return refuse(context, error.problems);
    throw error;
  }
}

function callsIn(db: Database.Database): number {
  return (db.prepare('SELECT count(*) AS n FROM ledger_calls').get() as { n: number }).n;
}
