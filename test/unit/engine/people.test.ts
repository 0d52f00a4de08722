// The tokens that a node knows, and when it reads them again (23 §2).
import { expect, test } from 'vitest';
import { createPeople, hashToken } from '#core/engine/state/people.ts';
import { defaultConfig } from '#protocol/config.ts';
import type { TokenRecord } from '#protocol/people/person.ts';
import { manualClock } from '../../support/manual-clock.ts';

const record = (name: string, revoked_at: number | null = null): TokenRecord => ({
  id: name,
  name,
  token_sha256: hashToken(`${name}-secret`).toString('hex'),
  role: 'member',
  daily_usd: null,
  monthly_usd: null,
  workspaces: null,
  expires_at: null,
  created_by: null,
  created_at: 0,
  revoked_at,
});

/** Tokens in a table that others write; a read may take its time. */
function startNode(several: boolean) {
  const clock = manualClock();
  const table = { rows: [record('ann')], reads: 0, before: async () => {} };
  const store = {
    people: {
      tokens: async () => {
        table.reads += 1;
        const { rows } = table;
        await table.before();
        return rows;
      },
    },
  };
  const parts = { config: defaultConfig('/nowhere'), store, clock, several };
  const people = createPeople(parts as unknown as Parameters<typeof createPeople>[0]);
  const isKnown = async (name: string) => (await people.recognize(`${name}-secret`)) !== null;
  return { clock, table, people, isKnown };
}

// Promise 23.3: what is refreshed after a revocation is read after it, also where a read was under way.
test('a refresh does not join a read that began before it', async () => {
  const { table, people, isKnown } = startNode(false);
  await people.refresh();
  let open = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  table.before = () => opened;
  const early = people.refresh();
  await Promise.resolve();
  table.rows = [record('ann', 1)];
  const late = people.refresh();
  open();
  await Promise.all([early, late]);
  expect(await isKnown('ann')).toBe(false);
});

test('beside other nodes tokens are read again every two seconds that a token is used, alone never', async () => {
  for (const several of [true, false]) {
    const { clock, table, people, isKnown } = startNode(several);
    await people.refresh();
    expect(await isKnown('ann')).toBe(true);
    expect(table.reads).toBe(1);
    table.rows = [record('ann', 1)];
    clock.advance(2001);
    expect([several, await isKnown('ann')]).toEqual([several, !several]);
  }
});

test('a token that another node made a moment ago is waited for, and wrong ones share the look-ups', async () => {
  const { clock, table, people, isKnown } = startNode(true);
  await people.refresh();
  table.rows = [record('ann'), record('new')];
  const asked = [isKnown('new'), ...Array.from({ length: 20 }, (_, i) => isKnown(`wrong-${i}`))];
  await Promise.resolve();
  clock.advance(250);
  const [found, ...wrong] = await Promise.all(asked);
  expect([found, wrong.includes(true)]).toEqual([true, false]);
  expect(table.reads).toBeLessThanOrEqual(3);
});
