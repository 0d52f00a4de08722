// Brings a database forward: numbered SQL files, each ending with its own `user_version` (01 §11.1).
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type Database from 'better-sqlite3';
import { z } from 'zod';
import type { Logger } from '#core/ports/logger.ts';
import { StartupError } from '#protocol/errors.ts';

// Reads drizzle-kit's journal of migrations; the n-th entry leads to `user_version` n.
const JournalSchema = z.object({ entries: z.array(z.object({ idx: z.int(), tag: z.string() })) });

/**
 * The migrations that the file still lacks, by name. Reads only.
 * Throws `StartupError('schema_too_new' | 'database_corrupt')` for a newer file and for one of another program.
 */
export function missingMigrations(db: Database.Database, path: string, dir: string): readonly string[] {
  const { entries } = JournalSchema.parse(JSON.parse(readFileSync(join(dir, 'meta', '_journal.json'), 'utf8')));
  const found = db.pragma('user_version', { simple: true }) as number;
  if (found > entries.length) {
    throw new StartupError('schema_too_new', [
      `schema_too_new: ${path} has schema ${found}, this version knows ${entries.length}; start the newer version, or restore an older backup`,
    ]);
  }
  const tables = db.prepare("SELECT name FROM sqlite_master WHERE type = 'table'").pluck().all();
  if (found === 0 ? tables.length > 0 : !tables.includes('rollup_parent_day')) {
    throw new StartupError('database_corrupt', [
      `database_corrupt: ${path} holds the tables of another program; name a file that Metis wrote, with storage.db_path or as the FILE of metis restore`,
    ]);
  }
  return entries.slice(found).map((entry) => entry.tag);
}

/**
 * Runs the missing migrations in one transaction and returns their names.
 * `prepare` configures the connection once the file is known to be this program's and not newer than this version.
 * Throws as `missingMigrations`.
 */
export function migrate(db: Database.Database, path: string, dir: string, prepare: () => void): readonly string[] {
  const missing = missingMigrations(db, path, dir);
  prepare();
  const run = db.transaction(() => {
    for (const tag of missing) db.exec(readFileSync(join(dir, `${tag}.sql`), 'utf8'));
  });
  if (missing.length > 0) run.immediate();
  return missing;
}

/** Below 1 MB a VACUUM is not worth its time. */
const MIN_FREE_PAGES = 256;

/**
 * Returns the space that a migration freed to the disk if it is at least a quarter of the file. A file that cannot
 * shrink because the disk has no room for the copy is used unchanged.
 */
export function giveBackRoom(db: Database.Database, path: string, log: Logger): void {
  const pages = db.pragma('page_count', { simple: true }) as number;
  const free = db.pragma('freelist_count', { simple: true }) as number;
  if (free < MIN_FREE_PAGES || free * 4 < pages) return;
  log.info({ path, pages, free }, 'database is made smaller');
  try {
    // The copy goes to a file: it would not fit into every server's memory.
    db.pragma('temp_store = FILE');
    db.exec('VACUUM');
    db.pragma('wal_checkpoint(TRUNCATE)');
  } catch (err) {
    log.warn({ path, err }, 'the database was not made smaller');
  } finally {
    db.pragma('temp_store = MEMORY');
  }
}
