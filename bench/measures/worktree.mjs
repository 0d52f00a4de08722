// A worktree of a workspace of 10,000 files, beside `git worktree add` by itself in the same run: at most 300 ms above it.
import { execFile } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { silentLogger } from '#core/ports/logger.ts';
import { createIdGenerator } from '#protocol/ids.ts';
import { createWorktrees } from '#tools/worktree/worktrees.ts';
import { timed } from '../client.mjs';
import { aboveAtMost } from '../limits.mjs';
import { median } from '../stats.mjs';

export const name = 'worktree';

const FOLDERS = 100;
const FILES = 100;
/** A round. */
const TIMES = 3;
const MORE_MS = 300;
const run = promisify(execFile);

export async function measure(bench) {
  const folder = fs.realpathSync(bench.folder);
  const root = path.join(folder, 'repository');
  const git = (...args) => run('git', ['-c', 'user.name=a', '-c', 'user.email=a@example.com', ...args], { cwd: root });
  await fillRepository(root, git);
  const worktrees = createWorktrees({
    folder: path.join(folder, 'data/worktrees'),
    links: [],
    env: process.env,
    log: silentLogger,
  });
  const ids = createIdGenerator(() => Date.now(), Math.random);
  // They all stay until the end: some file systems give the inodes of removed files out again slowly, to either side.
  const several = async (once) => {
    const all = [];
    for (let i = 0; i < TIMES; i++) all.push(await timed(once));
    return median(all);
  };
  let bare = 0;
  const rounds = await bench.rounds({
    relay: () => several(() => git('worktree', 'add', '--detach', path.join(folder, `bare-${bare++}`), 'HEAD')),
    metis: () => several(() => worktrees.create(ids.session(), root)),
  });
  const row = `worktree of ${(FOLDERS * FILES).toLocaleString('en')} files`;
  return [{ row, unit: 'ms', better: 'lower', ...rounds, limit: aboveAtMost(MORE_MS) }];
}

/** Some files differ from the commit, and some are new. */
async function fillRepository(root, git) {
  for (let folder = 0; folder < FOLDERS; folder++) {
    const place = path.join(root, `folder-${folder}`);
    fs.mkdirSync(place, { recursive: true });
    for (let file = 0; file < FILES; file++)
      fs.writeFileSync(path.join(place, `file-${file}.txt`), `${folder} ${file}\n`.repeat(60));
  }
  await git('init', '-q', '-b', 'main');
  await git('add', '-A');
  await git('commit', '-q', '-m', 'first');
  for (let file = 0; file < 20; file++) {
    fs.appendFileSync(path.join(root, 'folder-0', `file-${file}.txt`), 'changed\n');
    fs.writeFileSync(path.join(root, 'folder-1', `new-${file}.txt`), 'new\n');
  }
}
