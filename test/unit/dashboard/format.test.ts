// Amounts, counts and times as the dashboard writes them.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  axisUsd,
  computeShare,
  duration,
  exactUsd,
  formatCount,
  formatNumber,
  modelName,
  relativeTime,
  shortUsd,
} from '#dashboard/format/format.ts';
import { formatPlace, parsePlace } from '#dashboard/shell/place.ts';
import { fromPusd, toPusd } from '#protocol/money.ts';
import { formatShortCount } from '#protocol/text/short-count.ts';

describe('an amount', () => {
  test.each([
    ['0', '$0.00', '$0.00'],
    ['0.3', '$0.30', '$0.3000'],
    ['0.0024416', '$0.0024416', '$0.0024'],
    ['0.00245', '$0.00245', '$0.0025'],
    ['0.00000001', '$0.00000001', '<$0.0001'],
    ['99.99995', '$99.99995', '$100.0000'],
    ['1234567.895', '$1,234,567.895', '$1,234,567.90'],
    ['-0.0214284', '−$0.0214284', '−$0.0214'],
    ['9007199254740993.000000000001', '$9,007,199,254,740,993.000000000001', '$9,007,199,254,740,993.00'],
  ])('%s reads %s in full and %s in short', (usd, exact, short) => {
    expect([exactUsd(usd), shortUsd(usd)]).toEqual([exact, short]);
  });

  test('in full is the amount, to the last digit', () => {
    fc.assert(
      fc.property(fc.bigInt({ min: 0n, max: 10n ** 24n }), (pusd) => {
        expect(toPusd(exactUsd(fromPusd(pusd)).replace(/[$,]/g, ''))).toBe(pusd);
      }),
    );
  });

  test.each([
    [[0, 0.05, 0.1, 0.15], '$0.00 $0.05 $0.10 $0.15'],
    [[0, 0.5, 1], '$0.00 $0.50 $1.00'],
    [[0, 50, 100], '$0 $50 $100'],
    [[0, 0.0005, 0.001], '$0.0000 $0.0005 $0.0010'],
    [[0, 2e-7, 4e-7], '$0.0000000 $0.0000002 $0.0000004'],
    [[0, 0.1, 0.2, 0.1 + 0.2], '$0.00 $0.10 $0.20 $0.30'],
  ])('marks an axis %j with as many digits at every mark', (marks, text) => {
    expect(marks.map((mark) => axisUsd(mark, marks)).join(' ')).toBe(text);
  });

  test('is a share of a limit between nothing and all of it', () => {
    expect([computeShare('0.5', '2'), computeShare('3', '2'), computeShare('0', '2'), computeShare('1', '0')]).toEqual([
      0.25, 1, 0, 1,
    ]);
  });
});

test('one of a thing is not many', () => {
  expect([0, 1, 2, 1000].map((n) => formatCount(n, 'call'))).toEqual(['0 calls', '1 call', '2 calls', '1,000 calls']);
});

test('a count is short where its exact form stands beside it', () => {
  const rounded: readonly (readonly [number, string])[] = [
    [0, '0'],
    [999, '999'],
    [1000, '1k'],
    [1249, '1.2k'],
    [1250, '1.3k'],
    [9949, '9.9k'],
    [9950, '10k'],
    [34_499, '34k'],
    [34_567, '35k'],
    [999_499, '999k'],
    [999_500, '1M'],
    [1_250_000, '1.3M'],
    [3e9, '3G'],
    [2e12, '2000G'],
  ];
  for (const [count, text] of rounded) expect(formatShortCount(count), `${count}`).toBe(text);
  expect(formatNumber(1_234_567)).toBe('1,234,567');
  expect(modelName('openrouter:a/b:free')).toBe('a/b:free');
});

test('a time is told from now, a length of time keeps its width while it ticks', () => {
  expect([0, 1500, 61_000, 3_700_000, 90_000_000].map((ms) => relativeTime(1e12 - ms, 1e12))).toEqual([
    'now',
    '1s ago',
    '1m ago',
    '1h ago',
    '1d ago',
  ]);
  expect(relativeTime(1e12 + 40_000, 1e12)).toBe('in 40s');
  expect([0, 940, 12_345, 185_000, 7_805_000].map(duration)).toEqual(['0.0s', '0.9s', '12s', '3m 05s', '2h 10m']);
});

test('an address names a view and what is in it, and one that nobody wrote leads to a view that does not exist', () => {
  expect(parsePlace(formatPlace('sessions', 'a/b?c#d'))).toMatchObject({ view: 'sessions', rest: ['a/b?c#d'] });
  expect(parsePlace('#/sessions/x?tab=timeline').query.get('tab')).toBe('timeline');
  expect(parsePlace('').view).toBe('');
  expect(parsePlace('#/%E0%A4%A').view).toBe('%E0%A4%A');
});

test('the query of an address begins at its first question mark, and others belong to its values', () => {
  const { view, query } = parsePlace('#/sessions?q=a?b&state=idle');
  expect([view, ...query]).toEqual(['sessions', ['q', 'a?b'], ['state', 'idle']]);
  expect([...parsePlace('#/sessions??').query.keys()]).toEqual(['?']);
  expect([...parsePlace('#/sessions?').query]).toEqual([]);
});
