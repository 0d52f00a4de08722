// Copies the database as of one moment while a server writes it (02 §6).
import fs from 'node:fs';
import Database from 'better-sqlite3';

const BUSY_TIMEOUT_MS = 5000;

/** Copies into `target`, which must be absent or empty. Blocks this process, not a server's writes. */
export function copyDatabase(source: string, target: string): void {
  // Read-only as a file; `query_only` would forbid the copy as well.
  const db = new Database(source, { readonly: true, fileMustExist: true, timeout: BUSY_TIMEOUT_MS });
  try {
    db.prepare('VACUUM INTO ?').run(target);
  } finally {
    db.close();
  }
  const file = fs.openSync(target, 'r+');
  try {
    // A copy that was reported outlives a loss of power.
    fs.fsyncSync(file);
  } finally {
    fs.closeSync(file);
  }
}
