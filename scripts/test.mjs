// `npm test` builds and runs every test. `npm test -- SUITE` runs one suite in full; other arguments go to vitest.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import path from 'node:path';

/** Tests that `npm test` skips or runs in a short form: vitest's arguments with the environment of the long form, or a program. */
const SUITES = {
  billing: { tests: ['test/billing'], isBuilt: false },
  background: {
    tests: [
      'test/crash/background-kill.test.ts',
      'test/cluster/background-kill.test.ts',
      'test/property/background-orders.test.ts',
    ],
    env: { BACKGROUND_KILLS: '300', METIS_ORDERS: 'full' },
  },
  checks: {
    tests: ['test/engine/lying-workers.test.ts', 'test/crash/check-kills.test.ts'],
    env: { METIS_CHECKS: 'full', CHECK_KILLS: '100' },
  },
  clients: { program: 'scripts/test-clients.mjs' },
  cluster: {
    tests: ['test/cluster'],
    env: { METIS_CLUSTER: 'full', STORM_SECONDS: '120', STORM_SESSIONS: '200' },
  },
  crash: { tests: ['test/crash/kill.test.ts', 'test/crash/people.test.ts'], env: { CRASH_KILLS: '100' } },
  fuzz: { tests: ['test/hostile/fuzz.test.ts', 'test/hostile/people-fuzz.test.ts'], env: { FUZZ_CASES: '20000' } },
  hostile: { tests: ['test/hostile/hostile.test.ts'], env: { HOSTILE_CASES: '5000' } },
  nodes: { program: 'scripts/test-nodes.mjs' },
  // The other files of the folder are the same in every run.
  package: { tests: ['test/package/tarball.test.ts'], env: { METIS_PACKAGE: 'full' } },
  property: {
    tests: ['test/property', 'test/api/forecast.test.ts', 'test/provider/recorded.test.ts'],
    env: { METIS_PROPERTY_RUNS: '2000', METIS_BILLING_TREES: '1000' },
    isBuilt: false,
  },
  reports: {
    tests: [
      'test/analytics/benchmark.test.ts',
      'test/analytics/what-if-speed.test.ts',
      'test/engine/learning-budget.test.ts',
      'test/store/sqlite/emit-budget.test.ts',
    ],
    env: { METIS_BENCH: '1' },
  },
  room: {
    tests: ['--no-file-parallelism', 'test/cluster/room.test.ts', 'test/cluster/statements.test.ts'],
    env: { METIS_ROOM: 'full' },
  },
  rolling: {
    tests: ['--no-file-parallelism', 'test/cluster/rolling.test.ts', 'test/cluster/dead-node.test.ts'],
    env: { METIS_ROLLING: 'full' },
  },
  soak: { program: 'bench/soak.mjs' },
  trees: {
    tests: ['test/property/billing-forms.property.test.ts'],
    env: { METIS_BILLING_TREES: '10000' },
    isBuilt: false,
  },
  'worktree-kills': {
    tests: ['test/crash/worktree-kills.test.ts', 'test/cluster/worktree-kills.test.ts'],
    env: { WORKTREE_KILLS: '200' },
  },
};
const VITEST = ['node_modules/vitest/vitest.mjs', 'run'];
/** A file system in memory, and what must be free on it: tests make thousands of files that live for a moment. */
const MEMORY = { folder: '/dev/shm', bytes: 4 * 1024 ** 3 };

const [first, ...rest] = process.argv.slice(2);
const suite = Object.hasOwn(SUITES, first ?? '') ? SUITES[first] : { tests: first === undefined ? [] : [first] };
const { program, tests = [], env = {}, isBuilt = true } = suite;
const temporary = makeTemporaryFolder();
// Ctrl-C reaches the tests too, which end by themselves; their files are removed behind them.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => running?.kill(signal));
let running = null;
try {
  process.exitCode =
    (isBuilt ? await run(['scripts/build.mjs']) : 0) ||
    (await run(program === undefined ? [...VITEST, ...tests, ...rest] : [program, ...rest]));
} finally {
  if (temporary !== null) fs.rmSync(temporary, { recursive: true, force: true, maxRetries: 3 });
}

/** Null where the temporary folder of the system is used: another is asked for, or memory has no room for one. */
function makeTemporaryFolder() {
  if (process.env.TMPDIR !== undefined || !fs.existsSync(MEMORY.folder)) return null;
  try {
    const { bavail, bsize } = fs.statfsSync(MEMORY.folder);
    if (bavail * bsize < MEMORY.bytes) return null;
    const folder = fs.mkdtempSync(path.join(MEMORY.folder, 'metis-tests-'));
    // As the one of the system: databases and poolers of tests run as another user.
    fs.chmodSync(folder, 0o1777);
    return folder;
  } catch {
    return null;
  }
}

/** @returns its exit code */
async function run(args) {
  running = spawn(process.execPath, args, {
    cwd: path.resolve(import.meta.dirname, '..'),
    stdio: 'inherit',
    env: { ...process.env, ...(temporary !== null && { TMPDIR: temporary }), ...env },
  });
  const [code] = await once(running, 'exit');
  return code ?? 1;
}
