// Refuses a database file whose place would lose data: two names of one file, or a log without its database (01 §11.1).
import fs from 'node:fs';
import { StartupError } from '#protocol/errors.ts';

/**
 * The path of the file behind links: lock, log and database must be those of one file.
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
