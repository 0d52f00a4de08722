// Work on somebody else's text is broken off by the processor time it took, whatever else the machine does (01 §5).
import vm from 'node:vm';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { OutOfTime, withinTime } from '#tools/schema-compiler.ts';

afterEach(() => void vi.restoreAllMocks());

/**
 * A machine that gives this process a share of its processor for each attempt in turn, the last share for all others.
 * @returns what the attempts took, in milliseconds of processor time
 */
function machine(shares: readonly number[], needMs = Number.POSITIVE_INFINITY): number[] {
  const took: number[] = [];
  const spentMs = () => took.reduce((sum, ms) => sum + ms, 0);
  vi.spyOn(process, 'cpuUsage').mockImplementation(() => ({ user: spentMs() * 1000, system: 0 }));
  vi.spyOn(vm.Script.prototype, 'runInContext').mockImplementation((_context, options) => {
    const givenMs = options!.timeout! * (shares[took.length] ?? shares.at(-1)!);
    took.push(Math.min(givenMs, needMs));
    if (needMs <= givenMs) return 'done';
    throw Object.assign(new Error(), { code: 'ERR_SCRIPT_EXECUTION_TIMEOUT' });
  });
  return took;
}
const sum = (took: readonly number[]) => took.reduce((total, ms) => total + ms, 0);

describe('work that takes too long', () => {
  it('is broken off once where the processor is its own', () => {
    const took = machine([1]);
    expect(() => withinTime(() => null)).toThrow(OutOfTime);
    expect(took).toEqual([100]);
  });

  it.each([0.95, 0.89, 0.75, 0.5, 0.3, 0.1, 0.05])(
    'holds others up a quarter of a second at most at a share of %d',
    (share) => {
      const took = machine([share]);
      expect(() => withinTime(() => null)).toThrow('takes longer than 100 ms');
      expect(sum(took)).toBeLessThanOrEqual(260);
    },
  );

  it.each([0.88, 0.6, 0.4])(
    'holds them up not much longer where the processor is free after a share of %d',
    (share) => {
      const took = machine([share, 1]);
      expect(() => withinTime(() => null)).toThrow(OutOfTime);
      expect(sum(took)).toBeLessThanOrEqual(260);
    },
  );
});

it.each([1, 0.5, 0.1, 0.02])('work that takes less is done at a share of %d', (share) => {
  machine([share], 80);
  expect(withinTime(() => null)).toBe('done');
});
