// What a summary replaces of a history, and which results stay whole while room is made (10 §7).
import { describe, expect, test } from 'vitest';
import { summaryMessage, viewHistory } from '#core/policy/context/shown-history.ts';
import { findElidables } from '#core/policy/context/window.ts';
import type { HistorySummary } from '#protocol/prompt-parts.ts';
import { message, messageId, text, toolResult, toolUse } from '../../support/messages.ts';

describe('a history behind a summary', () => {
  const history = [1, 2, 3, 4].map((n) => message(n, n % 2 === 1 ? 'user' : 'assistant', [text(`${n}`)]));
  const summary = {
    id: 'summary',
    session_id: history[0]!.session_id,
    kind: 'summary',
    through_message_id: history[1]!.id,
    summary_text: 'the first two',
    created_at: 0,
  } as HistorySummary;

  // Promise 10.15: the last message that a summary covers is not sent again.
  test('is the summary and every later message; the last message that it covers is not sent again', () => {
    expect(viewHistory(history, [summary])).toEqual([summaryMessage(summary), history[2], history[3]]);
  });

  test('is the same when it grows message by message', () => {
    const checkpoints = [summary];
    for (let length = 1; length <= history.length; length += 1) {
      const expected = [summaryMessage(summary), ...history.slice(2, Math.max(2, length))];
      expect(viewHistory(history.slice(0, length), checkpoints)).toEqual(expected);
    }
  });
});

describe('large results of tools', () => {
  /** One call and its result after the other, and a later turn that has read them all. */
  function viewWith(results: number) {
    const view = [message(1, 'user', [text('go')])];
    for (let n = 1; n <= results; n += 1)
      view.push(
        message(10 * n, 'assistant', [toolUse(n)]),
        message(10 * n + 1, 'tool', [toolResult(n, 'x'.repeat(4000))]),
      );
    return [...view, message(900, 'assistant', [text('done')])];
  }
  const idsOf = (from: number, to: number) =>
    Array.from({ length: to - from + 1 }, (_, i) => messageId(10 * (from + i) + 1));

  // Promise 10.14: the eight newest results stay while there is another way.
  test.each([
    [3, 0],
    [8, 0],
    [9, 1],
    [12, 4],
  ])('of %i the newest eight stay while there is another way, so %i are taken out first', (results, old) => {
    const found = findElidables(viewWith(results));
    expect(found.old.map(({ message_id }) => message_id)).toEqual(idsOf(1, old));
    expect(found.recent.map(({ message_id }) => message_id)).toEqual(idsOf(old + 1, results));
  });
});
