// Making a folder with those above it.
import fs from 'node:fs';
import path from 'node:path';

/**
 * Like `mkdir -p`. Throws the system's error where no folder can be made: Node's own `recursive` goes round for ever
 * below a folder that answers ENOENT to every attempt, such as /proc.
 * @param mode of the folders it makes
 */
export function makeFolder(folder: string, mode = 0o777): void {
  if (isFolder(folder)) return;
  const above = path.dirname(folder);
  if (above !== folder) makeFolder(above, mode);
  try {
    fs.mkdirSync(folder, mode);
  } catch (cause) {
    // Another process may have made the folder meanwhile.
    if (!isFolder(folder)) throw cause;
  }
}

function isFolder(folder: string): boolean {
  return fs.statSync(folder, { throwIfNoEntry: false })?.isDirectory() ?? false;
}
