// YAML and JSON from outside: what is read as what, and where the limits stop a text (00, 03 §6).
import { describe, expect, it } from 'vitest';
import { faultOfJson, readJson } from '#core/policy/parsing/json.ts';
import { faultOfValue, OUTSIDE } from '#core/policy/parsing/text-limits.ts';
import { readYaml } from '#core/policy/parsing/yaml.ts';

const SMALL = { bytes: 100, depth: 3, nodes: 10 };
const flatKeys = (count: number) => Array.from({ length: count }, (_, i) => `k${i}: 1\n`).join('');

function value(text: string): unknown {
  const read = readYaml(text, OUTSIDE);
  if (!read.ok) throw new Error(read.error);
  return read.value;
}
function fault(text: string, limits = OUTSIDE): string {
  const read = readYaml(text, limits);
  return read.ok ? 'accepted' : read.error;
}

describe('YAML', () => {
  it.each<[string, unknown]>([
    ['', null],
    ['# only a comment\n', null],
    ['[no, on, yes, True, NULL, ~]', ['no', 'on', 'yes', true, null, null]],
    ['[0o17, 017, 0x1f, 1e3, 2020-01-01]', [15, 17, 31, 1000, '2020-01-01']],
    ['a: &x [1]\nb: *x\n', { a: [1], b: [1] }],
    ['\uFEFFa: |\n  two\n  lines\n', { a: 'two\nlines\n' }],
  ])('%j is read by the 1.2 core schema', (text, expected) => {
    expect(value(text)).toEqual(expected);
  });

  it('a key named __proto__ is a key like any other', () => {
    const read = value('__proto__: { allowed: true }') as Record<string, unknown>;
    expect(Object.keys(read)).toEqual(['__proto__']);
    expect(read.allowed).toBeUndefined();
  });

  it.each([
    ['a: 1\na: 2\n', 'malformed YAML: duplicated mapping key at line 2, column 1'],
    ['server: { port: 8000\nlog: [\n', /^malformed YAML: .* at line \d, column \d+$/],
    ['a: 1\n---\nb: 2\n', 'malformed YAML: holds more than one document'],
    ['a: !!js/function "x"', /^malformed YAML: unknown .*tag.* at line 1/],
    [`a: !${'x'.repeat(10_000)} b`, /^malformed YAML: .{1,210} at line 1, column 4$/],
    ['a: *nothing', /^malformed YAML: .*alias.* at line 1/],
    ['? [a]\n: 1', /^malformed YAML: .*key.* at line 1/],
  ])('%j is refused with its place', (text, expected) => {
    expect(fault(text)).toMatch(expected);
  });

  it.each([
    ['nested lists', '- '.repeat(20_000), /^is nested deeper than 100 levels at line 1$/],
    ['nested keys', '? '.repeat(30_000), /^is nested deeper than 100 levels at line 1$/],
    ['nested brackets', `a: 1\nb: ${'['.repeat(100_000)}`, /^is nested deeper than 100 levels at line 2$/],
    ['nested braces', '{a: '.repeat(20_000), /^is nested deeper than 100 levels at line 1$/],
    ['many keys', flatKeys(20_000), /^has more than 20000 values at line 10\d{3}$/],
    ['a long text', flatKeys(60_000), /^has more than 262144 bytes$/],
    ['a doubled key, often', 'a: 1\n'.repeat(9_000), /^malformed YAML: duplicated mapping key at line 2/],
    ['many aliases', `a: &x 1\nb: [${Array.from({ length: 200 }, () => '*x').join(',')}]`, /^malformed YAML: .*alias/],
  ])('%s are stopped within the limits', (_what, text, expected) => {
    const from = performance.now();
    expect(fault(text)).toMatch(expected);
    // What this replaces took seconds, or ended the process.
    expect(performance.now() - from).toBeLessThan(1000);
  });

  it('aliases that multiply are counted as what they stand for', () => {
    const lines = ['a0: &a0 [x, x, x, x, x, x, x, x, x, x]'];
    for (let i = 1; i < 10; i++)
      lines.push(
        `a${i}: &a${i} [${Array(10)
          .fill(`*a${i - 1}`)
          .join(', ')}]`,
      );
    expect(fault(lines.join('\n'))).toBe('has more than 20000 values');
    expect(fault('&a [*a]')).toBe('is nested deeper than 100 levels');
  });

  it('the limit itself is allowed', () => {
    expect(fault('[[[1]]]', SMALL)).toBe('accepted');
    expect(fault('[[[[1]]]]', SMALL)).toBe('is nested deeper than 3 levels at line 1');
    expect(fault('[1,2,3,4,5,6,7,8,9]', SMALL)).toBe('accepted');
    expect(fault('[1,2,3,4,5,6,7,8,9,10]', SMALL)).toBe('has more than 10 values at line 1');
    expect(fault('x'.repeat(100), SMALL)).toBe('accepted');
    expect(fault('ü'.repeat(51), SMALL)).toBe('has more than 100 bytes');
  });
});

