// The database's files: their lock, their rights and their place (01 §2, §11.1).

import fs, { existsSync, realpathSync } from 'node:fs';
import Database from 'better-sqlite3';
import { StartupError } from '#protocol/errors.ts';

// The files hold whole conversations, so only their owner may open them.

/** Suffixes of a database's files: itself, the files that SQLite writes with its rights, and the lock. */
const BESIDE = ['', '-wal', '-shm', '-journal', '-owner', '-owner-journal'];
const OPEN_TO_OTHERS = 0o077;

/** Creates a missing file, readable by its owner alone. If that fails, SQLite's own attempt reports the reason. */
export function makePrivateFile(path: string): void {
  try {
    fs.closeSync(fs.openSync(path, 'a', 0o600));
  } catch {
    // SQLite opens it next and reports the error.
  }
}

/** Removes the rights of other users from a database and the files beside it; another user's file is left unchanged. */
export function closeToOthers(path: string): void {
  for (const file of openToOthers(path)) {
    try {
      fs.chmodSync(file, 0o600);
    } catch {
      // Only the owner may change them; `doctor` reports it.
    }
  }
}

/** The files of a database that users other than their owner may read or write. */
export function openToOthers(path: string): string[] {
  if (process.platform === 'win32') return [];
  return BESIDE.map((ending) => `${path}${ending}`).filter((file) => {
    const found = fs.statSync(file, { throwIfNoEntry: false });
    return found !== undefined && (found.mode & OPEN_TO_OTHERS) !== 0;
  });
}

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
      `database_in_use: ${path} is in use by a running server, or by a command that copies it (metis migrate, metis restore); stop the server or let the command end, or choose another file with storage.db_path`,
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

// Refuses a path that would lose data: a file with two names, or a log without its database.

/**
 * The path of the file behind links: lock, log and database must belong to one file.
 * Throws `StartupError`: `database_in_use` for a file with a second name, whose owner lock would have another name;
 * `database_corrupt` for an empty or missing file beside a log with content, which SQLite would throw away.
 */
export function resolveDatabasePath(given: string): string {
  const path = fs.existsSync(given) ? fs.realpathSync(given) : given;
  const file = fs.statSync(path, { throwIfNoEntry: false });
  if (file?.isFile() && file.nlink > 1) {
    throw new StartupError('database_in_use', [
      `database_in_use: ${path} has ${file.nlink} names (hard links), so another server may hold it under another name; copy the file and use the copy, or remove the other names`,
    ]);
  }
  const log = `${path}-wal`;
  const logged = fs.statSync(log, { throwIfNoEntry: false })?.size ?? 0;
  if (logged > 0 && (file?.size ?? 0) === 0) {
    const state = file === undefined ? 'is missing' : 'is empty';
    throw new StartupError('database_corrupt', [
      `database_corrupt: ${path} ${state}, but ${log} holds ${logged} bytes of it; restore the file from a backup, or move the log away to start with an empty database`,
    ]);
  }
  return path;
}
