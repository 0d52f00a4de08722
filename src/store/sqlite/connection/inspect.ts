// Whether a database file could be served, found out without changing it (17 §2).
import fs from 'node:fs';
import { StartupError } from '#protocol/errors.ts';
import { missingMigrations } from './migrate.ts';
import { databaseFault, openReader } from './open.ts';

/**
 * Throws `StartupError` with one line for a file that is damaged, of another program or of a newer version. Reads the
 * whole file, also beside a running server; a file that is not there yet is none.
 */
export function inspectDatabase(path: string, migrationsDir: string): void {
  if (!fs.existsSync(path)) return;
  try {
    const reader = openReader(path);
    try {
      missingMigrations(reader, path, migrationsDir);
      const first = reader.pragma('quick_check(1)', { simple: true }) as string;
      if (first === 'ok') return;
      throw new StartupError('database_corrupt', [
        `database_corrupt: ${path} is damaged (${first.split('\n').at(-1)}); restore a backup or move the file away`,
      ]);
    } finally {
      reader.close();
    }
  } catch (cause) {
    throw databaseFault(path, cause);
  }
}
