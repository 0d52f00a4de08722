// What a call costs, to the last digit (08 §4, §5).

import { Decimal } from 'decimal.js';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { replaceIncredibleCounts } from '#core/policy/pricing/credible-usage.ts';
import { type PriceTable, resolveServedModelId, selectPriceRow } from '#core/policy/pricing/price-table.ts';
import { fromPusd } from '#protocol/money.ts';
import { NO_TOKENS, promptTokens, STANDARD_TERMS, type TokenUsage } from '#protocol/usage.ts';
import { priceTableA, priceTableB, tableOf } from '../../support/prices.ts';

const A = priceTableA();
const B = priceTableB();
const OPUS = 'anthropic:claude-opus-4-7';
const SONNET = 'anthropic:claude-sonnet-4-6';
const HAIKU = 'anthropic:claude-haiku-4-5';

interface Counts {
  in?: number;
  out?: number;
  cached?: number;
  written?: number;
  written1h?: number;
  reasoning?: number;
}
const usage = (counts: Counts): TokenUsage => ({
  ...NO_TOKENS,
  input_tokens: counts.in ?? 0,
  output_tokens: counts.out ?? 0,
  cached_input_tokens: counts.cached ?? 0,
  cache_creation_input_tokens: counts.written ?? 0,
  cache_creation_1h_input_tokens: counts.written1h ?? 0,
  reasoning_tokens: counts.reasoning ?? 0,
});
const usd = (table: PriceTable, model: string, counts: Counts) => fromPusd(table.cost(model, usage(counts)).cost_pusd);

describe('cost of one call', () => {
  // Promise 08.1: A million tokens in and out of sonnet cost 18 USD.
  // Promise 08.3: A small call is priced without rounding.
  it('prices input and output', () => {
    expect(usd(A, SONNET, { in: 1_000_000, out: 1_000_000 })).toBe('18');
    expect(usd(A, HAIKU, { in: 100, out: 50 })).toBe('0.00035');
  });

  // Promise 08.2: Uncached, cached and written tokens each have their own rate.
  it('prices uncached, cached and written tokens each at its own rate', () => {
    expect(usd(A, SONNET, { in: 1_000_000, cached: 1_000_000, written: 1_000_000 })).toBe('7.05');
  });

  // Promise 08.4: A call without tokens costs nothing on any model.
  // Promise 08.5: One cached token has an exact price.
  it('costs nothing without tokens, and is exact for a single cached one', () => {
    for (const model of Object.keys(A.models)) expect(usd(A, model, {})).toBe('0');
    expect(usd(A, HAIKU, { cached: 1 })).toBe('0.0000001');
  });

  // Promise 08.6: Cache writes are priced by their lifetime.
  it('splits cache writes by lifetime, and clamps one-hour writes to all writes', () => {
    expect(usd(A, SONNET, { in: 9000, out: 800, written: 3000, written1h: 1000 })).toBe('0.0525');
    expect(usd(A, SONNET, { written: 1000, written1h: 5000 })).toBe(usd(A, SONNET, { written: 1000, written1h: 1000 }));
  });

  // Promise 08.7: The same call costs what the table in force says.
  it('follows the table it is asked with', () => {
    const counts = { in: 12_000, out: 900, written: 8000 };
    expect([usd(A, OPUS, counts), usd(B, OPUS, counts)]).toEqual(['0.3975', '0.1325']);
  });

  // Promise 08.8: Cached tokens have the cached rate to the last digit.
  it('bills a cached span once', () => {
    expect(usd(B, 'openai:gpt-5-mini', { in: 7000, out: 333, cached: 1024 })).toBe('0.0024416');
  });

  // Promise 08.10: A missing write rate costs the input rate, never nothing.
  it('takes the input rate where a cache rate is missing, never zero', () => {
    expect(usd(A, 'openai:gpt-5', { written: 1000 })).toBe('0.0025');
  });

  // Promise 08.13: Reasoning tokens are priced as output, once.
  it('prices reasoning as part of the output, not beside it', () => {
    expect(usd(A, HAIKU, { out: 1000, reasoning: 400 })).toBe('0.005');
  });

  // Promise 08.19: The cost path is exact beyond the range of JS numbers.
  it('stays exact beyond what a JS number can hold', () => {
    expect(usd(A, OPUS, { out: 9_007_199_254_740_991 })).toBe('675539944105.574325');
  });

  it('refuses counts that are no token counts, and says which', () => {
    expect(() => A.cost(SONNET, usage({ in: -1 }))).toThrow(RangeError);
    expect(() => A.cost(SONNET, usage({ out: 1.5 }))).toThrow(RangeError);
  });
});

