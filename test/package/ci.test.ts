// What runs where a change is checked and where a tag is published: `.ci/run` and the workflows that call it.
import { execFile } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { load } from 'js-yaml';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ROOT, temporaryHome } from '../app/metis.ts';

let home: ReturnType<typeof temporaryHome>;
beforeEach(() => {
  home = temporaryHome();
});
afterEach(() => home.remove());

interface Run {
  readonly code: number;
  readonly output: string;
  readonly errors: string;
  readonly asked: readonly string[];
}

/** `.ci/run` in a folder of its own, on a machine that has these programs alone; what they were asked is its log. */
async function run(programs: Record<string, string>): Promise<Run> {
  const { path: folder } = home;
  const bin = path.join(folder, 'bin');
  fs.mkdirSync(path.join(folder, '.ci'));
  fs.mkdirSync(bin);
  for (const file of ['.ci/run', '.ci/report.mjs']) fs.copyFileSync(path.join(ROOT, file), path.join(folder, file));
  const given = { ...programs, npm: programs.npm ?? npmThatReports(PASSING) };
  for (const [name, body] of Object.entries(given)) {
    const script = `#!/bin/bash\necho "${name} $*" >> ${folder}/asked\n${body}\n`;
    fs.writeFileSync(path.join(bin, name), script, { mode: 0o755 });
  }
  const system = { node: process.execPath, env: '/usr/bin/env', bash: '/bin/bash', dirname: '/usr/bin/dirname' };
  const tools = { ...system, id: '/usr/bin/id', mktemp: '/usr/bin/mktemp', rm: '/bin/rm', timeout: '/usr/bin/timeout' };
  for (const [name, target] of Object.entries(tools)) fs.symlinkSync(target, path.join(bin, name));
  const ended = await new Promise<Omit<Run, 'asked'>>((resolve) => {
    execFile('/bin/bash', [path.join(folder, '.ci/run')], { env: { PATH: bin } }, (error, stdout, stderr) =>
      resolve({ code: error === null ? 0 : Number(error.code), output: stdout, errors: stderr }),
    );
  });
  return { ...ended, asked: fs.readFileSync(path.join(folder, 'asked'), 'utf8').trim().split('\n') };
}
type Test = readonly [file: string, fullName: string, status: string, failureMessages?: readonly string[]];
/** An npm whose tests write a report with these tests. */
function npmThatReports(tests: readonly Test[]): string {
  const report = {
    numPassedTests: tests.filter(([, , status]) => status === 'passed').length,
    numFailedTests: tests.filter(([, , status]) => status === 'failed').length,
    testResults: tests.map(([file, fullName, status, failureMessages = []]) => ({
      name: path.join(home.path, file),
      assertionResults: [{ fullName, status, failureMessages }],
    })),
  };
  fs.writeFileSync(path.join(home.path, 'canned.json'), JSON.stringify(report));
  return `for a in "$@"; do case $a in --outputFile.json=*) /bin/cp ${home.path}/canned.json "\${a#*=}";; esac; done`;
}
const TOO_LATE = ['Error: too late\n  at line 3'];
/** Two that passed, one at its second try, and one that was skipped. */
const PASSING: readonly Test[] = [
  ['test/browser/page.test.ts', 'in a browser', 'pending'],
  ['test/app/run.test.ts', 'is quick', 'passed'],
  ['test/app/run.test.ts', 'waits', 'passed', TOO_LATE],
];
const sudo = '[ "$1" != -n ] || shift; exec "$@"';

