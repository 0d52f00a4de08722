// `metis demo`: the first thing a person sees, run as they run it.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { toPusd } from '../../src/kernel/money.ts';
import { getJson, MAIN, run, start, temporaryHome } from './metis.ts';

const ESCAPE = '\x1b';
const LIMIT_MS = 30_000;

let home: ReturnType<typeof temporaryHome>;
beforeEach(() => {
  home = temporaryHome();
});
afterEach(() => home.remove());

interface Row {
  readonly label: string;
  readonly cost: bigint;
}

/** The lines of the cost table: what stands above and below its rules. */
function costTable(output: string): { readonly sessions: Row[]; readonly sums: Row[] } {
  const text = output.slice(output.lastIndexOf('session '));
  const [, sessions, sums] = text.split(/^─+$/m);
  const rows = (part: string | undefined) =>
    [...(part ?? '').matchAll(/^(\S+(?: \d)?) .*\$([\d.]+)$/gm)].map((m) => ({ label: m[1]!, cost: toPusd(m[2]!) }));
  return { sessions: rows(sessions), sums: rows(sums) };
}
const sum = (rows: readonly Row[]) => rows.reduce((total, row) => total + row.cost, 0n);
const demoFolders = () => fs.readdirSync(os.tmpdir()).filter((name) => name.startsWith('metis-demo-'));

describe('piped into a file', () => {
  it('does the job without a key, ends with 0 within 30 s, and holds no escape code', async () => {
    const before = Date.now();
    const { code, stdout, stderr } = await run(['demo'], { home: home.path });
    expect(stderr).toBe('');
    expect(code).toBe(0);
    expect(Date.now() - before).toBeLessThan(LIMIT_MS);
    expect(stdout).not.toContain(ESCAPE);
    for (const line of stdout.split('\n')) expect(line.length).toBeLessThanOrEqual(80);
    for (const worker of [1, 2, 3]) expect(stdout).toMatch(new RegExp(`^worker ${worker} +runs edit_file$`, 'm'));
    expect(stdout).toMatch(/^planner +runs shell$/m);
    expect(stdout.replaceAll('\n', ' ')).toContain('the tests pass');
  }, 40_000);

  it('its total is the sum of its rows, and the subtotals are their parts', async () => {
    const { stdout } = await run(['demo'], { home: home.path });
    const { sessions, sums } = costTable(stdout);
    expect(sessions.map((row) => row.label)).toEqual(['planner', 'worker 1', 'worker 2', 'worker 3']);
    expect(sums.map((row) => row.label)).toEqual(['planner', 'workers', 'total']);
    expect(sums[2]!.cost).toBe(sum(sessions));
    expect(sums[0]!.cost).toBe(sessions[0]!.cost);
    expect(sums[1]!.cost).toBe(sum(sessions.slice(1)));
    expect(sums[2]!.cost).toBeGreaterThan(0n);
    expect(stdout).toMatch(/The workers' tokens on the planner's model: \$0\.\d+/);
    expect(stdout).toMatch(/Saved by delegating: \$0\.\d+ \(\d+\.\d %\)/);
  }, 40_000);

  it('leaves nothing behind, neither at home nor in the temporary folder', async () => {
    const before = demoFolders();
    await run(['demo'], { home: home.path });
    expect(fs.readdirSync(home.path)).toEqual([]);
    expect(demoFolders().filter((name) => !before.includes(name))).toEqual([]);
  }, 40_000);
});

describe('on a terminal of 80 columns', () => {
  const hasScript = spawnSync('script', ['--version']).status === 0;
  // util-linux's `script` gives the command a terminal of its own.
  const onTerminal = (env: Record<string, string>) =>
    spawnSync('script', ['-qec', `stty cols 80 rows 24; '${process.execPath}' '${MAIN}' demo`, '/dev/null'], {
      env: { PATH: process.env.PATH ?? '', HOME: home.path, TERM: 'xterm-256color', ...env },
      encoding: 'utf8',
    });
  const visible = (text: string) => text.replace(new RegExp(`${ESCAPE}\\[[0-9;?]*[A-Za-z]`, 'g'), '');

  it.skipIf(!hasScript)(
    'no line wraps, and the tree is repainted in place',
    () => {
      const { status, stdout } = onTerminal({});
      expect(status).toBe(0);
      expect(stdout).toContain(`${ESCAPE}[4A`);
      for (const line of visible(stdout).split(/\r?\n/))
        expect(line.replaceAll('\r', '').length).toBeLessThanOrEqual(79);
      expect(visible(stdout)).toMatch(/✓ {3}worker 3/);
      expect(stdout).toContain(`${ESCAPE}[32m`);
    },
    40_000,
  );

  it.skipIf(!hasScript)(
    'NO_COLOR takes the colours away',
    () => {
      const { status, stdout } = onTerminal({ NO_COLOR: '1' });
      expect(status).toBe(0);
      expect(stdout).not.toMatch(new RegExp(`${ESCAPE}\\[\\d+m`));
    },
    40_000,
  );
});

it('--keep leaves the server up with the session in it, until Ctrl-C', async () => {
  const demo = start(['demo', '--keep'], { home: home.path });
  const url = (await demo.line(/The server stays up at (http:\S+?);/))[1]!;
  const { sessions } = await getJson(`${url}/sessions?include_workers=true`);
  expect(sessions).toHaveLength(4);
  expect(sessions.filter((session: { is_worker: boolean }) => session.is_worker)).toHaveLength(3);
  expect((await demo.stop('SIGINT')).code).toBe(0);
}, 40_000);
