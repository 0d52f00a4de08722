// One server process owns a database file: an exclusive lock on an empty SQLite file beside it (01 §2).
import { existsSync, realpathSync } from 'node:fs';
import Database from 'better-sqlite3';
import { StartupError } from '#protocol/errors.ts';
import { makePrivateFile } from './private-file.ts';

export interface OwnerLock {
  /** Idempotent. The operating system does the same when the process dies. */
  release(): void;
}

/**
 * Takes `<path>-owner` for the life of the process.
 * Throws `StartupError('database_in_use')` at once when another process, or another handle of this one, holds it.
 */
export function acquireOwnerLock(path: string): OwnerLock {
  makePrivateFile(`${path}-owner`);
  const file = new Database(`${path}-owner`, { timeout: 0 });
  try {
    file.exec('BEGIN EXCLUSIVE');
  } catch (cause) {
    file.close();
    if (!isBusy(cause)) throw cause;
    throw new StartupError('database_in_use', [
      `database_in_use: ${path} belongs to a running server; stop that one first, or choose another file with storage.db_path`,
    ]);
  }
  return { release: () => file.close() };
}

/** Whether a server owns the database now, by whatever link it is named. Changes nothing. */
export function isOwned(path: string): boolean {
  try {
    acquireOwnerLock(existsSync(path) ? realpathSync(path) : path).release();
    return false;
  } catch (cause) {
    if (cause instanceof StartupError) return true;
    throw cause;
  }
}

function isBusy(cause: unknown): boolean {
  return cause instanceof Database.SqliteError && cause.code.startsWith('SQLITE_BUSY');
}
