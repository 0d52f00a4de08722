// A limit is warned about once for each of its values, over a restart as well, and forgotten with what it limited (14 §4).
import { describe, expect, it } from 'vitest';
import { endSession, patchSession } from '#core/engine/manage-session.ts';
import { startEngine, type TestEngine } from '../support/engine.ts';
import { manualClock, START } from '../support/manual-clock.ts';
import { restart } from '../support/moments.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';

const turn = { max_llm_calls: 50, max_output_tokens: 100, timeout_seconds: null };
const warned = (t: TestEngine, key: 'limit_usd' | 'scope') =>
  t.events.filter((e) => e.type === 'budget.warning').map((e) => (e.payload as Record<string, unknown>)[key]);

/** 0.0035 a turn on haiku, warned about at half of the limit. */
const options = (daily_usd: string | null, start = START) => ({
  scenario: scenario([
    { match: {}, times: 'inf', respond: { text: 'ok', usage: { input_tokens: 3000, output_tokens: 100 } } },
  ]),
  config: { turn, budgets: { warn_ratio: 0.5, daily_usd } },
  // The next process goes on where the last one was: its ids come behind.
  clock: manualClock(start),
});

describe('a warning', () => {
  it('about a tree is not repeated by the next process, and is given for a higher limit', async () => {
    const first = await startEngine(options(null));
    const session = await first.session({ initial_active_model: 'haiku', max_cost_usd: '0.02' });
    for (let i = 0; i < 3; i++) await first.run(session, 'go');
    expect(warned(first, 'limit_usd')).toEqual(['0.02']);

    const second = await restart(first, options(null, START + 1000));
    await second.run(session, 'go');
    expect(warned(second, 'limit_usd')).toEqual([]);
    await patchSession(second.engine, session.id, { max_cost_usd: '0.03' });
    await second.run(session, 'go');
    expect(warned(second, 'limit_usd')).toEqual(['0.03']);
  });

  it('about a day is not repeated by the next process, and is given for another limit and for another day', async () => {
    const first = await startEngine(options('0.02'));
    const session = await first.session({ initial_active_model: 'haiku' });
    for (let i = 0; i < 3; i++) await first.run(session, 'go');
    expect(warned(first, 'limit_usd')).toEqual(['0.02']);

    const second = await restart(first, options('0.02', START + 1000));
    await second.run(session, 'go');
    expect(warned(second, 'limit_usd')).toEqual([]);
    const other = options('0.03', START + 2000);
    const third = await restart(second, other);
    await third.run(session, 'go');
    await third.run(session, 'go');
    expect(warned(third, 'limit_usd')).toEqual(['0.03']);
    other.clock.advance(24 * 3600 * 1000);
    for (let i = 0; i < 5; i++) await third.run(session, 'go');
    expect(warned(third, 'limit_usd')).toEqual(['0.03', '0.03']);
    expect([...third.engine.budget.warned.keys()]).toHaveLength(1);
  });

  it('about a cap on a worker comes once and is forgotten with its delegation, one about a tree with its session', async () => {
    const usage = { input_tokens: 1500, output_tokens: 100 };
    const t = await startEngine({
      config: { turn, budgets: { warn_ratio: 0.1 } },
      scenario: scenario(
        planner({ tool_calls: [delegate('job', { max_cost_usd: '0.015' })], usage }, { text: 'end', usage }),
        worker('job', { tool_calls: [call('list_files', {})], usage }, { text: 'done', usage }),
      ),
    });
    const session = await t.session({ initial_active_model: 'sonnet', max_cost_usd: '0.05' });
    await t.run(session, 'go');
    expect(new Set(warned(t, 'scope'))).toEqual(new Set(['delegation', 'session']));
    const ofWorker = t.events.filter((e) => e.type === 'budget.warning' && e.session_id !== session.id);
    expect(ofWorker.map((e) => (e.payload as { scope: string }).scope).sort()).toEqual(['delegation']);
    expect([...t.engine.budget.warned.keys()]).toEqual([`session:${session.id}`]);
    await endSession(t.engine, session.id);
    expect(t.engine.budget.warned.size).toBe(0);
  });
});
