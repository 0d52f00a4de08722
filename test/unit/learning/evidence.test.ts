// What a recommendation stands on, and when that suffices for a cheaper model (12 §12.4).
import { expect, it } from 'vitest';
import { computePassRateBound, weighEvidence } from '#core/policy/learning/weigh-evidence.ts';
import { defaultConfig } from '#protocol/config.ts';
import type { ModelEvidence, Recommendation } from '#protocol/route.ts';

const config = { ...defaultConfig('').pattern, mode: 'apply' as const };
const known = (count: number, mean: number): ModelEvidence => ({
  turns: 90,
  scored: { count: 80, mean: 1 },
  verified: { count, mean },
});
const weigh = (cheap: ModelEvidence, other: ModelEvidence | null, over: Partial<Recommendation['config']> = {}) => {
  const evidence = new Map([['cheap', cheap], ...(other === null ? [] : [['other', other] as const])]);
  const found: Recommendation = {
    config: { ...config, ...over },
    evidence,
    chosen_model: 'cheap',
    confidence: 1,
    sample_size: 90,
    k_cluster_size: 2,
    alternatives: [],
  };
  return weighEvidence(found, { candidate: 'cheap', other: 'other', is_cheaper: true });
};

it('the lower bound of a pass rate is that of Wilson at 90 %', () => {
  const bounds = [
    [0, 0],
    [5, 1],
    [52, 1],
    [10, 0.5],
    [100, 0.9],
    [3, 0],
  ].map(([count, mean]) => computePassRateBound({ count: count!, mean: mean! }).toFixed(4));
  expect(bounds).toEqual(['0.0000', '0.6489', '0.9505', '0.2693', '0.8396', '0.0000']);
});

// Promise 12.27: the bound must not be below the other model's rate minus 0.05, and a model without scores counts as 1.
it.each([
  [51, 1, null, false],
  [52, 1, null, true],
  [5, 1, known(20, 0.69), true],
  [5, 1, known(20, 0.71), false],
  [4, 1, known(20, 0), false],
  [100, 0.9, known(100, 0.9), false],
  [100, 0.9, known(100, 0.88), true],
] as const)('%i verified turns with %d beside %o: suffices is %s', (count, mean, other, suffices) => {
  expect(weigh(known(count, mean), other).suffices).toBe(suffices);
});

it('scores of heuristics count only where every score does', () => {
  expect(weigh(known(0, 0), null).suffices).toBe(false);
  expect(weigh(known(0, 0), null, { evidence: 'any' })).toEqual({
    suffices: true,
    statement:
      '90 turns like this one on cheap, 80 of them scored: pass rate 100 %, at least 96 %; other has no such score and counts as 100 %',
  });
});
