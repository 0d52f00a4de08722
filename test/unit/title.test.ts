// What a session is called by the first line of what it was told.
import { expect, test } from 'vitest';
import { firstLine } from '#core/policy/session/session-view.ts';

test.each([
  ['  \n\n do this \r\nand that', 'do this'],
  ['x'.repeat(80), 'x'.repeat(80)],
  ['x'.repeat(81), `${'x'.repeat(79)}…`],
  ['😀'.repeat(80), '😀'.repeat(80)],
  ['😀'.repeat(81), `${'😀'.repeat(79)}…`],
  [`${'x'.repeat(78)} yy`, `${'x'.repeat(78)}…`],
  [' \n\t', null],
])('%j is called %j', (text, title) => {
  expect(firstLine(text)).toBe(title);
});
