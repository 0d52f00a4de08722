// Whom the limit of a day turns away, and for how long: the planner it stopped, until the day is over (14 §3).
import { expect, it } from 'vitest';
import type { DayLimit } from '#core/ports/shared-limit.ts';
import { type Pusd, toPusd, type Usd } from '#protocol/money.ts';
import { startEngine } from '../support/engine.ts';
import { manualClock } from '../support/manual-clock.ts';
import { delegate, planner, scenario, worker } from '../support/scenario.ts';

const turn = { max_llm_calls: 50, max_output_tokens: 100, timeout_seconds: null };

it('a worker that the day refuses does not end the day for its planner', async () => {
  const usage = { input_tokens: 100, output_tokens: 20 };
  const t = await startEngine({
    clock: manualClock(),
    // Enough for the planner on sonnet, not for one call of a worker on opus.
    config: { turn, budgets: { daily_usd: '0.05' } },
    scenario: scenario(
      planner({ tool_calls: [delegate('think', { tier: 'deep' })], usage }, { text: 'on my own', usage }),
      [{ match: { turn: 2 }, respond: { text: 'again', usage } }],
      worker('think', { text: 'unused' }),
    ),
  });
  const session = await t.session({ initial_active_model: 'sonnet' });
  expect(await t.run(session, 'go')).toMatchObject({ stop_reason: 'end_turn', output: 'on my own' });
  expect(t.events.filter((e) => e.type === 'budget.exceeded').map((e) => e.payload)).toEqual(
    Array(2).fill(expect.objectContaining({ scope: 'day' })),
  );
  expect((await t.run(session, 'more')).output).toBe('again');
});

it('a turn that the day refused is no reason against the next one under the limit of its tree, once the day is over', async () => {
  const clock = manualClock();
  const t = await startEngine({
    clock,
    config: { turn, budgets: { daily_usd: '0.012' } },
    scenario: scenario([
      { match: {}, times: 'inf', respond: { text: 'ok', usage: { input_tokens: 5000, output_tokens: 100 } } },
    ]),
  });
  const spender = await t.session({ initial_active_model: 'haiku' });
  const small = await t.session({ initial_active_model: 'haiku', max_cost_usd: '0.0115', on_reached: 'stop' });
  for (let i = 0; i < 2; i++) expect((await t.run(spender, 'go')).stop_reason).toBe('end_turn');
  expect((await t.run(small, 'go')).stop_reason).toBe('budget_exceeded');
  await expect(t.submit(small, 'still today')).rejects.toMatchObject({ details: { scope: 'day' } });
  clock.advance(24 * 3600 * 1000);
  expect((await t.run(small, 'tomorrow')).stop_reason).toBe('end_turn');
});

/** Another node that holds so much of each limit of a day, and what this one holds beside it. */
function otherNode(usd: string) {
  const elsewhere = toPusd(usd as Usd);
  const own = { open: 0n, most: 0n };
  const dayLimit: DayLimit = {
    take: async ({ limit }, amount) => {
      if (own.open + elsewhere + amount > limit) return { ok: false, elsewhere };
      own.open += amount;
      own.most = own.open > own.most ? own.open : own.most;
      const release = () => {
        own.open -= amount;
      };
      return { ok: true, release };
    },
  };
  return { dayLimit, own, elsewhere };
}

// Promise 16.14: what another node gives back, or a dead one leaves, is spent by later turns of the same day.
it('what other nodes hold of the day stops a turn before its call, and is said; the call that fits gives back what it took', async () => {
  const { dayLimit, own } = otherNode('0.7');
  const t = await startEngine({
    config: { turn, budgets: { daily_usd: '1' } },
    dayLimit,
    scenario: scenario([
      { match: {}, times: 'inf', respond: { text: 'ok', usage: { input_tokens: 10, output_tokens: 5 } } },
    ]),
  });
  const session = await t.session({ initial_active_model: 'haiku', max_cost_usd: '5' });
  expect((await t.run(session, 'go')).stop_reason).toBe('end_turn');
  expect(own.most).toBeGreaterThan(0n);
  expect(own.open).toBe(0n);

  Object.assign(t.engine, { dayLimit: otherNode('0.9999').dayLimit });
  expect((await t.run(session, 'more')).stop_reason).toBe('budget_exceeded');
  expect(t.events.find((e) => e.type === 'budget.exceeded')?.payload).toMatchObject({
    scope: 'day',
    reserved_usd: '0.9999',
  });
  expect(t.adapter.requests).toHaveLength(1);
  // Nothing is held by what was refused.
  expect(t.engine.budget.reserved.get('day') ?? (0n as Pusd)).toBe(0n);
  expect(t.engine.budget.reserved.get(`session:${session.id}`) ?? (0n as Pusd)).toBe(0n);

  // What the other one gives back is spent today.
  Object.assign(t.engine, { dayLimit: otherNode('0.7').dayLimit });
  expect((await t.run(session, 'again')).stop_reason).toBe('end_turn');
});
