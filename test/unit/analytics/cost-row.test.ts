// Sums of a group as they cross the wire.
import { Decimal } from 'decimal.js';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { averageLatency, buildCostTotals, costRow, emptySums, ratio } from '#core/policy/analytics/cost-row.ts';

describe('ratio', () => {
  it('rounds half-even to six places', () => {
    expect(ratio(5n, 10_000_000n)).toBe(0);
    expect(ratio(15n, 10_000_000n)).toBe(0.000002);
    expect(ratio(25n, 10_000_000n)).toBe(0.000002);
    expect(ratio(2n, 3n)).toBe(0.666667);
    expect(ratio(-214284n, 2311722n)).toBe(-0.092695);
    expect(ratio(1n, 0n)).toBeNull();
  });

  it('never gives a negative zero', () => {
    expect(Object.is(ratio(-1n, 10_000_000n), 0)).toBe(true);
  });

  it('equals decimal arithmetic for any two integers', () => {
    const Exact = Decimal.clone({ precision: 60 });
    fc.assert(
      fc.property(fc.bigInt(-(2n ** 63n), 2n ** 63n), fc.bigInt(1n, 2n ** 63n), (n, d) => {
        const expected = new Exact(n.toString()).div(d.toString()).toDecimalPlaces(6, Decimal.ROUND_HALF_EVEN);
        expect(ratio(n, d)).toBe(expected.toNumber() + 0);
      }),
    );
  });
});

describe('averageLatency', () => {
  it('rounds half-up to three places and is null without a sample', () => {
    expect(averageLatency(15_100n, 8n)).toBe(1887.5);
    expect(averageLatency(13_100n, 6n)).toBe(2183.333);
    expect(averageLatency(1n, 2000n)).toBe(0.001);
    expect(averageLatency(0n, 0n)).toBeNull();
  });
});

describe('costRow', () => {
  const shape = { group_by: [], keys: [], repriced: false } as const;

  it('names planners, workers, buckets and what a call has none of', () => {
    const keys = ['is_worker', 'delegation_tier', 'worker_name'] as const;
    expect(costRow({ ...shape, keys }, [0n, '', 'scout'], emptySums())).toMatchObject({
      is_worker: 'planner',
      delegation_tier: null,
      worker_name: 'scout',
    });
    expect(costRow({ ...shape, keys: ['is_worker'] }, [1n], emptySums()).is_worker).toBe('worker');
    expect(costRow({ ...shape, keys: ['day'] }, [20_604n], emptySums()).bucket).toBe('2026-05-31');
    expect(costRow({ ...shape, keys: ['hour'] }, [494_519n], emptySums()).bucket).toBe('2026-05-31T23');
  });

  it('shows the cache shares of a model, and null when it saw no prompt', () => {
    const row = (sums: object) =>
      costRow({ ...shape, group_by: ['model'], keys: ['model', 'provider'] }, ['a:b', 'a'], {
        ...emptySums(),
        ...sums,
      });
    const tokens = { input_tokens: 12_700n, cached_input_tokens: 20_000n, cache_creation_input_tokens: 8000n };
    expect(row(tokens)).toMatchObject({ hit_rate: 0.4914, cache_write_share: 0.19656 });
    expect(row({})).toMatchObject({ hit_rate: null, cache_write_share: null });
  });

  it('splits a tree between its planner and its workers', () => {
    const sums = { ...emptySums(), cost_pusd: 3n, worker_cost_pusd: 1n, calls: 5n, worker_calls: 2n };
    const row = costRow({ ...shape, group_by: ['root_session'], keys: ['root_session_id'] }, ['s'], sums);
    expect(row).toMatchObject({
      cost_usd: '0.000000000003',
      planner_cost_usd: '0.000000000002',
      worker_cost_usd: '0.000000000001',
      worker_call_count: 2,
    });
  });

  it('tells stamped and missing only when it is repriced', () => {
    expect(buildCostTotals(emptySums(), false)).not.toHaveProperty('stamped_cost_usd');
    expect(buildCostTotals({ ...emptySums(), stamped_pusd: 10n ** 12n, missing_calls: 1n }, true)).toMatchObject({
      cost_usd: '0',
      stamped_cost_usd: '1',
      missing_call_count: 1,
    });
  });
});
