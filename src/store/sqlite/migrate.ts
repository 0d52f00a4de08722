// Brings a database forward: numbered SQL files, each ending with its own `user_version` (01 §11.1).
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type Database from 'better-sqlite3';
import { z } from 'zod';
import { StartupError } from '../../kernel/errors.ts';

// The list that drizzle-kit keeps beside its drafts; the n-th entry leads to `user_version` n.
const JournalSchema = z.object({ entries: z.array(z.object({ idx: z.int(), tag: z.string() })) });

/**
 * Runs what is missing, all of it in one transaction, and returns the names of what ran.
 * `prepare` sets the connection up once the file is known to be ours and not newer than this version.
 * Throws `StartupError('schema_too_new' | 'database_corrupt')`.
 */
export function migrate(db: Database.Database, path: string, dir: string, prepare: () => void): readonly string[] {
  const { entries } = JournalSchema.parse(JSON.parse(readFileSync(join(dir, 'meta', '_journal.json'), 'utf8')));
  const found = db.pragma('user_version', { simple: true }) as number;
  if (found > entries.length) {
    throw new StartupError('schema_too_new', [
      `schema_too_new: ${path} has schema ${found}, this version knows ${entries.length}; start the newer version, or restore an older backup`,
    ]);
  }
  if (found === 0 && db.prepare('SELECT 1 FROM sqlite_master').get() !== undefined) {
    throw new StartupError('database_corrupt', [
      `database_corrupt: ${path} holds the tables of another program; choose another file with storage.db_path`,
    ]);
  }
  prepare();
  const missing = entries.slice(found).map((entry) => entry.tag);
  const run = db.transaction(() => {
    for (const tag of missing) db.exec(readFileSync(join(dir, `${tag}.sql`), 'utf8'));
  });
  if (missing.length > 0) run.immediate();
  return missing;
}
