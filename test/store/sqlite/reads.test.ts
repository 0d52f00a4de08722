// Read transactions beside the journal on one connection, and the checks of its statements.
import { setImmediate } from 'node:timers/promises';
import { expect, expectTypeOf, test } from 'vitest';
import { createReadDatabase } from '#store/sqlite/connection/reads.ts';
import type { Answer, Check } from '#store/write/transaction.ts';
import { storedSession } from '../suite/nouns.ts';
import { openWorld } from './world.ts';

const COUNT = 'SELECT count(*) AS n FROM sessions';

test('work in a read transaction that awaits something other than reads is rejected, and no commit meets its transaction', async () => {
  const world = openWorld();
  const { reads, together, atOneMoment } = createReadDatabase(world.handle.db);
  for (const run of [together, atOneMoment]) {
    const work = run(async () => {
      await reads.get(COUNT);
      await setImmediate();
    });
    const rejected = expect(work).rejects.toThrow('awaited something other than a read');
    await storedSession(world);
    await rejected;
  }
  expect(world.handle.db.inTransaction).toBe(false);
});

test('many reads in a row, some at once and one in another, are one read transaction', async () => {
  const world = openWorld();
  const { reads, together } = createReadDatabase(world.handle.db);
  await storedSession(world);
  const work = together(async () => {
    for (let i = 0; i < 100; i++) await reads.get(COUNT);
    const counts = await Promise.all([1, 2].map(() => together(async () => reads.get<{ n: number }>(COUNT))));
    expect(world.handle.db.inTransaction).toBe(true);
    return counts;
  });
  expect(await work).toEqual([{ n: 1 }, { n: 1 }]);
  expect(world.handle.db.inTransaction).toBe(false);
  await expect(together(async () => reads.get('SELECT 1 FROM missing_table'))).rejects.toThrow('no such table');
  expect(world.handle.db.inTransaction).toBe(false);
});

test('an async function is no check of a statement: its error would come after the commit', () => {
  expectTypeOf<(answer: Answer) => undefined>().toExtend<Check>();
  expectTypeOf<(answer: Answer) => Promise<undefined>>().not.toExtend<Check>();
  expectTypeOf<(answer: Answer) => Promise<void>>().not.toExtend<Check>();
});
