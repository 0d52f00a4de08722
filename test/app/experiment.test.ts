// `metis experiment` as a process with scripted models: the limit, a kill in the middle, and what it concludes (21 §5).
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { doorHome, type Home, serveIn } from '../support/doors.ts';
import { ownSchema, postgresService } from '../support/services.ts';
import { until } from '../support/until.ts';
import { ROOT, run, start } from './metis.ts';

/** What one call of the planner costs, at 5 and 25 dollars for a million tokens. */
const COST = 0.13;
const answer = (delay_ms: number) => ({
  match: { role: 'planner' },
  times: 'inf',
  respond: { text: 'ok', delay_ms, usage: { input_tokens: 6000, output_tokens: 4000 } },
});
const ARMS = '[{ planner: deep }, { planner: deep, delegate: false }]';

function makeRepository(folder: string): void {
  const git = (...args: string[]) => execFileSync('git', ['-C', folder, ...args]);
  git('init', '-q');
  git('add', '.');
  git('-c', 'user.name=t', '-c', 'user.email=t@t', 'commit', '-q', '--allow-empty', '-m', 'start');
}

/** Two tasks on the home's workspace, one of which no arm solves. */
function writeFile(home: Home, rest: string): string {
  fs.writeFileSync(path.join(home.workspace, 'a.txt'), 'a');
  makeRepository(home.workspace);
  const task = (name: string, check: string) =>
    `  - { name: ${name}, prompt: go, workspace: ${home.workspace}, check: '${check}' }`;
  const file = path.join(home.path, 'experiment.yaml');
  fs.writeFileSync(
    file,
    ['tasks:', task('solved', 'test -f a.txt'), task('unsolved', 'test -f b.txt'), rest].join('\n'),
  );
  return file;
}

async function readCeiling(home: Home): Promise<number> {
  const { client, server } = await serveIn(home);
  const session = await client.createSession({ workspace_path: home.workspace, initial_active_model: 'deep' });
  const { cost_ceiling_usd } = await client.estimateTurn(session.id, { content: 'go' });
  await client.endSession(session.id, { purge: true });
  await server.stop('SIGTERM');
  return Number(cost_ceiling_usd);
}

const sum = (runs: readonly { readonly cost_usd: string }[]) =>
  runs.reduce((all, one) => all + Number(one.cost_usd), 0);

const { url, missing } = await postgresService();
/** The home's data is in PostgreSQL. The lease of a killed server must end soon, and a busy one must keep its own. */
async function useSchema(home: Home): Promise<void> {
  const schema = await ownSchema(url!);
  home.atEnd(() => schema.drop());
  const file = path.join(home.data, 'server.yaml');
  const root = fs.realpathSync(home.path);
  const worktree_root = path.join(root, 'trees');
  const cluster = { name: schema.name, lease_seconds: 5, shared_roots: [root], worktree_root };
  const config = JSON.parse(fs.readFileSync(file, 'utf8'));
  fs.writeFileSync(file, JSON.stringify({ ...config, database: { url: schema.url }, cluster }));
}

describe.each([
  ['SQLite', false, async () => {}],
  [`PostgreSQL${missing && `, skipped: ${missing}`}`, url === null, useSchema],
] as const)('an experiment on %s', (_, isMissing, place) => {
  // Promise 21.8: Two tasks and two arms, two side by side, under a limit for three: the limit holds, and the fourth is not run.
  // Promise 21.8: Killed and started again, the same command goes on, and nothing is paid twice.
  it.skipIf(isMissing)(
    'holds its limit over runs side by side, and goes on after a kill without paying twice',
    async () => {
      const home = doorHome([answer(1200)]);
      await place(home);
      // Two calls at their most and one that was paid fit; a fourth does not, whatever is known of its prompt by then.
      const ceiling = await readCeiling(home);
      const limit = (COST + ceiling * 2 + 0.000001).toFixed(6);
      expect(Number(limit)).toBeLessThan(COST * 4);
      const file = writeFile(home, `arms: ${ARMS}\nparallel: 2\nmax_cost_usd: "${limit}"`);
      const killed = start(['experiment', file, '--json'], { home: home.path });
      home.atEnd(async () => void (await killed.stop('SIGKILL')));
      await until(() => killed.output.stderr.includes('run 1: '));
      await killed.stop('SIGKILL');
      expect(killed.output.stdout).toBe('');

      const { code, stdout, stderr } = await run(['experiment', file, '--json'], { home: home.path });
      expect(code, stderr).toBe(1);
      const report = JSON.parse(stdout);
      const results = report.runs.map(({ result }: { result: string }) => result);
      expect(results.filter((one: string) => one === 'not_run')).toHaveLength(1);
      expect(sum(report.runs)).toBeCloseTo(3 * COST, 9);
      expect(Number(report.spent_usd)).toBeLessThanOrEqual(Number(limit));
      for (const { task, result, reason } of report.runs)
        if (result !== 'not_run')
          expect([result, reason === null]).toEqual(task === 'solved' ? ['passed', true] : ['failed', false]);

      // A third time nothing runs any more, and every session is one of the experiment.
      const again = await run(['experiment', file, '--json'], { home: home.path });
      // How a check ended is shown once; that it did not pass is stored.
      const strip = ({ runs, ...rest }: { readonly runs: readonly object[] }) => ({
        ...rest,
        runs: runs.map((one) => ({ ...one, reason: null })),
      });
      expect(strip(JSON.parse(again.stdout))).toEqual(strip(report));
      const { client } = await serveIn(home);
      const { sessions } = await client.listSessions({ limit: 50 });
      expect(sessions).toHaveLength(4);
      expect(new Set(sessions.map(({ experiment }) => experiment?.id))).toEqual(new Set([report.id]));
      const { totals } = await client.getCost({ group_by: 'none', from: 'all' });
      expect(Number(totals.cost_usd)).toBeCloseTo(3 * COST, 9);
      expect(totals.call_count).toBe(3);
      // Its checks are evidence of chapter 12, and the worktrees are gone.
      const { events } = await client.listEvents(report.runs[0].session_id, { types: ['eval.completed'] });
      expect(events.map(({ payload }) => 'rubric_id' in payload && payload.rubric_id)).toContain('check-v1');
      const left = path.join(home.data, 'experiments');
      expect(
        execFileSync('git', ['-C', home.workspace, 'worktree', 'list'], { encoding: 'utf8' }).trim().split('\n'),
      ).toHaveLength(1);
      expect(fs.existsSync(left) ? fs.readdirSync(path.join(left, report.id.slice(0, 16))) : []).toEqual([]);
    },
    120_000,
  );
});

