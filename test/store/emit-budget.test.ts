// What one emit costs on this machine; opt-in, because a busy machine says nothing (02 §2).
import { expect, test } from 'vitest';
import { callCompleted, storedSession, storedTurn, systemEvent } from './nouns.ts';
import { openWorld } from './world.ts';

const EVENTS = 20_000;
const PER_BATCH = 100;

test.runIf(process.env.METIS_BENCH)('20 000 events on local disk: p95 of an emit is at most 100 µs', async () => {
  const world = openWorld();
  const session = await storedSession(world);
  const turn = await storedTurn(world, session);
  const perEmit: number[] = [];
  for (let i = 0; i < EVENTS / PER_BATCH; i++) {
    const emit = Array.from({ length: PER_BATCH }, (_, n) =>
      n % 4 === 0 ? callCompleted(world, session, turn) : systemEvent('x', { session_id: session.id }),
    );
    const from = performance.now();
    await world.journal.commit({ emit });
    perEmit.push(((performance.now() - from) * 1000) / PER_BATCH);
  }
  perEmit.sort((a, b) => a - b);
  const p95 = perEmit[Math.floor(perEmit.length * 0.95)] ?? Number.POSITIVE_INFINITY;
  console.log(`emit: p50 ${perEmit[perEmit.length >> 1]?.toFixed(1)} µs, p95 ${p95.toFixed(1)} µs`);
  expect(p95).toBeLessThanOrEqual(100);
});
