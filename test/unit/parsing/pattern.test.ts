// Expressions somebody else wrote: JavaScript's syntax, linear time (03 §6.3, 09 §3).
import { describe, expect, it } from 'vitest';
import { compilePattern } from '#core/policy/parsing/regular-expression.ts';

describe('a regular expression from outside', () => {
  it.each<[string, string, string, boolean]>([
    ['b.r', '', 'foo bar', true],
    ['^bar', '', 'foo bar', false],
    ['BAR', 'i', 'foo bar', true],
    ['^b$', 'm', 'a\nb\nc', true],
    ['a.b', '', 'a\nb', false],
    ['a.b', 's', 'a\nb', true],
    ['^(0|[1-9]\\d{0,6})(\\.\\d{1,6})?$', '', '12.50', true],
    ['^[\\w.-]+@\\w+$', '', 'a.b-c@d', true],
    ['\\u00e9\\/[^]', '', 'é/\n', true],
    ['(?<year>\\d{4})-\\d\\d', '', 'on 2026-01', true],
    ['\\bfix(es|ed)?\\b', '', 'it is fixed now', true],
    ['\\p{Lu}', '', 'aÉ', true],
  ])('/%s/%s means what it means in JavaScript for %j', (source, flags, text, expected) => {
    expect(compilePattern(source, flags).test(text)).toBe(expected);
    expect(new RegExp(source, source.includes('\\p') ? 'u' : flags).test(text)).toBe(expected);
  });

  it.each(['(a+)+$', '(a|a)*$', '(.*)*(.*)*x', '^(([a-z])+.)+[A-Z]([a-z])+$', '(x+x+)+y', 'a.*a.*a.*a.*b'])(
    '/%s/ is matched in linear time',
    (source) => {
      const pattern = compilePattern(source);
      const from = performance.now();
      pattern.test(`${'a'.repeat(10_000)}${'x'.repeat(10_000)}!`);
      // A backtracking engine needs longer than the age of the world.
      expect(performance.now() - from).toBeLessThan(2000);
    },
  );

  it.each([
    ['(', /^Invalid regular expression: /],
    ['(?=a)b', /look-around and back references are not supported$/],
    ['(?<!a)b', /look-around and back references are not supported$/],
    ['(a)\\1', /look-around and back references are not supported$/],
    ['(?:a{30}){30}', /too large/],
    ['a{1000}', /too large/],
    ['(?:a{1000}){1000}', /^Invalid regular expression: /],
    ['x'.repeat(1001), /more than 1000 characters/],
    [`${'('.repeat(400)}${')'.repeat(400)}`, /./],
  ])('%s is refused in one line', (source, expected) => {
    expect(() => compilePattern(source)).toThrow(expected);
    expect(() => compilePattern(source)).not.toThrow(/\n/);
  });
});