describe('.ci/run', () => {
  it('installs the sandbox, the browser, the pooler and the proxies, checks, tests, and ends with the counts', async () => {
    const npm = `[ "$1 $3" != 'test --retry=1' ] || echo "$METIS_PACKAGE" > ${home.path}/package\n${npmThatReports(PASSING)}`;
    const done = await run({ npm, dpkg: 'exit 1', 'apt-get': '', sudo });
    const installed = done.asked.filter((line) => line.startsWith('apt-get') && line.includes('install'));
    expect(installed.map((line) => line.split(' ').at(-1))).toEqual([
      'bubblewrap',
      'chromium-headless-shell',
      'pgbouncer',
      'nginx-light',
      'caddy',
    ]);
    expect(done.asked.filter((line) => line.startsWith('npm')).map((line) => line.split(' ').slice(1, 4))).toEqual([
      ['ci', '--prefer-offline', '--no-audit'],
      ['run', 'lint'],
      ['test', '--', '--retry=1'],
      ['test', '--', 'nodes'],
    ]);
    const named = 'skipped: in a browser\npassed at the second try: test/app/run.test.ts: waits: Error: too late\n';
    expect(done.output.endsWith(`${named}2 passed, 0 failed\n`)).toBe(true);
    expect(done.code).toBe(0);
    expect(fs.readFileSync(path.join(home.path, 'package'), 'utf8')).toBe('full\n');
  });

  it('goes on where a package is not to be had, and where there is no apt', async () => {
    const refused = await run({ dpkg: 'exit 1', 'apt-get': 'exit 100', sudo });
    expect(refused.errors).toContain('could not install chromium-headless-shell; its tests will be skipped');
    expect(refused.errors).toContain('could not install caddy; its tests will be skipped');
    expect(refused).toMatchObject({ code: 0, output: expect.stringMatching(/2 passed, 0 failed\n$/) });
    fs.rmSync(home.path, { recursive: true });
    fs.mkdirSync(home.path);
    const bare = await run({});
    expect(bare).toMatchObject({ code: 0, output: expect.stringMatching(/2 passed, 0 failed\n$/) });
  });

  it('installs the whole Chromium where there is none without windows', async () => {
    const done = await run({
      dpkg: 'exit 1',
      'apt-get': 'case " $* " in *" chromium-headless-shell "*) exit 100;; esac',
      sudo,
    });
    expect(done.asked.filter((line) => line.endsWith(' chromium'))).toHaveLength(1);
    expect(done.errors).not.toContain('could not install');
    expect(done.code).toBe(0);
  });

  it.each(['ci', 'lint', 'test -- nodes', 'test -- --retry=1'])('npm %s that fails is a failure', async (step) => {
    const npm = `case " $* " in *" ${step} "*) exit 3;; esac\n${npmThatReports(PASSING)}`;
    const done = await run({ npm, dpkg: 'exit 0' });
    expect(done.code).toBe(1);
    expect(done.output).toMatch(/\d passed, 1 failed\n$/);
    if (step.startsWith('test')) expect(done.output).toContain(`failed step: npm ${step}`);
  });

  it('fails where three tests needed their second try, and names each', async () => {
    const names = ['one', 'two', 'three'];
    const retried = names.map((name): Test => ['test/app/run.test.ts', name, 'passed', TOO_LATE]);
    const done = await run({ npm: npmThatReports([...retried, ...PASSING.slice(0, 2)]), dpkg: 'exit 0' });
    for (const name of names)
      expect(done.output).toContain(`passed at the second try: test/app/run.test.ts: ${name}: `);
    expect(done.output).toMatch(/\n1 passed, 3 failed\n$/);
    expect(done.code).toBe(1);
  });

  it.each(['test/property/budget.property.test.ts', 'test/store/sqlite/open.test.ts'])(
    'fails where a test of %s needed its second try',
    async (file) => {
      const npm = npmThatReports([[file, 'holds', 'passed', TOO_LATE], ...PASSING.slice(0, 2)]);
      const done = await run({ npm, dpkg: 'exit 0' });
      expect(done.output).toMatch(/\n1 passed, 1 failed\n$/);
      expect(done.code).toBe(1);
    },
  );

  it('counts promises apart that this run did not check', async () => {
    const rows = [
      '| 01.1 | is quick | `test/app/run.test.ts` | is quick |',
      '| 01.2 | renders | test/browser/page.test.ts | in a browser |',
      '| 01.3 | is large | test/app/large.test.ts | is large | `npm run test:large` |',
    ];
    fs.mkdirSync(path.join(home.path, 'test'));
    fs.writeFileSync(path.join(home.path, 'test/CONTRACT.md'), rows.join('\n'));
    const done = await run({ dpkg: 'exit 0' });
    expect(done.output).toContain('promise not checked by this run: 01.2: in a browser\n');
    expect(done.output).toContain('promise checked by a command of its own: 01.3: npm run test:large\n');
    expect(done.output).toContain('promises: 1 checked, 1 by commands of their own, 1 not checked\n');
    expect(done.code).toBe(0);
  });
});

interface Workflow {
  readonly on: Record<string, unknown>;
  readonly permissions: Record<string, string>;
  readonly jobs: Record<
    string,
    {
      readonly needs?: string;
      readonly 'timeout-minutes': number;
      readonly permissions?: Record<string, string>;
      readonly steps: readonly { uses?: string; run?: string; with?: Record<string, unknown>; env?: object }[];
    }
  >;
}
function workflow(name: string): Workflow {
  return load(fs.readFileSync(path.join(ROOT, '.github/workflows', name), 'utf8')) as Workflow;
}
const steps = (one: Workflow) => Object.values(one.jobs).flatMap((job) => job.steps);

describe('the workflows', () => {
  const developed = JSON.parse(fs.readFileSync(path.join(ROOT, 'package.json'), 'utf8')).devDependencies.node;
  const names = fs.readdirSync(path.join(ROOT, '.github/workflows'));

  it.each(names)('%s: read-only at first, a limit on every job, pinned actions, the Node.js of a checkout', (name) => {
    const one = workflow(name);
    expect(one.permissions).toEqual({ contents: 'read' });
    for (const job of Object.values(one.jobs)) expect(job['timeout-minutes']).toBeLessThanOrEqual(30);
    const used = steps(one).flatMap((step) => (step.uses === undefined ? [] : [step.uses]));
    expect(used.length).toBeGreaterThan(0);
    for (const action of used) expect(action).toMatch(/^actions\/[a-z-]+@v\d+$/);
    const nodes = steps(one).filter((step) => step.uses?.startsWith('actions/setup-node@'));
    expect(nodes.length).toBe(Object.keys(one.jobs).length);
    for (const step of nodes) expect(`^${String(step.with?.['node-version'])}.0.0`).toBe(developed);
  });

  it('check every push and every pull request with .ci/run', () => {
    const one = workflow('ci.yml');
    expect(Object.keys(one.on)).toEqual(['push', 'pull_request']);
    expect(steps(one).map((step) => step.run)).toContain('.ci/run');
  });

  it('publish a tag of the version of package.json, with provenance, once .ci/run has passed', () => {
    const one = workflow('release.yml');
    expect(one.on).toEqual({ push: { tags: ['v*'] } });
    const { check, publish } = one.jobs;
    expect(check!.steps.map((step) => step.run)).toContain('.ci/run');
    expect(publish).toMatchObject({ needs: 'check', permissions: { contents: 'read', 'id-token': 'write' } });
    const commands = publish!.steps.flatMap((step) => step.run ?? []);
    expect(commands.at(-1)).toMatch(/\bnpm publish --provenance --access public$/);
    expect(commands.join('\n')).toContain('"v$(node -p \'require("./package.json").version\')"');
  });
});
