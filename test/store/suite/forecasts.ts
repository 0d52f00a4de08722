// The memory of forecasts beside the database that it is read from: several of them, and purges (21 §1).
import { expect, onTestFinished, test } from 'vitest';
import { createForecastMemory } from '#core/learning/forecast-memory.ts';
import { fromPusd, type Pusd } from '#protocol/money.ts';
import type { SessionRecord } from '#protocol/session.ts';
import type { TreeCost, WorkShape } from '#protocol/what-if/cost-ahead.ts';
import { manualClock } from '../../support/manual-clock.ts';
import { until } from '../../support/until.ts';
import { endTurn, storedSession, storedTurn } from './nouns.ts';
import { NOON, type OpenStore, type World } from './world.ts';

const shape = (shape_sig: string): WorkShape => ({
  workspace_path: '/w',
  is_worker: false,
  shape_sig,
  model: 'anthropic:claude-opus-4-7',
});
const [MAIN, OTHER] = [shape('main'), shape('other')];

/** Turns of the session that cost 1, 2, 3 … picodollars. */
async function storeCosts(world: World, session: SessionRecord, work: WorkShape, count: number): Promise<TreeCost[]> {
  const costs: TreeCost[] = [];
  for (let i = 1; i <= count; i += 1) {
    const turn = await storedTurn(world, session, `${i}`);
    await endTurn(world, turn);
    const cost: TreeCost = {
      ...work,
      id: turn.id,
      cost_pusd: BigInt(i) as Pusd,
      forecast: null,
      ended_at: world.time.now,
    };
    await world.journal.commit({ writes: [{ kind: 'tree_cost.insert', cost }], emit: [] });
    world.time.now += 1000;
    costs.push(cost);
  }
  return costs;
}

async function openMemory(world: World, clock = manualClock(NOON), rest: object = {}) {
  const log = { ...console, warn: (fields: unknown) => expect.unreachable(JSON.stringify(fields)) } as never;
  const memory = createForecastMemory({ store: world.store, clock, log, alone: false, ...rest });
  await memory.load();
  onTestFinished(() => memory.close());
  return {
    ...memory,
    count: (work: WorkShape) => memory.look(work)?.n ?? 0,
    /** Once it waits for its next reading, that is due. */
    async readAgain(): Promise<void> {
      await until(() => clock.pending() === 1);
      clock.advance(30_000);
    },
  };
}

export function forecastSuite(open: OpenStore): void {
  // Promise 21.1: what other nodes spend counts in a node's forecasts after 30 s, and what any node purges no longer does.
  test('a memory follows what others add and purge, within half a minute', async () => {
    const world = await open();
    const [own, follower] = [await openMemory(world), await openMemory(world)];
    const [first, second] = [await storedSession(world), await storedSession(world)];
    for (const cost of await storeCosts(world, first, MAIN, 8)) own.add(cost);
    expect(own.look(MAIN)).toEqual({ n: 8, p50_usd: fromPusd(4n), p90_usd: fromPusd(8n), basis: 'workspace' });
    expect(follower.count(MAIN)).toBe(0);
    await follower.readAgain();
    await until(() => follower.count(MAIN) === 8);
    expect(follower.look(MAIN)).toEqual(own.look(MAIN));

    for (const cost of await storeCosts(world, second, MAIN, 9)) own.add(cost);
    await world.journal.purge(first.id);
    await own.refresh();
    expect(own.look(MAIN)).toEqual({ n: 9, p50_usd: fromPusd(5n), p90_usd: fromPusd(9n), basis: 'workspace' });
    // What the other one purged is out of the memory that did not hear of it, beside what was added.
    await follower.readAgain();
    await until(() => follower.count(MAIN) === 9);
    await world.journal.purge(second.id);
    await follower.readAgain();
    await until(() => follower.count(MAIN) === 0);
  });

  test('a memory that holds a part of the costs is refilled by a purge, and reads the rest where it is asked for', async () => {
    const world = await open();
    const [old, recent] = [await storedSession(world), await storedSession(world)];
    await storeCosts(world, old, MAIN, 9);
    await storeCosts(world, recent, OTHER, 9);
    const memory = await openMemory(world, manualClock(NOON), { readAtStart: 9 });
    expect([memory.count(OTHER), memory.count(MAIN)]).toEqual([9, 0]);
    expect(await memory.read(MAIN)).toMatchObject({ n: 9 });
    await world.journal.purge(recent.id);
    await memory.refresh();
    expect([memory.count(OTHER), memory.count(MAIN)]).toEqual([0, 9]);
    expect(await memory.read(OTHER)).toBeNull();
  });

  test('a read that began before a purge brings nothing back', async () => {
    const world = await open();
    const session = await storedSession(world);
    await storeCosts(world, session, MAIN, 9);
    const { treeCosts } = world.store;
    let answer = () => {};
    const slow = new Promise<void>((resolve) => {
      answer = resolve;
    });
    const ofPlace: typeof treeCosts.ofPlace = async (...asked) => {
      const found = await treeCosts.ofPlace(...asked);
      await slow;
      return found;
    };
    const late = { ...world, store: { ...world.store, treeCosts: { ...treeCosts, ofPlace, newest: async () => [] } } };
    const memory = await openMemory(late as World, manualClock(NOON), { readAtStart: 0 });
    const read = memory.read(MAIN);
    await world.journal.purge(session.id);
    const refreshed = memory.refresh();
    answer();
    await Promise.all([read, refreshed]);
    expect(memory.count(MAIN)).toBe(0);
  });
}
