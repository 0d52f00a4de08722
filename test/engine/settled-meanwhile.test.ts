// Money that is spent while a call asks for its own: it counts in what was spent or in what is reserved, never in neither (14 §2).
import { expect, it } from 'vitest';
import type { ProviderAdapter } from '#core/ports/provider.ts';
import type { SpendReader } from '#core/ports/store-reader.ts';
import { startEngine } from '../support/engine.ts';
import { manualClock } from '../support/manual-clock.ts';
import { at, gate } from '../support/moments.ts';
import { scenario } from '../support/scenario.ts';
import { until } from '../support/until.ts';

it('a call that settles between the sum and the check of another one is seen by it', async () => {
  const t = await startEngine({
    clock: manualClock(),
    config: {
      turn: { max_llm_calls: 50, max_output_tokens: 100, timeout_seconds: null },
      // Either call is refused beside what the other one costs, 0.0095.
      budgets: { daily_usd: '0.0115' },
    },
    scenario: scenario([
      { match: {}, times: 'inf', respond: { text: 'ok', usage: { input_tokens: 9000, output_tokens: 100 } } },
    ]),
  });
  const wait = gate();
  const scripted = t.engine.providers.get('scripted')!;
  (t.engine.providers as Map<string, ProviderAdapter>).set('scripted', {
    ...scripted,
    async stream(request, signal, deliver) {
      await wait.opened;
      await scripted.stream(request, signal, deliver);
    },
  });
  const a = await t.session({ initial_active_model: 'haiku' });
  const b = await t.session({ initial_active_model: 'haiku' });
  const first = await t.submit(a, 'go');
  await t.event('llm.call_started');

  const { spend } = t.engine.store;
  const since = spend.since;
  let asking = false;
  (spend as { since: SpendReader['since'] }).since = async (ms) => {
    const sum = await since(ms);
    if (!asking) return sum;
    asking = false;
    wait.open();
    await until(() => t.engine.budget.reserved.size === 0);
    return sum;
  };
  at(
    t,
    (e) => e.type === 'turn.started' && e.session_id === b.id,
    () => {
      asking = true;
    },
  );
  expect(await t.run(b, 'go')).toMatchObject({ stop_reason: 'budget_exceeded', total_cost_usd: '0' });
  expect(await t.ended(first)).toMatchObject({ stop_reason: 'end_turn', total_cost_usd: '0.0095' });
  expect(t.engine.budget.reserved.size).toBe(0);
});
