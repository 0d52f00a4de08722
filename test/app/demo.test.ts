// `metis demo`: the first thing a person sees, run as they run it.
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { toPusd } from '#protocol/money.ts';
import { type Finished, getJson, MAIN, PASSED_ON, run, start, temporaryHome } from './metis.ts';

const ESCAPE = '\x1b';
const LIMIT_MS = 30_000;
/** Of jobs with git and checks, on a machine that does much else. */
const LONG_MS = 180_000;
/** util-linux's `script` gives a command a terminal of its own. */
const HAS_SCRIPT = spawnSync('script', ['--version']).status === 0;

const home = temporaryHome();
const temporary = path.join(home.path, 'tmp');
let piped: Finished & { readonly ms: number };
let terminal: Finished;
let colourless: Finished;

// The runs wait for scripted delays most of the time, so they go side by side.
beforeAll(async () => {
  fs.mkdirSync(temporary);
  const before = Date.now();
  [piped, terminal, colourless] = await Promise.all([
    run(['demo'], { home: home.path, env: { TMPDIR: temporary } }).then((done) => ({
      ...done,
      ms: Date.now() - before,
    })),
    onTerminal({}),
    onTerminal({ NO_COLOR: '1' }),
  ]);
});
afterAll(() => home.remove());

function onTerminal(env: Record<string, string>, ...flags: string[]): Promise<Finished> {
  if (!HAS_SCRIPT) return Promise.resolve({ code: null, stdout: '', stderr: '' });
  const command = `stty cols 80 rows 24; exec '${process.execPath}' '${MAIN}' ${['demo', ...flags].join(' ')}`;
  const child: ChildProcess = spawn('script', ['-qec', command, '/dev/null'], {
    env: { ...PASSED_ON, HOME: home.path, TMPDIR: temporary, TERM: 'xterm-256color', ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let stdout = '';
  child.stdout?.setEncoding('utf8').on('data', (text: string) => {
    stdout += text;
  });
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) => resolve({ code, stdout, stderr: '' }));
  });
}
const visible = (text: string) => text.replace(new RegExp(`${ESCAPE}\\[[0-9;?]*[A-Za-z]`, 'g'), '');

interface Row {
  readonly label: string;
  readonly cost: bigint;
}
/** The lines of the cost table: the sessions between its rules, the sums below them. */
function costTable(output: string): { readonly sessions: Row[]; readonly sums: Row[] } {
  const [, sessions, sums] = output.slice(output.lastIndexOf('session ')).split(/^─+$/m);
  const rows = (part: string | undefined) =>
    [...(part ?? '').matchAll(/^(planner|workers?(?: \d)?|total) .*\$([\d.]+)$/gm)].map((match) => ({
      label: match[1]!,
      cost: toPusd(match[2]!),
    }));
  return { sessions: rows(sessions), sums: rows(sums) };
}
const sum = (rows: readonly Row[]) => rows.reduce((total, row) => total + row.cost, 0n);

describe('a demo that is left early', () => {
  const own = temporaryHome();
  const DEMO = { home: own.path, env: { TMPDIR: path.join(own.path, 'left') } };
  const left = () => fs.readdirSync(DEMO.env.TMPDIR);
  beforeAll(() => fs.mkdirSync(DEMO.env.TMPDIR));
  afterAll(() => own.remove());

  it('ends without a word and leaves nothing when nobody reads on', async () => {
    const running = start(['demo'], DEMO);
    await running.line(/on http/);
    running.child.stdout!.destroy();
    expect(await running.finished).toMatchObject({ code: 130, stderr: '' });
    expect(left()).toEqual([]);
  });

  it('leaves nothing after a second signal, which does not wait', async () => {
    const running = start(['demo'], DEMO);
    await running.line(/on http/);
    running.child.kill('SIGINT');
    running.child.kill('SIGTERM');
    await running.finished;
    expect(left()).toEqual([]);
  });
});

