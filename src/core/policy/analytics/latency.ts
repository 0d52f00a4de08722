// Percentiles of call latencies from a histogram, in integers (07 §7.2).

/** Milliseconds -> number of calls that took exactly that long. */
export type Histogram = ReadonlyMap<number, number>;

/**
 * Linear interpolation between the two neighbours of rank `(n - 1) * p / 100`, rounded half-up; one value per entry of
 * `percents` (whole numbers), null without a sample.
 */
export function percentiles(histogram: Histogram, percents: readonly number[]): (number | null)[] {
  const ascending = [...histogram].sort(([a], [b]) => a - b);
  const size = ascending.reduce((sum, [, count]) => sum + count, 0);
  return percents.map((percent) => {
    if (size === 0) return null;
    const rank = (size - 1) * percent;
    const [below, fraction] = [Math.floor(rank / 100), rank % 100];
    const low = valueAt(ascending, below);
    const high = fraction === 0 ? low : valueAt(ascending, below + 1);
    return Math.floor((low * 100 + (high - low) * fraction + 50) / 100);
  });
}

function valueAt(ascending: readonly (readonly [number, number])[], rank: number): number {
  let passed = 0;
  for (const [value, count] of ascending) {
    passed += count;
    if (rank < passed) return value;
  }
  throw new RangeError(`rank ${rank} is outside a sample of ${passed}`);
}