describe('JSON', () => {
  const wrong = (text: string) => {
    const read = readJson(text, SMALL);
    return read.ok ? read.value : read.error;
  };

  it('is read as JSON.parse reads it', () => {
    expect(wrong('{"a": [1, "]]]]", "\\"[[[["], "b\\\\": {}}')).toEqual({ a: [1, ']]]]', '"[[[['], 'b\\': {} });
  });

  it.each([
    ['[[[[1]]]]', 'is nested deeper than 3 levels at line 1'],
    ['[\n{"a":\n[\n{}]}]', 'is nested deeper than 3 levels at line 4'],
    [`[${Array(11).fill(1).join(',')}]`, 'has more than 10 values at line 1'],
    [`"${'x'.repeat(99)}"`, 'has more than 100 bytes'],
    ['{"a": }', /^is not valid JSON: [^\n]+$/],
    ['"open', /^is not valid JSON: /],
    ['', /^is not valid JSON: /],
  ])('%s is refused in one line', (text, expected) => {
    expect(wrong(text)).toMatch(expected);
  });

  it('is measured without recursion, and in time that grows with its length only', () => {
    const limits = { bytes: 1e9, depth: 100, nodes: 1e9 };
    expect(faultOfJson('['.repeat(5_000_000), limits)).toContain('deeper than 100');
    expect(faultOfJson(`"${'\\'.repeat(2_000_000)}"`, limits)).toBeNull();
    expect(faultOfJson(`"${'\\"'.repeat(1_000_000)}`, limits)).toBeNull();
  });

  it('a value is measured like the text it came from', () => {
    let deep: unknown = 1;
    for (let i = 0; i < 200_000; i++) deep = [deep];
    expect(faultOfValue(deep, SMALL)).toBe('is nested deeper than 3 levels');
    expect(faultOfValue([[[1]]], SMALL)).toBeNull();
    expect(faultOfValue({ a: [1, 2, 3, 4, 5, 6, 7, 8] }, SMALL)).toBeNull();
    expect(faultOfValue({ a: [1, 2, 3, 4, 5, 6, 7, 8, 9] }, SMALL)).toBe('has more than 10 values');
  });
});

describe('a limit', () => {
  it('of bytes counts bytes, not characters', () => {
    const text = `"${'\u00e9'.repeat(60)}"`;
    expect(text.length).toBeLessThan(SMALL.bytes);
    expect(fault(text, SMALL)).toBe('has more than 100 bytes');
    expect(readJson(text, SMALL)).toEqual({ ok: false, error: 'has more than 100 bytes' });
    expect(readJson('"short"', SMALL)).toEqual({ ok: true, value: 'short' });
  });

  it('of values names the line of the one too many, whatever kind it is', () => {
    for (const item of ['1', '[]', '{}', '&a'])
      expect(fault(`${`- ${item}\n`.repeat(9)}- ${item}\n`, SMALL), item).toBe('has more than 10 values at line 10');
    expect(fault('-\n'.repeat(10), SMALL)).toBe('has more than 10 values');
  });
});
