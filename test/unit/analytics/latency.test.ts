// Percentiles of call latencies.
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { percentiles } from '#core/policy/analytics/latency.ts';

const histogram = (values: readonly number[]) =>
  values.reduce((counts, value) => counts.set(value, (counts.get(value) ?? 0) + 1), new Map<number, number>());

it('interpolates between neighbours and rounds half-up', () => {
  const tenth = Array.from({ length: 10 }, (_, i) => (i + 1) * 100);
  expect(percentiles(histogram(tenth), [50, 95])).toEqual([550, 955]);
  expect(percentiles(histogram([1, 2]), [50])).toEqual([2]);
  expect(percentiles(histogram([7]), [50, 95])).toEqual([7, 7]);
  expect(percentiles(histogram([]), [50, 95])).toEqual([null, null]);
});

it('equals the definition over the sorted sample', () => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 0, max: 50 }), { minLength: 1, maxLength: 60 }), (sample) => {
      const sorted = sample.toSorted((a, b) => a - b);
      const expected = [50, 95].map((percent) => {
        const k = ((sorted.length - 1) * percent) / 100;
        const low = Math.floor(k + 1e-9);
        const [a, b] = [sorted[low]!, sorted[Math.min(low + 1, sorted.length - 1)]!];
        return Math.floor(a + (b - a) * (k - low) + 0.5 + 1e-9);
      });
      expect(percentiles(histogram(sample), [50, 95])).toEqual(expected);
    }),
  );
});
