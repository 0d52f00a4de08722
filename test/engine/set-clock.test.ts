// A wall clock that is set while a worker runs changes no duration (04 §5.4).
import { expect, test } from 'vitest';
import { systemClock } from '../../src/kernel/clock.ts';
import { startEngine } from '../support/engine.ts';
import { delegate, planner, scenario, worker } from '../support/scenario.ts';

test('a delegation lasts as long as it ran, whatever the wall clock is set to meanwhile', async () => {
  let set = 0;
  const t = await startEngine({
    clock: { ...systemClock, now: () => systemClock.now() + set },
    scenario: scenario(
      planner({ tool_calls: [delegate('job')] }, { text: 'end' }),
      worker('job', { text: 'done', delay_ms: 50 }),
    ),
  });
  const session = await t.session();
  const id = await t.submit(session, 'go');
  await t.event('delegate.started');
  set = 3_600_000;
  await t.ended(id);
  const payload = (type: string) => t.events.find((e) => e.type === type)!.payload as unknown as Record<string, number>;
  expect(payload('delegate.completed').wall_time_seconds).toBeGreaterThan(0);
  expect(payload('delegate.completed').wall_time_seconds).toBeLessThan(60);
  expect(payload('session.ended').duration_seconds).toBeLessThan(60);
});
