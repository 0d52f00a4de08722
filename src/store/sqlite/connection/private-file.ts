// Rights of the database's files: they hold whole conversations, so only their owner may open them (01 §11.1).
import fs from 'node:fs';

/** What SQLite writes beside a database, with the rights it finds on the database itself, and the lock. */
const BESIDE = ['', '-wal', '-shm', '-journal', '-owner', '-owner-journal'];
const OPEN_TO_OTHERS = 0o077;

/** Makes the file where it is missing, for its owner alone. Where it cannot, SQLite's own attempt says why. */
export function makePrivateFile(path: string): void {
  try {
    fs.closeSync(fs.openSync(path, 'a', 0o600));
  } catch {
    // Opening it is next.
  }
}

/** Takes the rights of others off a database and what lies beside it; a file of somebody else stays as it is. */
export function closeToOthers(path: string): void {
  for (const file of openToOthers(path)) {
    try {
      fs.chmodSync(file, 0o600);
    } catch {
      // Only its owner may: `doctor` says so.
    }
  }
}

/** Those of a database's files that others than their owner may read or write. */
export function openToOthers(path: string): string[] {
  if (process.platform === 'win32') return [];
  return BESIDE.map((ending) => `${path}${ending}`).filter((file) => {
    const found = fs.statSync(file, { throwIfNoEntry: false });
    return found !== undefined && (found.mode & OPEN_TO_OTHERS) !== 0;
  });
}