describe('piped into a file', () => {
  // Promise 17.1: the demo ends with 0 within 30 s without a key.
  // Promise 17.2: the demo in a file holds no escape codes.
  it('does the job without a key, ends with 0 within 30 s, and holds no escape code', () => {
    expect(piped.stderr).toBe('');
    expect(piped.code).toBe(0);
    expect(piped.ms).toBeLessThan(LIMIT_MS);
    expect(piped.stdout).not.toContain(ESCAPE);
    for (const line of piped.stdout.split('\n')) expect(line.length).toBeLessThanOrEqual(80);
    for (const worker of [1, 2, 3]) expect(piped.stdout).toMatch(new RegExp(`^worker ${worker} +runs edit_file$`, 'm'));
    expect(piped.stdout).toMatch(/^planner +runs shell$/m);
    expect(piped.stdout.replaceAll('\n', ' ')).toContain('the tests pass');
  });

  // Promise 17.1: the demo's total equals the sum of its rows.
  it('its total is the sum of its rows, and the subtotals are their parts', () => {
    const { sessions, sums } = costTable(piped.stdout);
    expect(sessions.map((row) => row.label)).toEqual(['planner', 'worker 1', 'worker 2', 'worker 3']);
    expect(sums.map((row) => row.label)).toEqual(['planner', 'workers', 'total']);
    expect(sums[2]!.cost).toBe(sum(sessions));
    expect(sums[0]!.cost).toBe(sessions[0]!.cost);
    expect(sums[1]!.cost).toBe(sum(sessions.slice(1)));
    expect(sums[2]!.cost).toBeGreaterThan(0n);
    expect(piped.stdout).toMatch(/The workers' tokens on the planner's model: \$0\.\d+/);
  });

  it('marks its money as simulated, and ends with what to do next', () => {
    expect(piped.stdout).toMatch(/^session .* example \$$/m);
    expect(piped.stdout).toMatch(/^Simulated: scripts answered in place of models, so nothing was spent\.$/m);
    const next = piped.stdout.slice(piped.stdout.indexOf('\nNext:\n'));
    expect(next.trimEnd().split('\n')).toEqual([
      '',
      'Next:',
      expect.stringMatching(/^ {2}metis demo --keep +the same/),
      expect.stringMatching(/^ {2}metis serve +the server/),
      expect.stringMatching(/^ {4}ANTHROPIC_BASE_URL=http:\/\/127\.0\.0\.1:8420 ANTHROPIC_AUTH_TOKEN=metis claude$/),
      expect.stringMatching(/^ {2}metis run "TASK" /),
    ]);
  });

  it('names what its saving is a share of: the workers and the whole job', () => {
    const { sums } = costTable(piped.stdout);
    const usd = (label: string) => toPusd(new RegExp(`^${label}: \\$([\\d.]+)$`, 'm').exec(piped.stdout)![1]!);
    const [saved, workers] = [
      usd('Saved by delegating, at example prices'),
      usd("The workers' tokens on the planner's model"),
    ];
    expect(saved).toBe(workers - sums[1]!.cost);
    const percent = (whole: bigint) => `${((Number(saved) / Number(whole)) * 100).toFixed(1)} %`;
    expect(piped.stdout).toContain(
      `\nThat is ${percent(workers)} of the workers' part and ${percent(sums[2]!.cost + saved)} of the whole job.\n`,
    );
  });

  it('leaves nothing behind, neither at home nor in the temporary folder', () => {
    expect(fs.readdirSync(home.path)).toEqual(['tmp']);
    // Node's own compile cache, where it keeps one, is not ours.
    expect(fs.readdirSync(temporary).filter((name) => name.startsWith('metis-'))).toEqual([]);
  });
});

describe('--worktrees', () => {
  it(
    'has four workers change one file at once, and the one in conflict resolve it; nothing of the person is touched',
    async () => {
      const env = {
        TMPDIR: temporary,
        GIT_CONFIG_COUNT: '1',
        GIT_CONFIG_KEY_0: 'core.bare',
        GIT_CONFIG_VALUE_0: 'true',
      };
      const { code, stdout, stderr } = await run(['demo', '--worktrees'], { home: home.path, env });
      expect([code, stderr]).toEqual([0, '']);
      const outcomes = stdout.split('\n').filter((line) => line.includes(': worktree, '));
      expect(outcomes).toEqual([
        ...[1, 2, 3].map((n) => `worker ${n}: worktree, applied`),
        'worker 4: worktree, not applied, conflict in src/format.mjs',
        'worker 5, continues worker 4: worktree, applied',
      ]);
      expect(stdout.replaceAll('\n', ' ')).toContain('The tests pass.');
      for (const line of stdout.split('\n')) expect(line.length).toBeLessThanOrEqual(80);
      expect(fs.readdirSync(home.path)).toEqual(['tmp']);
      expect(fs.readdirSync(temporary).filter((name) => name.startsWith('metis-'))).toEqual([]);
    },
    LONG_MS,
  );
});

