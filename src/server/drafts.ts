// Drafts: a file is written under the name of its process and renamed when it is whole, so that a reader finds it whole or not at all.
import fs from 'node:fs';
import path from 'node:path';

/**
 * Removes the drafts of processes that were killed while they wrote. Throws where the folder cannot be read.
 * @param pattern matches the name of a draft, with the process's id as its first group
 */
export function removeLeftDrafts(folder: string, pattern: RegExp): void {
  for (const name of fs.readdirSync(folder)) {
    const pid = pattern.exec(name)?.[1];
    if (pid !== undefined && !isProcessRunning(Number(pid))) removeDraft(path.join(folder, name));
  }
}

function isProcessRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (cause) {
    return (cause as NodeJS.ErrnoException).code === 'EPERM';
  }
}

/** Never throws: what keeps a draft from being removed is reported by the write, or nothing is lost by it. */
export function removeDraft(draft: string): void {
  try {
    fs.rmSync(draft, { force: true });
  } catch {
    // The folder is no folder, or of another user.
  }
}
