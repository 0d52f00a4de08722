// How many turns a node runs at once: further ones wait for room, in their order and not for ever (16 §5.4).
import { describe, expect, onTestFinished, test } from 'vitest';
import { cancelTurn } from '#core/engine/control-turn.ts';
import { Cancelled } from '#protocol/abort.ts';
import { startEngine, type TestEngine } from '../support/engine.ts';
import { manualClock } from '../support/manual-clock.ts';
import { scenario } from '../support/scenario.ts';
import { until } from '../support/until.ts';

const HANGS = scenario(
  [{ match: { user_contains: 'hang' }, times: 'inf', respond: { hang: true } }],
  [{ match: {}, times: 'inf', respond: { text: 'ok' } }],
);
const WAIT_MS = 30_000;

/** An engine for two turns, with two that hang. */
async function full() {
  const clock = manualClock();
  const test = await startEngine({ scenario: HANGS, clock, config: { cluster: { max_turns: 2 } } });
  // Its drain would wait for a time that stands still.
  onTestFinished(() => {
    for (const { scope } of test.engine.locks.activeTurns()) scope.abort(new Cancelled('user_cancel'));
  });
  const sessions = await Promise.all(Array.from({ length: 5 }, () => test.session()));
  const turns = [await test.submit(sessions[0]!, 'hang'), await test.submit(sessions[1]!, 'hang')];
  // Each call has its response head, whose limit is also 30 s, and holds the timers of its turn and of its stream.
  await until(() => clock.pending(WAIT_MS) === 0 && clock.pending() === 2 * turns.length);
  return { test, clock, sessions: sessions.map(({ id }) => id), turns };
}
const cancel = ({ engine }: TestEngine, session: string, turn: string) => cancelTurn(engine, session, turn, null);
const waiting = (clock: ReturnType<typeof manualClock>, count: number) => until(() => clock.pending(WAIT_MS) === count);

describe('a node that runs as many turns as it may', () => {
  test('lets the next ones wait, each until one ends, in the order in which they came', async () => {
    const { test: it, clock, sessions, turns } = await full();
    const before = clock.pending(WAIT_MS);
    const order: number[] = [];
    const later = [2, 3].map(async (i) => {
      const turn = await it.submit(sessions[i]!, 'hang');
      order.push(i);
      return turn;
    });
    await waiting(clock, before + 2);
    expect(it.rows().turns).toBe(2);
    await cancel(it, sessions[0]!, turns[0]!);
    await later[0];
    expect([order, it.rows().turns]).toEqual([[2], 3]);
    await cancel(it, sessions[1]!, turns[1]!);
    await later[1];
    expect(order).toEqual([2, 3]);
    expect(it.engine.places.countTaken()).toBe(2);
  });

  // Promise 16.15: full for 30 s is 503 server_busy.
  test('refuses one that has waited for 30 s with server_busy, and its place in the queue is free', async () => {
    const { test: it, clock, sessions, turns } = await full();
    const before = clock.pending(WAIT_MS);
    const late = it.submit(sessions[2]!, 'hi');
    late.catch(() => {});
    await waiting(clock, before + 1);
    clock.advance(WAIT_MS);
    await expect(late).rejects.toMatchObject({ code: 'server_busy' });
    expect(it.rows().turns).toBe(2);
    await cancel(it, sessions[0]!, turns[0]!);
    await until(() => it.engine.places.countTaken() === 1);
    await it.ended(await it.submit(sessions[2]!, 'hi'));
  });

  test('does not let wait what takes the place of a running turn, joins it or is refused for it', async () => {
    const { test: it, sessions, turns } = await full();
    await expect(it.submit(sessions[0]!, 'hi')).rejects.toMatchObject({ code: 'turn_in_flight' });
    expect(await it.submit(sessions[1]!, 'more', { if_busy: 'steer' })).toBe(turns[1]);
    const next = await it.submit(sessions[0]!, 'hang', { if_busy: 'interrupt' });
    expect((await it.ended(turns[0]!)).status).toBe('cancelled');
    await until(() => it.engine.places.countTaken() === 2);
    expect(it.engine.locks.turn(next)).not.toBeNull();
  });
});
