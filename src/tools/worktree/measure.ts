// Sizes of worktrees: their folders, and the git objects that only their refs hold (20 §2.7).
import { lstat, readdir } from 'node:fs/promises';
import path from 'node:path';
import type { Git } from './git.ts';
import { runShared } from './repository.ts';

const AT_ONCE = 64;

/** Bytes of the files in a folder; 0 where there is none. Links are not followed. */
export async function measureFolder(folder: string): Promise<number> {
  const entries = await readdir(folder, { withFileTypes: true }).catch(() => []);
  let bytes = 0;
  const files = entries.filter((entry) => entry.isFile());
  for (let i = 0; i < files.length; i += AT_ONCE) {
    const found = await Promise.all(
      files.slice(i, i + AT_ONCE).map(({ name }) => lstat(path.join(folder, name)).catch(() => null)),
    );
    for (const file of found) bytes += file?.size ?? 0;
  }
  for (const entry of entries) if (entry.isDirectory()) bytes += await measureFolder(path.join(folder, entry.name));
  return bytes;
}

/** Bytes of objects that branches, tags and the stash do not hold; 0 where the refs or the repository are gone. */
export async function measureRefs(git: Git, common_dir: string, session: string): Promise<number> {
  const list = ['for-each-ref', '--format=%(objectname)', `refs/metis/${session}`];
  const refs = await runShared(git, { common_dir }, list).catch(() => null);
  const commits = refs?.out.toString('utf8').trim().split('\n').filter(Boolean) ?? [];
  if (commits.length === 0) return 0;
  const args = [
    'rev-list',
    '--objects',
    '--disk-usage',
    ...commits,
    '--not',
    '--branches',
    '--tags',
    '--glob=refs/stash',
  ];
  const usage = await runShared(git, { common_dir }, args).catch(() => null);
  return Number(usage?.out.toString('utf8').trim() ?? 0) || 0;
}
