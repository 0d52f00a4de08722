// Whatever happens at whatever moment, nothing is left open, reported twice or paid twice (02 §3.5, 04 §9, 04 §13).
import { describe, expect, it } from 'vitest';
import { cancelTurn } from '#core/engine/control-turn.ts';
import { drain, recover, resumeAll } from '#core/engine/lifecycle.ts';
import { endSession } from '#core/engine/manage-session.ts';
import type { AnyEvent } from '#protocol/event.ts';
import { type ConfigOver, startEngine, type TestEngine } from '../support/engine.ts';
import { busy, sound, stored } from '../support/sound.ts';

const quick: ConfigOver = { shutdown: { drain_seconds: 0 } };
const STRIDE = 8;
const EVENTS = 56;

/** Calls `then` in the middle of the publication of the n-th event after the session was opened. */
function atEvent(t: TestEngine, n: number, then: (e: AnyEvent) => void): void {
  let seen = 0;
  t.engine.bus.subscribe('sweep', (items) => {
    for (const item of items) if (item.kind === 'event' && ++seen === n) then(item.event as AnyEvent);
  });
}

/** A way to disturb a busy turn, tried at every eighth of its events, each way at others. */
function everywhere(title: string, offset: number, disturb: (n: number) => Promise<void>): void {
  it(title, async () => {
    for (let n = 2 + offset; n <= EVENTS; n += STRIDE) await disturb(n);
  });
}

// Promise 02.17: Cancelled, ended, drained or killed at any event: each turn has one terminal event, each call and delegation one outcome.
// Promise 04.19: A restart behind a crash at any event finishes the turn with one worker per call.
describe('whenever it comes, nothing is left open after', () => {
  for (const [offset, whose] of (['planner', 'worker'] as const).entries())
    everywhere(`a cancel of the ${whose}'s turn`, offset, async (n) => {
      const t = await startEngine({ scenario: busy, config: quick });
      const session = await t.session();
      let what = `${n}`;
      atEvent(t, n, (e) => {
        what = `${n}: ${e.actor} ${e.type}`;
        const begun = t.events.find((x) => x.type === 'turn.started')!;
        const { session_id, turn_id } = whose === 'planner' ? begun : e;
        void cancelTurn(t.engine, session_id, turn_id ?? '', null).catch(() => {});
      });
      await t.run(session, 'go');
      await sound(t, session.id, what);
      await t.close();
    });

  everywhere('an end of the session', 2, async (n) => {
    const t = await startEngine({ scenario: busy, config: quick });
    const session = await t.session();
    let ended: Promise<unknown> = Promise.resolve();
    atEvent(t, n, () => {
      ended = endSession(t.engine, session.id);
    });
    await t.run(session, 'go');
    await ended;
    await sound(t, session.id, `${n}`);
    await t.close();
  });

  for (const [i, [way, on_start]] of (
    [
      ['crash', 'resume'],
      ['drain', 'resume'],
      ['crash', 'cancel'],
      ['drain', 'cancel'],
    ] as const
  ).entries())
    everywhere(`a ${way} before a start that says ${on_start}`, 3 + i, async (n) => {
      const options = { scenario: busy, config: { ...quick, recovery: { on_start } } };
      const first = await startEngine(options);
      const session = await first.session();
      let what = '';
      const down = new Promise<void>((resolve) => {
        atEvent(first, n, (e) => {
          what = `${n}: ${e.actor} ${e.type}`;
          if (way === 'drain') void drain(first.engine).then(resolve);
          else
            queueMicrotask(() => {
              first.abandon();
              resolve();
            });
        });
      });
      await first.submit(session, 'go').catch(() => {});
      await down;
      first.abandon();

      const second = await startEngine({ ...options, folder: first.folder });
      await recover(second.engine);
      await resumeAll(second.engine);
      await Promise.all(second.engine.locks.activeTurns().map((turn) => turn.done));
      await sound(second, session.id, what);
      if (on_start === 'resume') {
        const events = await stored(second, session.id);
        const ends = events.filter((e) => e.type === 'delegate.completed' || e.type === 'delegate.failed');
        expect(ends.map((e) => e.payload.failure_mode ?? 'completed').sort(), what).toEqual([
          'completed',
          'completed',
          'insufficient_context',
        ]);
        const [turn] = (await second.engine.store.turns.list(session.id, null, 1)).rows;
        expect(turn, what).toMatchObject({ status: 'completed', output: 'the end' });
        expect(second.rows().sessions, what).toBe(4);
      }
      await second.close();
    });
});
