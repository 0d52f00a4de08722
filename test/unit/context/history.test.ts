// The summary of a history is the same however the history came about (10 §1).
import { expect, test } from 'vitest';
import { extendHistory, measureHistory } from '#core/policy/context/session-history.ts';
import { findElidables, recentTurnsStart } from '#core/policy/context/window.ts';
import { type StoredMessage, textBlock } from '#protocol/message.ts';
import { message, text, ulidOf } from '../../support/messages.ts';

const picture = { type: 'image', source: { kind: 'base64', data: 'AA==' }, media_type: 'image/png' } as const;
const ask = message(1, 'user', [text('a'.repeat(40))]);
const answer = message(2, 'assistant', [text('b'.repeat(60))]);
const result = message(3, 'tool', [
  { type: 'tool_result', tool_use_id: 'tu_1' as never, content: [picture], is_error: false },
]);
const more = { ...message(4, 'user', [text('c')]), turn_id: ulidOf(9) as never };

test('grown in place, extended message by message, or whole at once', () => {
  const whole = { size: 100 + 16 + 1024 + 1, has_images: true, has_tool_results: true, turns: 2 };
  expect(measureHistory([ask, answer, result, more])).toMatchObject(whole);

  const grown = [ask];
  expect(measureHistory(grown)).toMatchObject({ size: 40, has_images: false, has_tool_results: false, turns: 1 });
  grown.push(answer, result);
  expect(measureHistory(grown)).toMatchObject({ has_images: true, has_tool_results: true, turns: 1 });
  grown.push(more);
  expect(measureHistory(grown)).toMatchObject(whole);

  let history: readonly StoredMessage[] = [];
  for (const next of [ask, answer, result, more]) {
    const before = history;
    history = extendHistory(before, next);
    measureHistory(history);
    expect(before).toHaveLength(history.length - 1);
  }
  expect(measureHistory(history)).toMatchObject(whole);
});

test('an extension leaves the summary of what it extends alone', () => {
  const history = [ask];
  measureHistory(history);
  expect(measureHistory(extendHistory(history, result))).toMatchObject({ has_images: true });
  expect(measureHistory(history)).toMatchObject({ size: 40, has_images: false });
});

test('a message that a running turn reads begins no turn, and the answers before it are still unread', () => {
  const large = { type: 'tool_result', tool_use_id: 'tu_1' as never, is_error: false } as const;
  const answered = message(3, 'tool', [{ ...large, content: [textBlock('x'.repeat(10_000))] }]);
  const said = message(5, 'user', [text('faster')]);
  const view = [ask, answer, answered, said];
  expect(measureHistory(view).turns).toBe(1);
  expect(findElidables(view)).toEqual({ old: [], recent: [] });
  expect(findElidables([ask, answer, answered, more]).recent).toMatchObject([{ message_id: answered.id }]);

  const turn = (n: number) => ({ ...message(n, 'user', [text('c')]), turn_id: ulidOf(n) as never });
  const turns = [turn(10), turn(20), { ...turn(21), turn_id: ulidOf(20) as never }, turn(30), turn(40), turn(50)];
  expect(recentTurnsStart(turns)).toBe(1);
  expect(recentTurnsStart(turns.slice(1))).toBe(0);
});
