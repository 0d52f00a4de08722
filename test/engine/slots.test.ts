// Places for calls that run side by side: first come, first served, and none is lost to who went away (09 §9.1).
import { expect, it } from 'vitest';
import { createSlots } from '#core/engine/state/concurrency.ts';

it('a place goes to the first that still waits: who was cancelled in the queue takes none', async () => {
  const slots = createSlots(1);
  const order: string[] = [];
  const came = (name: string, signal: AbortSignal) =>
    slots.take(signal).then(
      (release) => {
        order.push(name);
        return release;
      },
      (reason: Error) => {
        order.push(`${name} ${reason.message}`);
        return null;
      },
    );
  const never = new AbortController().signal;
  const stop = new AbortController();
  const first = await came('first', never);
  const gone = came('gone', stop.signal);
  const second = came('second', never);
  const third = came('third', never);
  stop.abort(new Error('left'));
  await gone;
  first!();
  (await second)!();
  const last = await third;
  expect(order).toEqual(['first', 'gone left', 'second', 'third']);
  expect(await came('late', AbortSignal.abort(new Error('never came')))).toBeNull();
  last!();
  expect(await came('next', never)).not.toBeNull();
});
