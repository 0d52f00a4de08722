// `metis benchmark`: workloads with delegation and by the planner alone, run as a person runs it.
import fs from 'node:fs';
import path from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { fromPusd, toPusd } from '#protocol/money.ts';
import { startStrictFake } from '../support/real-server.ts';
import { KEYS } from '../support/registry-at.ts';
import { ROOT, run, start, temporaryHome } from './metis.ts';

const home = temporaryHome();
const temporary = path.join(home.path, 'tmp');
fs.mkdirSync(temporary);
afterAll(() => home.remove());

const EXAMPLE = path.join(ROOT, 'examples/benchmark');
const NAME = 'multi-step-with-delegation';
const ENV = { TMPDIR: temporary };
const benchmark = (args: readonly string[], env: Record<string, string> = {}) =>
  run(['benchmark', ...args], { home: home.path, env: { ...ENV, ...env } });
const scripted = (folder: string, ...args: readonly string[]) => benchmark([folder, '--scripted', ...args]);
const left = () => fs.readdirSync(temporary).filter((file) => file.startsWith('metis-'));

/** A folder with one workload, whose workspace holds one file. */
function workload(name: string, file: Readonly<Record<string, unknown>>, rules: readonly unknown[] = []): string {
  const folder = path.join(home.path, name);
  fs.mkdirSync(path.join(folder, 'workspace'), { recursive: true });
  fs.writeFileSync(path.join(folder, 'workspace', 'a.txt'), 'a\n');
  fs.writeFileSync(
    path.join(folder, 'scenario.json'),
    JSON.stringify({ version: 1, strict: false, rules, fallback: { text: 'done' } }),
  );
  fs.writeFileSync(path.join(folder, 'workload.yaml'), JSON.stringify({ scenario: 'scenario.json', ...file }));
  return folder;
}

describe('the example, with scripted models', () => {
  // Promise 17.13: the example passes with three workers and with none, its costs compared and marked as simulated.
  it('passes both runs and compares their cost in a table that lines up', async () => {
    const before = fs.readFileSync(path.join(ROOT, 'examples/auth-refactor/src/google.mjs'), 'utf8');
    const { code, stdout } = await scripted(EXAMPLE);
    expect(code).toBe(0);
    const lines = stdout.split('\n');
    const rows = lines.slice(2, 4);
    expect(rows.map((row) => row.trim().split(/ {2,}/).slice(0, 4))).toEqual([
      [NAME, 'delegated', 'passed', '3'],
      [NAME, 'inline', 'passed', '0'],
    ]);
    for (const row of rows) expect(row).toHaveLength(lines[0]!.length);
    const [delegated = 0n, inline = 0n] = rows.map((row) => toPusd(/\$([\d.]+)/.exec(row)![1]!)) as bigint[];
    const percent = ((Number(inline - delegated) / Number(inline)) * 100).toFixed(1);
    expect(lines.slice(5)).toEqual([
      `${NAME}: delegating costs ${percent} % less than inline: $${fromPusd(delegated)} and $${fromPusd(inline)}.`,
      'Scripted models answered: tokens and money are simulated.',
      '',
    ]);
    expect(fs.readFileSync(path.join(ROOT, 'examples/auth-refactor/src/google.mjs'), 'utf8')).toBe(before);
    expect(left()).toEqual([]);
    expect(fs.existsSync(path.join(home.path, '.metis'))).toBe(false);
  });

  // Promise 17.13: the JSON has exact costs and is marked as simulated.
  it('is one JSON value with --json, its money exact and marked as simulated', async () => {
    const { code, stdout } = await scripted(path.join(EXAMPLE, NAME), '--json');
    expect(code).toBe(0);
    const { runs, comparisons, ...rest } = JSON.parse(stdout);
    expect(runs).toMatchObject([
      { workload: NAME, delegate: true, result: 'passed', reason: null, delegate_calls: 3, planner: 'scripted:deep' },
      { workload: NAME, delegate: false, result: 'passed', reason: null, delegate_calls: 0, call_count: 5 },
    ]);
    const cost = (at: number): bigint => toPusd(runs[at].cost_usd);
    const [delegated, inline] = [cost(0), cost(1)];
    expect(rest).toEqual({ simulated: true, budget_usd: '1', spent_usd: fromPusd(delegated + inline) });
    expect(comparisons).toMatchObject([{ workload: NAME, saved_usd: fromPusd(inline - delegated) }]);
  });
});

