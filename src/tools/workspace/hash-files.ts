// The files of a folder by their hashes, for a workspace that lies in no repository (21 §3).
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { readdir, stat } from 'node:fs/promises';
import path from 'node:path';
import { pipeline } from 'node:stream/promises';
import { WorktreeError } from '#core/ports/worktrees.ts';
import { isProtectedName } from './confined-files.ts';

const MAX_FILES = 10_000;
const MAX_BYTES = 1024 * 1024 * 1024;
const MAX_DEPTH = 64;

/**
 * SHA-256 by path, sorted. Protected files are left out, as they are in a snapshot, and so is what is no plain file.
 * Throws `WorktreeError` where there is too much.
 */
export async function hashFiles(root: string): Promise<Record<string, string>> {
  const names = await listFiles(root);
  let bytes = 0;
  const files: Record<string, string> = {};
  for (const name of names) {
    const file = path.join(root, name);
    bytes += (await stat(file)).size;
    if (bytes > MAX_BYTES) throw new WorktreeError(`the workspace has more than ${MAX_BYTES} bytes and no repository`);
    files[name] = await hashFile(file);
  }
  return files;
}

async function listFiles(root: string): Promise<readonly string[]> {
  const found: string[] = [];
  const open = [{ folder: '', depth: 0 }];
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    const { folder, depth } = next;
    if (depth > MAX_DEPTH) throw new WorktreeError(`the workspace has folders deeper than ${MAX_DEPTH}: ${folder}`);
    for (const entry of await readdir(path.join(root, folder), { withFileTypes: true })) {
      const name = folder === '' ? entry.name : `${folder}/${entry.name}`;
      if (isProtectedName(name)) continue;
      if (entry.isDirectory()) open.push({ folder: name, depth: depth + 1 });
      else if (entry.isFile()) found.push(name);
      if (found.length > MAX_FILES)
        throw new WorktreeError(`the workspace has more than ${MAX_FILES} files and no repository`);
    }
  }
  return found.sort();
}

async function hashFile(file: string): Promise<string> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(file), hash);
  return hash.digest('hex');
}
