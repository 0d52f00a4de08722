// Test projects: `arch` is quick and part of `npm run check`; `together` holds what works within its own process, and
// shares processes (most of a small file's time is loading the server's code); in `alone` each file has a process; `browser` shares processes and one Chromium.
import { availableParallelism } from 'node:os';
import path from 'node:path';
import { defineConfig } from 'vitest/config';

/** The folders of `together`; test/arch/together.test.ts says what their files may not do. */
export const TOGETHER = [
  'acp',
  'analytics',
  'api',
  'billing',
  'client',
  'engine',
  'golden',
  'mcp',
  'property',
  'provider',
  'store/postgres',
  'tool/mcp',
  'tool/worktree',
  'unit',
].map((folder) => `test/${folder}`);
const inTogether = TOGETHER.map((folder) => `${folder}/**/*.test.ts`);

// A process reads its modules compiled, as another one left them: the suite starts hundreds. Test files pass it on.
process.env.NODE_COMPILE_CACHE ??= path.join(import.meta.dirname, 'node_modules/.cache/compiled');

const WORKERS_PER_CORE = 2;

export default defineConfig({
  test: {
    // A busy machine starts processes slowly, and a browser shares it with several files; only what hangs lasts so long.
    testTimeout: 180_000,
    hookTimeout: 180_000,
    pool: 'forks',
    // What a test makes lives for a moment: with more room the collector runs less often, a tenth of the time.
    execArgv: ['--max-semi-space-size=64'],
    // Half of the time of a file is waiting for processes and sockets: there are more under way than cores.
    maxWorkers: Math.ceil(availableParallelism() * WORKERS_PER_CORE),
    projects: [
      { extends: true, test: { name: 'arch', include: ['test/arch/**/*.test.ts'] } },
      { extends: true, test: { name: 'together', include: inTogether, isolate: false } },
      {
        extends: true,
        test: {
          name: 'alone',
          include: ['test/**/*.test.ts'],
          exclude: ['test/arch/**', 'test/browser/**', ...inTogether],
        },
      },
      {
        extends: true,
        test: {
          name: 'browser',
          isolate: false,
          include: ['test/browser/**/*.test.ts'],
          globalSetup: ['test/browser/one-browser.ts'],
        },
      },
    ],
  },
});