describe('reported counts', () => {
  const capabilities = { max_context_tokens: 90_000, max_output_tokens: 10_000 };
  const estimates = { input: () => 11, output: () => 7 };
  const believed = (counts: Counts) => replaceIncredibleCounts(usage(counts), capabilities, estimates, null);

  it('are kept up to ten times what the model holds, and a side above it is estimated alone', () => {
    const most = usage({ in: 900_000, cached: 60_000, written: 40_000, written1h: 40_000, out: 1_000_000 });
    expect(replaceIncredibleCounts(most, capabilities, estimates, null)).toEqual({ usage: most, faults: [] });
    expect(believed({ in: 900_000, cached: 100_001, out: 5 }).usage).toEqual({
      ...usage({ in: 11, out: 5 }),
      usage_estimated: true,
    });
    expect(believed({ in: 5, cached: 6, out: 1_000_001 }).usage).toEqual({
      ...usage({ in: 5, cached: 6, out: 7 }),
      usage_estimated: true,
    });
  });

  it('of a call of several rounds are kept up to so many times as much', () => {
    const count = { input: 1, cached: null, creation: null, creation1h: null, output: 1, reasoning: null };
    const round = { kind: 'message', model: null, billed: true, usage: count };
    const bill = { rounds: [round, round, round], uses: new Map(), terms: STANDARD_TERMS, rounds_unknown: false };
    const most = usage({ in: 3_000_000, out: 3_000_000 });
    expect(replaceIncredibleCounts(most, capabilities, estimates, bill)).toEqual({ usage: most, faults: [] });
    const above = usage({ in: 3_000_001, out: 5 });
    expect(replaceIncredibleCounts(above, capabilities, estimates, bill).faults).toHaveLength(1);
  });

  it.each([-1, 1.5, Number.NaN, Number.POSITIVE_INFINITY, 9e15, 24e12])('of %d are never booked', (lie) => {
    for (const side of ['in', 'out', 'cached', 'written', 'written1h', 'reasoning'] as const) {
      const { usage: kept, faults } = believed({ [side]: lie });
      expect(Object.values(kept).filter((value) => typeof value === 'number' && ![0, 7, 11].includes(value))).toEqual(
        [],
      );
      expect(faults.length).toBeGreaterThan(0);
    }
  });
});

describe('long context', () => {
  const step = { above_prompt_tokens: 200_000, input_per_mtok_usd: '6', output_per_mtok_usd: '22.5' };
  const table = (...steps: object[]) =>
    tableOf(
      JSON.stringify({
        pricing_version: 'L',
        models: { 'x:y': { input_per_mtok_usd: '3', output_per_mtok_usd: '15', long_context: steps } },
      }),
    );

  // Promise 08.11: A prompt exactly at the threshold keeps the base rates.
  it('keeps the base rates up to and including the threshold', () => {
    expect(usd(table(step), 'x:y', { in: 200_000, out: 1000 })).toBe('0.615');
  });

  // Promise 08.12: One token more takes the higher rates for the whole call.
  it('takes the step for the whole call above it, whatever classes the prompt is made of', () => {
    for (const counts of [
      { in: 200_001, out: 1000 },
      { in: 1, cached: 200_000, out: 1000 },
      { in: 1, cached: 100_000, written: 100_000, written1h: 50_000, out: 1000 },
    ]) {
      expect(usd(table(step), 'x:y', counts)).toBe('1.222506');
    }
  });

  it('takes the highest step reached, and inherits what a step leaves out', () => {
    const two = table(step, { above_prompt_tokens: 500_000, output_per_mtok_usd: '30' });
    expect(usd(two, 'x:y', { in: 500_001 })).toBe(fromPusd(500_001n * 3_000_000n));
    expect(two.ratesFor('x:y', 500_001)?.output).toBe(30_000_000n);
    expect(two.ratesFor('x:y', 500_000)?.output).toBe(22_500_000n);
  });
});

