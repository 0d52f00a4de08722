// Test projects: `arch` is quick and part of `npm run check`; `all` holds everything else.
import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    testTimeout: 20_000,
    hookTimeout: 20_000,
    pool: 'forks',
    projects: [
      { extends: true, test: { name: 'arch', include: ['test/arch/**/*.test.ts'] } },
      { extends: true, test: { name: 'all', include: ['test/**/*.test.ts'], exclude: ['test/arch/**'] } },
    ],
  },
});
