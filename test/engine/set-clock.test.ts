// A wall clock that is set changes no duration of what began and ended in one process (02 §9, 04 §5.4).
import { expect, test } from 'vitest';
import { endSession } from '#core/engine/manage-session.ts';
import { systemClock } from '#protocol/clock.ts';
import { startEngine } from '../support/engine.ts';
import { manualClock } from '../support/manual-clock.ts';
import { restart } from '../support/moments.ts';
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

test('a session lasts from its opening to its end, whatever the wall clock is set to meanwhile', async () => {
  const manual = manualClock();
  let set = 0;
  const t = await startEngine({
    clock: { ...manual, now: () => manual.now() + set },
    scenario: scenario(planner({ text: 'end' })),
  });
  const session = await t.session();
  manual.advance(90_500);
  set = -3_600_000;
  await endSession(t.engine, session.id);
  const ended = t.events.find((e) => e.type === 'session.ended')!;
  expect(ended.payload).toMatchObject({ duration_seconds: 90.5 });
});

test('over a restart the wall clock says how long a session lasted', async () => {
  const manual = manualClock();
  const said = scenario(planner({ text: 'end' }));
  const first = await startEngine({ clock: manual, scenario: said });
  const session = await first.session();
  manual.advance(60_000);
  const second = await restart(first, { clock: manualClock(manual.now()), scenario: said });
  await endSession(second.engine, session.id);
  const ended = second.events.find((e) => e.type === 'session.ended')!;
  expect(ended.payload).toMatchObject({ duration_seconds: 60 });
});