describe('which row prices a call', () => {
  // Promise 08.14: A free provider is priced at zero; an unknown model is unpriced and does not fail.
  it('has zero rates for a free provider and no rates for an unknown model, without failing', () => {
    expect(A.cost('ollama:llama-3.3-70b', usage({ in: 10 }))).toEqual({ cost_pusd: 0n, priced: true });
    expect(A.cost('ollama:never-listed', usage({ in: 10 }))).toEqual({ cost_pusd: 0n, priced: true });
    expect([A.has('ollama:never-listed'), A.has('nope:model')]).toEqual([true, false]);
    expect(A.cost('nope:model', usage({ in: 10 }))).toEqual({ cost_pusd: 0n, priced: false });
    expect(A.ratesFor('nope:model', 0)).toBeNull();
  });

  const call = { servedModelId: null, pricingId: SONNET, modelId: SONNET };
  const price = (over: Partial<Parameters<typeof selectPriceRow>[1]>) => {
    const { cost_pusd, priced } = A.cost(selectPriceRow(A, { ...call, ...over }), usage({ in: 1_000_000 }));
    return [fromPusd(cost_pusd), priced];
  };

  it('prices the answering model if it has a row, else the asked model’s pricing id', () => {
    expect(price({})).toEqual(['3', true]);
    expect(price({ servedModelId: OPUS })).toEqual(['15', true]);
    expect(price({ servedModelId: 'anthropic:claude-sonnet-4-6-20260217' })).toEqual(['3', true]);
    expect(price({ servedModelId: SONNET, pricingId: HAIKU })).toEqual(['1', true]);
    expect(price({ pricingId: 'nope:model' })).toEqual(['0', false]);
  });

  it('does not let the implicit zero of a free provider outrank a pricing id', () => {
    expect(price({ modelId: 'ollama:big', pricingId: SONNET, servedModelId: 'ollama:big-q4' })).toEqual(['3', true]);
  });

  it('names the answering model only when it is another than was asked for', () => {
    const model = { id: 'local:big', wire_name: 'llama-3.3' };
    expect(resolveServedModelId(model, 'llama-3.3')).toBeNull();
    expect(resolveServedModelId(model, null)).toBeNull();
    expect(resolveServedModelId(model, 'llama-3.3-q4')).toBe('local:llama-3.3-q4');
  });
});

describe('exactness', () => {
  const rate = fc
    .tuple(fc.integer({ min: 0, max: 999_999 }), fc.integer({ min: 0, max: 999_999 }))
    .map(([whole, micros]) => `${whole}.${String(micros).padStart(6, '0')}`);
  const tokens = fc.oneof(fc.integer({ min: 0, max: 2_000_000 }), fc.maxSafeNat());
  const rates = fc.record({ in: rate, out: rate, read: rate, write: rate, write1h: rate });

  // Promise 08.18: Cost equals decimal arithmetic at 50 digits for random usages and tables.
  it('equals decimal arithmetic at 50 digits for any usage and table', () => {
    const Exact = Decimal.clone({ precision: 50 });
    fc.assert(
      fc.property(
        rates,
        rates,
        fc.integer({ min: 0, max: 1_000_000 }),
        fc.record({ in: tokens, out: tokens, cached: tokens, written: tokens, written1h: tokens }),
        (base, high, above, counts) => {
          const entry = (r: typeof base) => ({
            input_per_mtok_usd: r.in,
            output_per_mtok_usd: r.out,
            cached_read_per_mtok_usd: r.read,
            cache_write_per_mtok_usd: r.write,
            cache_write_1h_per_mtok_usd: r.write1h,
          });
          const long_context = [{ above_prompt_tokens: above, ...entry(high) }];
          const table = tableOf(
            JSON.stringify({ pricing_version: 'R', models: { 'x:y': { ...entry(base), long_context } } }),
          );
          const r = promptTokens(usage(counts)) > above ? high : base;
          const w1h = Math.min(counts.written1h, counts.written);
          const expected = new Exact(counts.in)
            .times(r.in)
            .plus(new Exact(counts.cached).times(r.read))
            .plus(new Exact(counts.written).minus(w1h).times(r.write))
            .plus(new Exact(w1h).times(r.write1h))
            .plus(new Exact(counts.out).times(r.out))
            .dividedBy(1_000_000);
          expect(usd(table, 'x:y', counts)).toBe(expected.toFixed());
        },
      ),
    );
  });
});
