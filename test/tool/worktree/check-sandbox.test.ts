// A check in the sandbox of the shell: its own copy is writable, the caller's workspace and the server's data are not (20 §10.2).
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { systemClock } from '#protocol/clock.ts';
import { createSandbox } from '#tools/sandbox/bubblewrap.ts';
import { createCheckRunner } from '#tools/sandbox/check-runner.ts';
import { until } from '../../support/until.ts';
import { ANY_PATH, createRepository } from './repository.ts';

function hasBubblewrap(): boolean {
  try {
    execFileSync('bwrap', ['--unshare-user', '--unshare-pid', '--unshare-net', '--ro-bind', '/', '/', 'true']);
    return true;
  } catch {
    return false;
  }
}

it.skipIf(!hasBubblewrap())('a check writes its own copy alone, and its folder goes', async () => {
  const { folder, root, home, worktrees, create } = createRepository({ 'a.txt': 'a\n' });
  const worktree = await create();
  fs.writeFileSync(path.join(worktree.tree_path, 'b.txt'), 'b\n');
  fs.writeFileSync(path.join(folder, 'data/secret'), 'x');
  const { result_tree } = await worktrees.recordResult(worktree, ANY_PATH);
  const merge = await worktrees.merge({ ...worktree, result_tree });
  if (merge.kind !== 'clean') throw new Error('a conflict');
  const check = await worktrees.openCheckFolder(worktree, merge.tree, []);
  const env = { PATH: process.env.PATH ?? '' };
  const dataFolder = path.dirname(home);
  const sandbox = createSandbox({ network: false, dataFolder, projectFiles: false, env });
  const lines = [
    'cat a.txt b.txt',
    'touch "$TMPDIR/x" new && echo own',
    `touch ${root}/evil 2>/dev/null || echo read-only`,
    `cat ${dataFolder}/secret 2>/dev/null || echo hidden`,
    'git status --short | head -1',
  ];
  const { exit_code, output } = await createCheckRunner({ env, secrets: [], sandbox, clock: systemClock }).run({
    folder: check,
    check: { command: lines.join('; '), timeout_seconds: 30 },
    marker: 'tu_1.1',
    signal: new AbortController().signal,
    onStarted: async () => {},
  });
  expect({ exit_code, output }).toEqual({ exit_code: 0, output: 'a\nb\nown\nread-only\nhidden\n?? new\n' });
  await worktrees.removeCheckFolder(worktree);
  expect([fs.existsSync(check.root), fs.existsSync(path.join(root, 'evil'))]).toEqual([false, false]);
});

it.skipIf(process.platform !== 'linux')(
  'a daemon that a check starts in a session of its own ends with the check',
  async () => {
    const { folder } = createRepository({});
    const pid = path.join(folder, 'pid');
    const daemon = `setsid sh -c 'trap "" TERM HUP; echo $$ > ${pid}; while :; do sleep 1; done' > /dev/null 2>&1 &`;
    const { exit_code } = await createCheckRunner({
      env: { PATH: process.env.PATH ?? '' },
      secrets: [],
      sandbox: null,
      clock: systemClock,
    }).run({
      folder: { root: folder, temporary: folder },
      check: { command: `${daemon} until [ -s ${pid} ]; do sleep 0.05; done`, timeout_seconds: 30 },
      marker: `tu_${path.basename(folder)}.1`,
      signal: new AbortController().signal,
      onStarted: async () => {},
    });
    expect(exit_code).toBe(0);
    const proc = `/proc/${fs.readFileSync(pid, 'utf8').trim()}/environ`;
    // A killed process that waits for its parent to read its end has no environment any more.
    const isGone = () => {
      try {
        return fs.readFileSync(proc).length === 0;
      } catch {
        return true;
      }
    };
    await until(isGone);
  },
);
