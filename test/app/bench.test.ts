// The benchmark reads parts of the server directly; here they are held to what it hands them.
import path from 'node:path';
import { expect, it } from 'vitest';
import { ROOT } from './metis.ts';

it('the routing measure decides by the last of its rules', async () => {
  const { measure } = (await import(path.join(ROOT, 'bench/measures/routing.mjs'))) as {
    measure(bench: {
      rounds(sides: { metis(): { p50: number; p99: number } }): Promise<object>;
    }): Promise<readonly { readonly row: string; readonly metis: readonly number[] }[]>;
  };
  const rows = await measure({ rounds: async ({ metis }) => ({ metis: [metis()], relay: [1] }) });
  expect(rows.map(({ row }) => row)).toEqual(['decision p50, 100 rules', 'decision p99, 100 rules']);
});