// Promise 21.11: Where delegating loses the last line states that it does not pay; where it wins, that it pays.
it('states in its last line whether delegating pays: the two experiments that ship', async () => {
  const home = doorHome([]);
  const folder = path.join(home.path, 'experiment');
  fs.cpSync(path.join(ROOT, 'examples/experiment'), folder, { recursive: true });
  makeRepository(folder);
  const ask = (name: string) =>
    run(
      [
        'experiment',
        path.join(folder, name),
        '--set',
        `registry.path=${path.join(folder, 'registry.yaml')}`,
        '--set',
        'routing.global_default_model=scripted:deep',
      ],
      {
        home: home.path,
      },
    );
  const small = await ask('small.yaml');
  expect(small.code, small.stderr).toBe(0);
  expect(small.stdout).toContain('Cheapest within 5 points of the best: scripted:deep alone.');
  expect(small.stdout).toContain('n is too small to be sure');
  expect(small.stdout.trimEnd().split('\n').at(-1)).toBe('delegating does not pay here');
  const large = await ask('large.yaml');
  expect(large.code, large.stderr).toBe(0);
  expect(large.stdout.trimEnd().split('\n').at(-1)).toBe('delegating pays here');
});

// Promise 21.11: The same arm twice on deterministic tasks passes and fails the same.
it('has the same result for the same arm twice, and refuses a file that is wrong by the names of its fields', async () => {
  const home = doorHome([answer(0)]);
  const file = writeFile(home, 'arms: [{ planner: deep }, { planner: deep }]\nrepeat: 2\nmax_cost_usd: "20"');
  const { stdout, stderr } = await run(['experiment', file, '--json'], { home: home.path });
  expect(stdout, stderr).not.toBe('');
  const [one, two] = JSON.parse(stdout).arms;
  expect([one.passed, one.runs]).toEqual([2, 4]);
  expect([two.passed, two.runs, two.cost_usd]).toEqual([one.passed, one.runs, one.cost_usd]);

  fs.writeFileSync(file, 'tasks: []\narms: [{ planner: deep, tires: 1 }]\nmax_cost_usd: "1"');
  const wrong = await run(['experiment', file], { home: home.path });
  expect(wrong.code).toBe(1);
  expect(wrong.stderr).toMatch(/tasks: .*\n.*arms/);
});

it('pays for no arm where another one cannot run, and keeps nothing of it', async () => {
  const home = doorHome([answer(0)]);
  const file = writeFile(home, 'arms: [{ planner: deep }, { planner: nope }]\nmax_cost_usd: "20"');
  const { code, stdout, stderr } = await run(['experiment', file], { home: home.path });
  expect([code, stdout]).toEqual([1, '']);
  expect(stderr).toContain('arms.1: "nope" is neither a model id nor an alias of this server');
  const { client } = await serveIn(home);
  expect((await client.listSessions({ limit: 50 })).sessions).toEqual([]);
  expect((await client.getCost({ group_by: 'none', from: 'all' })).totals.call_count).toBe(0);
  expect(fs.existsSync(path.join(home.data, 'experiments'))).toBe(false);
  const listed = execFileSync('git', ['-C', home.workspace, 'worktree', 'list'], { encoding: 'utf8' });
  expect(listed.trim().split('\n')).toHaveLength(1);
});

it('runs once where two processes are given the same file, and completes a checkout that was half made', async () => {
  const home = doorHome([answer(1500)]);
  const file = writeFile(home, 'arms: [{ planner: deep }]\nmax_cost_usd: "20"');
  const id = createHash('sha256').update(fs.readFileSync(file)).digest('hex').slice(0, 16);
  const half = path.join(home.data, 'experiments', id, 'solved');
  fs.mkdirSync(path.dirname(half), { recursive: true });
  execFileSync('git', ['-C', home.workspace, 'worktree', 'add', '--quiet', '--detach', half]);
  fs.rmSync(path.join(half, 'a.txt'));
  const { client } = await serveIn(home);
  const ends = await Promise.all([1, 2].map(() => run(['experiment', file, '--json'], { home: home.path })));
  expect(ends.map(({ code }) => code).sort()).toEqual([0, 1]);
  const refused = ends.find(({ code }) => code === 1);
  expect([refused?.stdout, refused?.stderr]).toEqual([
    '',
    'metis: another process runs this experiment; its results are found by the same command\n',
  ]);
  const { runs } = JSON.parse(ends.find(({ code }) => code === 0)!.stdout);
  expect(runs.map(({ result }: { result: string }) => result)).toEqual(['passed', 'failed']);
  expect((await client.getCost({ group_by: 'none', from: 'all' })).totals.call_count).toBe(2);
  expect(fs.existsSync(path.join(home.data, 'experiments'))).toBe(false);
});
