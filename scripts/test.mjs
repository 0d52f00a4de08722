// `npm test` builds and runs every test. `npm test -- SUITE` runs one suite in full; other arguments go to vitest.
import { spawnSync } from 'node:child_process';
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

const [first, ...rest] = process.argv.slice(2);
const suite = Object.hasOwn(SUITES, first ?? '') ? SUITES[first] : { tests: first === undefined ? [] : [first] };
const { program, tests = [], env = {}, isBuilt = true } = suite;
if (isBuilt) run(['scripts/build.mjs']);
run(program === undefined ? [...VITEST, ...tests, ...rest] : [program, ...rest]);

/** Ends this process with the exit code of the program where it fails. */
function run(args) {
  const options = {
    cwd: path.resolve(import.meta.dirname, '..'),
    stdio: 'inherit',
    env: { ...process.env, ...env },
  };
  const { status } = spawnSync(process.execPath, args, options);
  if (status !== 0) process.exit(status ?? 1);
}
