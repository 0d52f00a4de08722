// `metis cost --verified` against a real server whose worker's claims were checked (20 §10).
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { doorHome, serveIn, usage } from '../support/doors.ts';
import { runHere } from './here.ts';

const call = (name: string, input: object) => ({ name, input });
const job = (task: string) => call('delegate', { tier: 'fast', task, check: 'made' });
const RULES = [
  { match: { role: 'planner', call: 1 }, respond: { tool_calls: [job('do it'), job('say it')], usage } },
  { match: { role: 'planner', call: 2 }, respond: { text: 'ok', usage } },
  {
    match: { role: 'worker', user_contains: 'do it', call: 1 },
    respond: { tool_calls: [call('write_file', { path: 'a.txt', content: 'a' })], usage },
  },
  { match: { role: 'worker' }, times: 'inf', respond: { text: 'done, and it passes', usage } },
];

it('prints per group what was checked, what passed, and what a verified result cost', async () => {
  const home = doorHome(RULES, {
    checks: { made: { command: 'test -f a.txt' } },
    workers: { allow_approve_all: true },
  });
  execFileSync('git', ['init', '-q', home.workspace]);
  fs.writeFileSync(path.join(home.workspace, 'b.txt'), 'b');
  const { url, client } = await serveIn(home);
  const ask = (...args: string[]) => runHere(['cost', '--verified', '--server', url, ...args], { home: home.path });
  expect(await ask('--group-by', 'check')).toMatchObject({
    code: 0,
    stdout: 'no delegation with a check in this time\n',
  });

  const session = await client.createSession({ workspace_path: home.workspace, approval_mode: 'approve_all' });
  for await (const _ of client.turn(session.id, { content: 'go' }));
  const { data } = await client.getVerifiedResults({ group_by: 'check', from: 'all' });
  expect(data).toMatchObject([{ key: 'made', checked: 2, passed_first: 1, passed: 1, failed: 1 }]);
  const { code, stdout } = await ask('--group-by', 'check');
  expect(code).toBe(0);
  expect(stdout).toContain('Simulated: a script answered, at example prices; nothing was spent.');
  const [header, , row] = stdout.split('\n').map((line) => line.trim().split(/ {2,}/));
  const [{ cost_usd, cost_per_verified_usd, planner_cost_usd }] = data as [(typeof data)[number]];
  expect(header).toEqual([
    'check',
    'checked',
    'passed first',
    'passed',
    'failed',
    'cost',
    'per verified',
    'by the planner',
  ]);
  const dollars = [cost_usd, cost_per_verified_usd, planner_cost_usd].map((usd) => (usd === null ? '-' : `$${usd}`));
  expect(row).toEqual(['made', '2', '1', '1', '1', ...dollars]);

  expect(JSON.parse((await ask('--group-by', 'check', '--json')).stdout)).toMatchObject({ data });
  expect(await ask('--group-by', 'day')).toMatchObject({ code: 1, stderr: expect.stringMatching(/group_by.*model/) });
});
