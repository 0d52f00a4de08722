// The time a worker was at work, from its stored events (01 §9).
import { expect, test } from 'vitest';
import { countActiveSeconds, UNKNOWN_OUTCOME } from '#core/policy/delegation/active-time.ts';
import type { AnyEvent } from '#protocol/event.ts';

const HOUR = 3600;
const event = (type: string, second: number, payload: object = {}) =>
  ({ type, timestamp: new Date(second * 1000).toISOString(), payload }) as unknown as AnyEvent;
const started = [event('session.created', HOUR), event('turn.started', 2 * HOUR), event('route.decided', 2 * HOUR + 1)];

test('time without a process does not count, whichever way the clock of the next one goes', () => {
  for (const later of [4 * HOUR, HOUR]) {
    const cut = event('llm.call_failed', later, { error_message_redacted: UNKNOWN_OUTCOME });
    const resumed = [event('turn.resumed', later + HOUR), event('llm.call_completed', later + HOUR + 2)];
    expect(countActiveSeconds([...started, cut, ...resumed])).toBe(3);
  }
});

test('a call that failed while its process ran counts', () => {
  expect(countActiveSeconds([...started, event('llm.call_failed', 2 * HOUR + 5, {})])).toBe(5);
});

test('a wait for approval does not count, whoever ends it', () => {
  const asked = event('tool.confirmation_requested', 2 * HOUR + 2);
  for (const answered of [2 * HOUR + 60, HOUR]) {
    const rest = [event('tool.confirmation_resolved', answered), event('tool.called', answered + 1)];
    expect(countActiveSeconds([...started, asked, ...rest])).toBe(3);
  }
});

test('a session without events has no time', () => {
  expect(countActiveSeconds([])).toBe(0);
});
