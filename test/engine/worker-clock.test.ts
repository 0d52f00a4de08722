// A worker's time: it stands still while anybody below it is asked, and ends with the worker (04 §10).
import { describe, expect, it } from 'vitest';
import { answerConfirmation } from '../../src/engine/answer-approval.ts';
import { startWorkerClock } from '../../src/engine/state/worker-clock.ts';
import { startEngine } from '../support/engine.ts';
import { manualClock } from '../support/manual-clock.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { until } from '../support/until.ts';

const approve = { decision: 'approve', scope: 'once', reason: null, modified_input: null } as const;

describe("a worker's clock", () => {
  it('stands still until the last of several pauses is over, and goes on with what was left', () => {
    const time = manualClock();
    let expired = 0;
    const clock = startWorkerClock(time, 10, 2, () => expired++);
    time.advance(3000);
    clock.pause();
    time.advance(50_000);
    clock.pause();
    time.advance(50_000);
    clock.resume();
    time.advance(50_000);
    expect([clock.activeSeconds(), expired]).toEqual([5, 0]);
    clock.resume();
    time.advance(4999);
    expect(expired).toBe(0);
    time.advance(1);
    expect([clock.activeSeconds(), expired]).toEqual([10, 1]);
  });

  it('once stopped keeps its time and never expires, whatever is paused or resumed behind it', () => {
    for (const paused of [false, true]) {
      const time = manualClock();
      let expired = 0;
      const clock = startWorkerClock(time, 10, 0, () => expired++);
      time.advance(4000);
      if (paused) clock.pause();
      clock.stop();
      if (paused) clock.resume();
      clock.pause();
      clock.resume();
      time.advance(60_000);
      expect([clock.activeSeconds(), expired, time.pending()]).toEqual([4, 0, 0]);
    }
  });

  it('stands still while either of two approvals is open: the answer to one does not start it', async () => {
    const time = manualClock();
    const write = (path: string) => call('write_file', { path, content: '1' });
    const t = await startEngine({
      clock: time,
      scenario: scenario(
        planner({ tool_calls: [delegate('write', { timeout_seconds: 2 })] }, { text: 'ok' }),
        worker('write', { tool_calls: [write('a.txt'), write('b.txt')] }, { text: 'done' }),
      ),
    });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    await until(() => t.engine.approvals.size === 2);
    const [first, second] = [...t.engine.approvals.keys()];
    time.advance(60_000);
    await answerConfirmation(t.engine, first!, approve);
    await t.event('tool.completed');
    time.advance(60_000);
    await answerConfirmation(t.engine, second!, approve);
    expect((await t.ended(turnId)).output).toBe('ok');
    expect(t.events.filter((e) => e.type === 'delegate.completed')).toHaveLength(1);
  });

  it('leaves no timer behind when its worker has ended', async () => {
    const time = manualClock();
    const said = scenario(planner({ tool_calls: [delegate('job')] }, { text: 'ok' }), worker('job', { text: 'done' }));
    const t = await startEngine({ clock: time, scenario: said });
    await t.run(await t.session(), 'go');
    expect(t.events.some((e) => e.type === 'delegate.completed')).toBe(true);
    expect(time.pending()).toBe(0);
  });
});
