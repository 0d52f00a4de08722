// Removes a folder that a worker could fill as it liked: with paths longer than the system takes, and locked folders.
import { execFile } from 'node:child_process';
import { rm } from 'node:fs/promises';
import { promisify } from 'node:util';
import { errorCode } from './descriptors.ts';

const run = promisify(execFile);
const TIMEOUT_MS = 120_000;
/** What the call of Node fails with, and the program does not. */
const HARD: readonly (string | null)[] = ['ENAMETOOLONG', 'EACCES', 'EPERM'];

/** Links are removed, not followed. Nothing happens where the folder is missing. */
export async function removeTree(folder: string, retries: { maxRetries?: number; retryDelay?: number } = {}) {
  try {
    await rm(folder, { recursive: true, force: true, ...retries });
  } catch (error) {
    if (!HARD.includes(errorCode(error))) throw error;
    // Folders alone: a file may have a second name outside, whose mode is not ours.
    const unlock = ['-type', 'd', '!', '-perm', '-700', '-exec', 'chmod', 'u+rwx', '{}', ';'];
    await run('find', [folder, ...unlock], { timeout: TIMEOUT_MS }).catch(() => {});
    await run('rm', ['-rf', '--', folder], { timeout: TIMEOUT_MS });
  }
}
