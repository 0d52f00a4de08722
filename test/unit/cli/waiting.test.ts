// The line below the tree of `metis run`: what the server said last, as long as it still holds.
import { expect, it, onTestFinished } from 'vitest';
import { watchWaiting } from '#cli/run-task.ts';
import type { MetisClient } from '#client/client.ts';
import { manualClock, START } from '../../support/manual-clock.ts';

it('a session in which something happened waits no more, until the server says so again', async () => {
  const clock = manualClock();
  const since = new Date(START).toISOString();
  const of = (kind: string, session_id: string) => ({ kind, session_id, id: 'x', since });
  const waiting_on = [of('worker', 'root'), of('model', 'w1'), of('approval', 'w2')];
  const client = { getSession: async () => ({ waiting_on }) } as unknown as MetisClient;
  const waiting = watchWaiting(client, 'root', (id) => id, clock);
  onTestFinished(() => waiting.stop());
  expect(waiting.line()).toBe('');
  clock.advance(2000);
  await Promise.resolve();
  expect(waiting.line()).toBe('waits for the model (w1, 2s), an approval (w2, 2s)');
  waiting.clear('w1');
  expect(waiting.line()).toBe('waits for an approval (w2, 2s)');
});
