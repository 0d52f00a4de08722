// Copies a whole database: while a server writes it (02 §6), and back into a data folder.
import fs from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { StartupError } from '#protocol/errors.ts';
import { makeFolder } from '#protocol/folder.ts';
import { acquireOwnerLock, makePrivateFile } from './database-file.ts';

const BUSY_TIMEOUT_MS = 5000;
/** Of the file that becomes the database once it is whole. No server opens it under this name. */
const UNFINISHED = '-unfinished';

/** Copies into `target`, which must be absent or empty. Blocks this process, not a server's writes. */
export function copyDatabase(source: string, target: string): void {
  // Read-only as a file; `query_only` would forbid the copy as well.
  const db = new Database(source, { readonly: true, fileMustExist: true, timeout: BUSY_TIMEOUT_MS });
  try {
    db.prepare('VACUUM INTO ?').run(target);
  } finally {
    db.close();
  }
  // A copy that was reported outlives a loss of power.
  syncToDisk(target);
}

function syncToDisk(file: string): void {
  const opened = fs.openSync(file, 'r');
  try {
    fs.fsyncSync(opened);
  } finally {
    fs.closeSync(opened);
  }
}

/**
 * Makes the database `target` out of a file beside it: `fill` writes that file, which has the rights of its owner alone,
 * and may find what an earlier attempt left. `target` appears whole, by one rename, or not at all; no server can open it
 * meanwhile.
 * Throws `StartupError`: `database_in_use`, and `database_not_empty` where `target` or a log of it is there.
 */
export async function makeDatabase<T>(target: string, fill: (file: string) => T | Promise<T>): Promise<T> {
  makeFolder(path.dirname(target), 0o700);
  const lock = acquireOwnerLock(target);
  try {
    for (const file of [target, `${target}-wal`, `${target}-journal`]) {
      if (fs.lstatSync(file, { throwIfNoEntry: false }) === undefined) continue;
      throw new StartupError('database_not_empty', [
        `database_not_empty: ${file} exists; name a folder without a database, or move metis.db and the files beside it away`,
      ]);
    }
    const file = `${target}${UNFINISHED}`;
    makePrivateFile(file);
    const filled = await fill(file);
    syncToDisk(file);
    fs.rmSync(`${target}-shm`, { force: true });
    fs.renameSync(file, target);
    syncToDisk(path.dirname(target));
    return filled;
  } finally {
    lock.release();
  }
}