describe('--checked', () => {
  /** The outcomes of each worker; which of the two is created first is open. */
  const OUTCOMES = [['passed'], ['failed', 'failed', 'passed']];
  const byWorker = (rows: readonly (readonly [worker: string, outcome: string])[]) =>
    ['worker 1', 'worker 2']
      .map((name) => rows.filter(([worker]) => worker === name).map(([, outcome]) => outcome))
      .sort((a, b) => a.length - b.length);

  it(
    'has a check refute what a worker claims twice, applies its third attempt, and reports what that cost',
    async () => {
      const { code, stdout, stderr } = await run(['demo', '--checked'], {
        home: home.path,
        env: { TMPDIR: temporary },
      });
      expect([code, stderr]).toEqual([0, '']);
      const steps = [...stdout.matchAll(/^planner +(worker \d): check test (\w+), attempt \d$/gm)];
      expect(byWorker(steps.map(([, worker, outcome]) => [worker!, outcome!]))).toEqual(OUTCOMES);
      const attempts = [...stdout.matchAll(/^(worker \d) +(\d {2}scripted:\w+ +test [^\n]*?) +[\d.]+ s$/gm)];
      const rows = attempts.map(([, worker, row]) => [worker!, row!.replace(/ +/g, ' ')] as const);
      expect(byWorker(rows)).toEqual([
        ['1 scripted:fast test passed'],
        [
          '1 scripted:fast test failed, exit code 1',
          '2 scripted:fast test failed, exit code 1',
          '3 scripted:balanced test passed',
        ],
      ]);
      expect(stdout.match(/^worker \d: verified, applied$/gm)).toHaveLength(2);
      expect(stdout).toContain('\n  its changes to test/cents.test.mjs did not count\n');
      const [, cost, each] = /^test +2 +1 +2 +0 +\$([\d.]+) +\$([\d.]+)$/m.exec(stdout)!;
      expect(toPusd(cost!)).toBe(2n * toPusd(each!));
      const { sums } = costTable(stdout);
      expect(sums.find((row) => row.label === 'workers')!.cost).toBe(toPusd(cost!));
      for (const line of stdout.split('\n')) expect(line.length).toBeLessThanOrEqual(80);
      expect(stdout).not.toContain(ESCAPE);
      expect(stdout).toMatch(/^ {2}metis demo --checked --keep /m);
      expect(fs.readdirSync(temporary).filter((name) => name.startsWith('metis-'))).toEqual([]);
    },
    LONG_MS,
  );

  it.skipIf(!HAS_SCRIPT)(
    'on a terminal of 80 columns no line wraps, and NO_COLOR takes the colours away',
    async () => {
      const { code, stdout } = await onTerminal({ NO_COLOR: '1' }, '--checked');
      expect(code).toBe(0);
      expect(stdout).not.toMatch(new RegExp(`${ESCAPE}\\[[\\d;]+m`));
      // Each outcome is painted at once. Which of the two workers is created first is open.
      const painted = [...visible(stdout).matchAll(/([✗✓]) {3}(worker \d) .*check test (\w+)/g)];
      const failing = new Set(painted.filter(([, mark]) => mark === '✗').map(([, , worker]) => worker));
      expect(failing.size).toBe(1);
      const [worker] = failing;
      expect(
        new Set(painted.filter(([, , name]) => name === worker).map(([, mark, , end]) => `${mark} ${end}`)),
      ).toEqual(new Set(['✗ failed', '✓ passed']));
      for (const line of visible(stdout).split(/[\r\n]+/)) expect(line.length).toBeLessThanOrEqual(79);
    },
    LONG_MS,
  );
});

describe.skipIf(!HAS_SCRIPT)('on a terminal of 80 columns', () => {
  // Promise 17.2: on a terminal of 80 columns no line wraps.
  it('no line wraps, and the tree is repainted in place', () => {
    expect(terminal.code).toBe(0);
    expect(terminal.stdout).toContain(`${ESCAPE}[4A`);
    for (const line of visible(terminal.stdout).split(/[\r\n]+/)) expect(line.length).toBeLessThanOrEqual(79);
    expect(visible(terminal.stdout)).toMatch(/✓ {3}worker 3/);
    expect(terminal.stdout).toContain(`${ESCAPE}[32m`);
  });

  it('NO_COLOR takes the colours away', () => {
    expect(colourless.code).toBe(0);
    expect(colourless.stdout).not.toMatch(new RegExp(`${ESCAPE}\\[[\\d;]+m`));
  });
});

it('--keep leaves the server up with the session in it and in its dashboard, until Ctrl-C', async () => {
  const demo = start(['demo', '--keep'], { home: home.path });
  const url = (await demo.line(/The server stays up at (http:\S+?);/))[1]!;
  const { sessions } = await getJson(`${url}/sessions?include_workers=true`);
  expect(sessions).toHaveLength(4);
  const planner = sessions.find((session: { is_worker: boolean }) => !session.is_worker);
  expect(demo.output.stdout).toContain(`\nSession ${planner.id}\nIn the dashboard: ${url}/#/sessions/${planner.id}\n`);
  const page = await fetch(url);
  expect(page.headers.get('content-type')).toBe('text/html; charset=utf-8');
  expect(sessions.filter((session: { is_worker: boolean }) => session.is_worker)).toHaveLength(3);
  expect((await demo.stop('SIGINT')).code).toBe(0);
});
