// A worker's time: it stands still while anybody below it is asked, and ends with the worker (04 §10).
import { describe, expect, it } from 'vitest';
import { answerConfirmation } from '#core/engine/answer-approval.ts';
import { startWorkerClock } from '#core/engine/state/turn-run.ts';
import { toolText } from '#protocol/tool.ts';
import { startEngine } from '../support/engine.ts';
import { manualClock } from '../support/manual-clock.ts';
import { gate } from '../support/moments.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { tool } from '../support/tools.ts';
import { until } from '../support/until.ts';

const approve = { decision: 'approve', scope: 'once', reason: null, modified_input: null } as const;

describe("a worker's clock", () => {
  it('stands still until the last of several pauses is over, and goes on with what was left', () => {
    const time = manualClock();
    let expired = 0;
    const clock = startWorkerClock(time, 2, [{ seconds: 10, onReached: () => expired++ }]);
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
      const clock = startWorkerClock(time, 0, [{ seconds: 10, onReached: () => expired++ }]);
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

  it('without a limit counts and never expires', () => {
    const time = manualClock();
    const clock = startWorkerClock(time, 2, []);
    time.advance(100_000_000);
    expect([clock.activeSeconds(), time.pending()]).toEqual([100_002, 0]);
  });

  // Promise 04.28: null switches a worker's clock off, and a call may still set its own limit.
  it('is switched off by worker_timeout_seconds: null, where a call may still set its own limit', async () => {
    const time = manualClock();
    const door = gate();
    const execute = () => door.opened.then(() => toolText('ok'));
    const t = await startEngine({
      clock: time,
      config: { delegation: { worker_timeout_seconds: null }, tools: { timeouts: { per_tool: { wait: 0 } } } },
      tools: [tool('wait', { side_effects: 'read', execute })],
      scenario: scenario(
        planner({ tool_calls: [delegate('slow'), delegate('timed', { timeout_seconds: 5 })] }, { text: 'ok' }),
        worker('slow', { tool_calls: [call('wait', {})] }, { text: 'done' }),
        worker('timed', { tool_calls: [call('wait', {})] }),
      ),
    });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    await until(() => t.events.filter((e) => e.type === 'tool.called' && e.session_id !== session.id).length === 2);
    time.advance(1_000_000);
    const failed = await t.event('delegate.failed');
    expect(failed.payload).toMatchObject({ failure_mode: 'timeout' });
    door.open();
    expect((await t.ended(turnId)).status).toBe('completed');
    const { rows } = await t.engine.store.delegations.list(session.id, { recursive: false, after: null, limit: 9 });
    expect(rows.map(({ status, timeout_seconds }) => [status, timeout_seconds])).toEqual([
      ['completed', null],
      ['failed', 5],
    ]);
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
