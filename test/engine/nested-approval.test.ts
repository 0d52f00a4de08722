// A prompt two workers deep: nobody above it times out meanwhile, and unanswered it ends by itself (09.23, 04 §10).
import { describe, expect, it } from 'vitest';
import { answerConfirmation } from '#core/engine/answer-approval.ts';
import { startEngine } from '../support/engine.ts';
import { manualClock } from '../support/manual-clock.ts';
import { turns } from '../support/moments.ts';
import { call, delegate, planner, scenario } from '../support/scenario.ts';
import { until } from '../support/until.ts';

const approve = { decision: 'approve', scope: 'once', reason: null, modified_input: null } as const;

/** A planner, a worker with 20 s, and below it one with 10 s that asks before it writes. */
async function tree() {
  const time = manualClock();
  const t = await startEngine({
    clock: time,
    config: { delegation: { delegate_depth: 2 } },
    scenario: scenario(
      planner(
        { tool_calls: [delegate('outer', { tier: 'balanced', timeout_seconds: 20 })] },
        { text: 'the tree went on' },
      ),
      [
        {
          match: { role: 'worker', model: '*sonnet*', call: 1 },
          respond: { tool_calls: [delegate('inner', { timeout_seconds: 10 })] },
        },
        { match: { role: 'worker', model: '*sonnet*', call: 2 }, respond: { text: 'outer done' } },
        {
          match: { role: 'worker', model: '*haiku*', call: 1 },
          respond: { tool_calls: [call('write_file', { path: 'a.txt', content: '1' })] },
        },
        { match: { role: 'worker', model: '*haiku*', call: 2 }, respond: { text: 'inner done' } },
      ],
    ),
  });
  const session = await t.session();
  const turnId = await t.submit(session, 'go');
  await until(() => t.engine.approvals.size === 1);
  return { t, time, turnId };
}

describe('a prompt two workers deep', () => {
  // Promise 09.23: A prompt two workers deep that is open longer than both timeouts ends neither.
  it('open longer than both timeouts ends neither worker', async () => {
    const { t, time, turnId } = await tree();
    time.advance(250_000);
    await turns(20);
    expect(t.events.some((e) => e.type === 'delegate.failed' || e.type === 'turn.cancelled')).toBe(false);
    const [id] = [...t.engine.approvals.keys()];
    await answerConfirmation(t.engine, id!, approve);
    expect(await t.ended(turnId)).toMatchObject({ status: 'completed', output: 'the tree went on' });
    expect(t.events.filter((e) => e.type === 'delegate.completed')).toHaveLength(2);
  });

  // Promise 09.23: Unanswered it ends by its own deadline, and the tree goes on.
  it('unanswered times out by its own deadline, and the tree goes on', async () => {
    const { t, time, turnId } = await tree();
    time.advance(300_000);
    expect(await t.ended(turnId)).toMatchObject({ status: 'completed', output: 'the tree went on' });
    expect(t.events.filter((e) => e.type === 'tool.confirmation_resolved').map((e) => e.payload)).toEqual([
      expect.objectContaining({ decision: 'timeout', scope: null }),
    ]);
    expect(t.events.filter((e) => e.type === 'tool.failed').map((e) => e.payload)).toEqual([
      expect.objectContaining({ error_class: 'confirmation_timeout' }),
    ]);
    expect(t.events.filter((e) => e.type === 'delegate.completed')).toHaveLength(2);
  });
});
