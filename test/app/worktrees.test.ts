// `metis worktrees` and `metis conclude` against a real server with workers in worktrees (20 §2.7, §3).
import fs from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { doorHome, serveIn, usage } from '../support/doors.ts';
import { until } from '../support/until.ts';
import { git } from '../support/worktrees.ts';
import { runHere } from './here.ts';

const call = (name: string, input: object) => ({ name, input });
const job = (task: string, over: object = {}) =>
  call('delegate', { tier: 'fast', task, isolation: 'worktree', ...over });
const writes = (task: string, file: string) => ({
  match: { role: 'worker', user_contains: task, call: 1 },
  respond: { tool_calls: [call('write_file', { path: file, content: task })], usage },
});
const REST = { match: {}, times: 'inf', respond: { text: 'ok', usage } };

it('metis worktrees lists what is kept, with sizes, and prune frees it: what was not applied with --all alone', async () => {
  const home = doorHome(
    [
      {
        match: { role: 'planner', call: 1 },
        respond: { tool_calls: [job('merge it'), job('keep it', { apply: 'never' })], usage },
      },
      writes('merge it', 'a.txt'),
      writes('keep it', 'b.txt'),
      REST,
    ],
    { workers: { allow_approve_all: true } },
  );
  fs.writeFileSync(path.join(home.workspace, 'old.txt'), 'old');
  git(home.workspace, 'init', '-q');
  git(home.workspace, 'add', '-A');
  git(home.workspace, 'commit', '-q', '-m', 'first');
  const { url, client } = await serveIn(home);
  const ask = (...args: string[]) => runHere(['worktrees', ...args, '--server', url], { home: home.path });
  expect(await ask()).toMatchObject({ code: 0, stdout: '', stderr: expect.stringContaining('nothing is kept') });

  const session = await client.createSession({ workspace_path: home.workspace, approval_mode: 'approve_all' });
  for await (const _ of client.turn(session.id, { content: 'go' }));
  const { workers } = await client.listWorkers(session.id);
  const id = (file: string) => workers.find((one) => one.changed_files[0]?.path === file)!.worker_session_id!;
  const { code, stdout } = await ask();
  expect(code).toBe(0);
  expect(stdout).toMatch(/^worker +workspace +changes +folder +refs/);
  expect(stdout).toMatch(new RegExp(`^${id('a.txt')} .* applied +0 KiB +\\d+ KiB`, 'm'));
  expect(stdout).toMatch(new RegExp(`^${id('b.txt')} .* kept +0 KiB +\\d+ KiB`, 'm'));
  const lines = (await ask('--json')).stdout.trim().split('\n');
  expect(lines.map((line) => JSON.parse(line).applied).sort()).toEqual([false, true]);

  expect((await ask('prune')).stdout).toMatch(/^1 worktree freed, \d+ KiB$/m);
  expect((await ask()).stdout).not.toContain(id('a.txt'));
  expect(git(home.workspace, 'for-each-ref', '--format=%(refname)', 'refs/metis').trim().split('\n')).toEqual(
    ['base', 'result'].map((name) => `refs/metis/${id('b.txt')}/${name}`),
  );
  expect(JSON.parse((await ask('prune', '--all', '--json')).stdout).worker_session_ids).toEqual([id('b.txt')]);
  expect(git(home.workspace, 'for-each-ref', 'refs/metis')).toBe('');
});

it('metis conclude lets the running turn of a worker answer with what it has, once, and reports where none runs', async () => {
  const home = doorHome(
    [
      {
        match: { role: 'planner', call: 1 },
        respond: { tool_calls: [call('delegate', { tier: 'fast', task: 'wait' })], usage },
      },
      {
        match: { role: 'worker', call: 1 },
        respond: { tool_calls: [call('shell', { command: 'until [ -e go ]; do sleep 0.1; done' })], usage },
      },
      { match: { role: 'worker' }, respond: { text: 'as far as I got', usage } },
      REST,
    ],
    { workers: { allow_approve_all: true } },
  );
  const { url, client } = await serveIn(home);
  const conclude = (id: string, ...args: string[]) =>
    runHere(['conclude', id, ...args, '--server', url], { home: home.path });
  const session = await client.createSession({ workspace_path: home.workspace, approval_mode: 'approve_all' });
  const { turn_id } = await client.submitTurn(session.id, { content: 'go' });
  const worker = await until(async () => {
    const { workers } = await client.listWorkers(session.id);
    const id = workers[0]?.worker_session_id ?? null;
    if (id === null) return false;
    const { waiting_on } = await client.getSession(id);
    return waiting_on.some(({ kind }) => kind === 'tool') && id;
  }, 30);
  const first = await conclude(worker);
  expect(first).toMatchObject({ code: 0, stdout: expect.stringMatching(/^turn \w+ answers with what it has$/m) });
  expect((await conclude(worker)).stdout).toMatch(/was to conclude already/);
  expect(JSON.parse((await conclude(worker, '--json')).stdout)).toMatchObject({ applied: false });
  fs.writeFileSync(path.join(home.workspace, 'go'), '');
  await until(async () => (await client.getTurn(session.id, turn_id)).status === 'completed', 30);
  const { workers } = await client.listWorkers(session.id);
  expect(workers).toMatchObject([{ status: 'completed', output: 'as far as I got' }]);
  expect(await conclude(worker)).toMatchObject({
    code: 1,
    stderr: expect.stringContaining(`no turn runs in ${worker}`),
  });
});
