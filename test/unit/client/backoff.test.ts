// How rarely a server is asked that brings nothing.
import { expect, test } from 'vitest';
import { createBackoff } from '#client/event-stream.ts';

test('waits double up to five seconds, and begin anew with what was good', () => {
  const backoff = createBackoff();
  expect(Array.from({ length: 8 }, () => backoff.nextDelay())).toEqual([100, 200, 400, 800, 1600, 3200, 5000, 5000]);
  backoff.reset();
  expect([backoff.nextDelay(), backoff.nextDelay()]).toEqual([100, 200]);
});
