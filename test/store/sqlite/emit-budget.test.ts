// What one emit costs on this machine; opt-in, because a busy machine says nothing (02 §2).
import { expect, test } from 'vitest';
import { callCompleted, systemEvent } from '../../support/drafts.ts';
import { storedSession, storedTurn } from '../suite/nouns.ts';
import { NOON } from '../suite/world.ts';
import { openWorld } from './world.ts';

const EVENTS = 20_000;
const PER_BATCH = 100;

// Promise 02.18 (npm test -- reports): an emit costs at most 100 µs at the 95th percentile.
test.runIf(process.env.METIS_BENCH)('20 000 events on local disk: p95 of an emit is at most 100 µs', async () => {
  const world = openWorld();
  const session = await storedSession(world);
  const turn = await storedTurn(world, session);
  // The journal asks for the time once per event, so the distance of two answers is one emit without its transaction.
  const asked: number[] = [];
  Object.defineProperty(world.time, 'now', {
    get() {
      asked.push(performance.now());
      return NOON;
    },
  });
  const micros: number[] = [];
  for (let i = 0; i < EVENTS / PER_BATCH; i++) {
    const emit = Array.from({ length: PER_BATCH }, (_, n) =>
      n % 4 === 0
        ? callCompleted(world, session, turn)
        : systemEvent('x', { session_id: session.id, turn_id: turn.id }),
    );
    const from = performance.now();
    const committed = world.journal.commit({ emit });
    const validation = (performance.now() - from) / PER_BATCH;
    asked.length = 0;
    await committed;
    for (let n = 1; n < asked.length; n++) {
      micros.push(((asked[n] ?? 0) - (asked[n - 1] ?? 0) + validation) * 1000);
    }
  }
  micros.sort((a, b) => a - b);
  const at = (share: number) => micros[Math.floor(micros.length * share)] ?? Number.POSITIVE_INFINITY;
  console.log(`emit: p50 ${at(0.5).toFixed(0)} µs, p95 ${at(0.95).toFixed(0)} µs`);
  expect(at(0.95)).toBeLessThanOrEqual(100);
});