describe('a run does not pass', () => {
  // Promise 17.13: too few workers fail the delegated run and prevent a comparison.
  it('where too few workers started, which the inline run needs none of', async () => {
    const folder = workload('lazy', { prompt: 'x', check: 'true', expect: { min_delegate_calls: 1 } });
    const { code, stdout } = await scripted(folder);
    expect(code).toBe(1);
    expect(stdout).toMatch(/^lazy +delegated +failed /m);
    expect(stdout).toMatch(/^lazy +inline +passed /m);
    expect(stdout).toContain('\nlazy, delegated: 0 workers started, and expect.min_delegate_calls is 1\n');
    expect(stdout).toContain('\nlazy: not compared; ');
  });

  // Promise 17.13: a failed check is reported with its last line.
  it('where the check fails, with the last line that it printed', async () => {
    const { code, stdout } = await scripted(workload('broken', { prompt: 'x', check: 'echo no b.txt; exit 3' }));
    expect(code).toBe(1);
    expect(stdout).toContain('\nbroken, inline: the check ended with 3: no b.txt\n');
  });

  // Promise 17.13: the limit holds over all runs, and what it ends is not run.
  it('where the limit of all runs ends it: what was spent stays within', async () => {
    const { code, stdout } = await scripted(EXAMPLE, '--budget', '0.25', '--json');
    const { runs, spent_usd } = JSON.parse(stdout);
    expect(runs.map((each: { result: string }) => each.result)).toEqual(['passed', 'not_run']);
    expect(runs[1].reason).toContain('raise --budget');
    expect(toPusd(spent_usd)).toBeLessThanOrEqual(toPusd('0.25'));
    expect(code).toBe(1);
  });

  it('where it is interrupted: what was paid is reported and nothing is left', async () => {
    const slow = workload('slow', { prompt: 'x', check: 'true' }, [{ respond: { text: 'x', delay_ms: 3_600_000 } }]);
    const running = start(['benchmark', slow, '--scripted'], { home: home.path, env: ENV });
    await new Promise<void>((resolve) => {
      running.child.stderr!.on('data', () => running.output.stderr.includes('started on') && resolve());
    });
    const { code, stdout } = await running.stop('SIGINT');
    expect(code).toBe(130);
    expect(stdout).toContain('slow, delegated: the turn cancelled');
    expect(stdout).toContain('slow, inline: interrupted');
    expect(left()).toEqual([]);
  });
});

it('commands of a model run with --approve alone', async () => {
  const command = { name: 'shell', input: { command: 'touch ran' } };
  const folder = workload('command', { prompt: 'x', check: 'test -e ran' }, [
    { match: { call: 1 }, respond: { tool_calls: [command] } },
  ]);
  expect((await scripted(folder)).code).toBe(1);
  expect((await scripted(folder, '--approve')).code).toBe(0);
});

describe('--delegation-policy', () => {
  const policy = ['--delegation-policy', 'sonnet-planner-haiku-worker'];

  // Promise 17.13: a policy names the models of planner and workers.
  it('names the models of planner and workers, whatever tier is asked for; the inline planner has no worker', async () => {
    const fake = await startStrictFake((call) =>
      call.tools.includes('delegate') && call.results.length === 0
        ? { tool_calls: [{ name: 'delegate', input: { tier: 'deep', task: 'y' } }] }
        : { text: 'done' },
    );
    const env = { ANTHROPIC_API_KEY: KEYS.anthropic, ANTHROPIC_BASE_URL: fake.anthropicUrl };
    const folder = workload('pair', { prompt: 'x', check: 'test -e a.txt', expect: { min_delegate_calls: 1 } });
    const { code, stdout, stderr } = await benchmark([folder, '--model', 'sonnet', ...policy], env);
    expect({ code, stderr: stderr.includes('metis:') }, stdout).toEqual({ code: 0, stderr: false });
    expect(fake.calls.map(({ model, tools }) => [model, tools.includes('delegate')])).toEqual([
      ['claude-sonnet-5-5', true],
      ['claude-haiku-5-5', false],
      ['claude-sonnet-5-5', true],
      ['claude-sonnet-5-5', false],
    ]);
    expect(stdout).toContain('% more than inline');
    expect(stdout).not.toContain('simulated');
    expect(stdout + stderr).not.toContain(KEYS.anthropic);
  });

  it('is refused where it is no policy, names another planner, or the workspace routes by itself', async () => {
    const folder = workload('routed', { prompt: 'x', check: 'true' });
    const wrong = await benchmark([folder, '--delegation-policy', 'haiku']);
    expect(wrong).toMatchObject({ code: 2, stdout: '' });
    fs.mkdirSync(path.join(folder, 'workspace', '.metis'));
    fs.writeFileSync(path.join(folder, 'workspace', '.metis', 'routing.yaml'), 'schema_version: 1\n');
    const { code, stderr } = await benchmark([folder, '--model', 'opus', ...policy]);
    expect(code).toBe(1);
    expect(stderr).toContain('metis: --model opus is not the planner of --delegation-policy');
    expect(stderr).toContain('metis: routed: its .metis/routing.yaml chooses the models');
  });
});

describe('is refused in a line each', () => {
  it.each([
    ['a folder without workloads', () => home.path, [], 'neither it nor a folder in it has a workload.yaml'],
    [
      'a key that is none',
      () => workload('typo', { prompt: 'x', chek: 'true' }),
      [],
      'chek: unknown key; did you mean',
    ],
    ['no check', () => workload('nocheck', { prompt: 'x' }), [], 'nocheck/workload.yaml: check: '],
    ['no workspace', () => workload('none', { prompt: 'x', check: 'true', workspace: 'w' }), [], 'is not a folder'],
    ['no key', () => workload('nokey', { prompt: 'x', check: 'true' }), [], 'no model of a real provider can be used'],
    ['an unknown model', () => EXAMPLE, ['--scripted', '--model', 'xyz'], 'neither a model id nor an alias'],
    ['a model that may not delegate', () => EXAMPLE, ['--scripted', '--model', 'scripted:fast'], 'can_delegate: false'],
  ] as const)('%s', async (_, folder, args, message) => {
    // Folders of other tests are not its own.
    const own = path.join(home.path, 'empty');
    fs.mkdirSync(own, { recursive: true });
    const place = folder() === home.path ? own : folder();
    const { code, stdout, stderr } = await benchmark([place, ...args]);
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
    expect(stderr).toContain(message);
    expect(stderr).not.toMatch(/^ +at /m);
    expect(left()).toEqual([]);
  });
});
