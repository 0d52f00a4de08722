// The costs of a shape in memory: kept up by each turn, and equal to what its newest costs give when they are sorted (21 §1).
import { expect, it } from 'vitest';
import { createForecastMemory } from '#core/learning/forecast-memory.ts';
import { describeHistory, MAX_SAMPLES } from '#core/policy/learning/forecast.ts';
import type { Pusd } from '#protocol/money.ts';
import { manualClock } from '../../support/manual-clock.ts';

const WORK = { workspace_path: '/w', is_worker: false, shape_sig: 'a', model: 'm:large' };

function openMemory() {
  const nothing = async () => [];
  const treeCosts = { newest: nothing, ofPlace: nothing, changedSince: nothing, lastPurge: async () => null };
  const log = { warn: (fields: unknown) => expect.unreachable(JSON.stringify(fields)) } as never;
  return createForecastMemory({ store: { treeCosts }, clock: manualClock(0), log, alone: true });
}

it('each turn is forecast from exactly the newest costs of its shape', async () => {
  const memory = openMemory();
  await memory.load();
  const costs: Pusd[] = [];
  for (let i = 0; i < 2 * MAX_SAMPLES; i += 1) {
    // Many are equal, and they come in no order.
    const cost = BigInt((i * 7919) % 97) as Pusd;
    costs.push(cost);
    memory.add({ ...WORK, id: `${i}`, cost_pusd: cost, forecast: null, ended_at: i });
    const newest = costs.slice(-MAX_SAMPLES).sort((a, b) => Number(a - b));
    expect(memory.look(WORK)).toEqual(describeHistory({ workspace: newest, server: newest }));
  }
});

it('the same shape elsewhere has the costs of the server', async () => {
  const memory = openMemory();
  await memory.load();
  for (let i = 1; i <= 20; i += 1)
    memory.add({ ...WORK, id: `${i}`, cost_pusd: BigInt(i) as Pusd, forecast: null, ended_at: i });
  expect(memory.look(WORK)).toMatchObject({ n: 20, basis: 'workspace' });
  expect(memory.look({ ...WORK, workspace_path: '/other' })).toMatchObject({ n: 20, basis: 'server' });
  expect(memory.look({ ...WORK, shape_sig: 'b' })).toBeNull();
  expect(memory.look({ ...WORK, is_worker: true })).toBeNull();
});
