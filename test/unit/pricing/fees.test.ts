// Fees and multipliers of a price table, and the bill of a call by them (08 §12).
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { priceBill } from '#core/policy/pricing/call-bill.ts';
import { parsePriceTable } from '#core/policy/pricing/price-file.ts';
import { fromPusd } from '#protocol/money.ts';
import { NO_TOKENS, STANDARD_TERMS, type Terms } from '#protocol/usage.ts';
import { tableOf } from '../../support/prices.ts';

const entry = (more: object) => ({ input_per_mtok_usd: '2', output_per_mtok_usd: '10', ...more });
const file = (more: object) => JSON.stringify({ pricing_version: 'v1', models: { 'x:y': entry(more) } });
function problems(more: object): readonly string[] {
  const parsed = parsePriceTable(file(more), 'house.json');
  return parsed.ok ? [] : parsed.error;
}

const MULTIPLIERS = {
  service_tier: { flex: '0.5', priority: '2' },
  speed: { fast: '6' },
  inference_geo: { us: '1.1' },
};

interface Asked {
  readonly uses?: Readonly<Record<string, number>>;
  readonly terms?: Partial<Terms>;
  readonly model?: string;
}
function bill(more: object, { uses = {}, terms = {}, model = 'x:y' }: Asked) {
  const usage = { ...NO_TOKENS, input_tokens: 1000, output_tokens: 100 };
  const priced = priceBill(tableOf(file(more)), {
    model,
    rounds: [{ model, usage, billed: true }],
    uses: new Map(Object.entries(uses)),
    terms: { ...STANDARD_TERMS, ...terms },
  });
  return {
    tokens: fromPusd(priced.tokens),
    fees: fromPusd(priced.fees),
    surcharge: fromPusd(priced.surcharge),
    unknown: priced.rounds[0]!.surcharge_unknown,
    unpriced: priced.lines.filter(({ cost }) => cost === null).map(({ tool }) => tool),
  };
}

describe('a table with fees and multipliers', () => {
  it('is refused for a fee of an unknown tool, a bad amount, or a multiplier that is 0 or too precise', () => {
    expect(problems({ fees: { web_serach: '10' } })[0]).toMatch(/^house\.json: x:y: fees\.web_serach: unknown key/);
    expect(problems({ fees: { web_search: '-1' } })[0]).toMatch(/^house\.json: x:y: fees\.web_search: must be/);
    for (const rate of ['0', '-1', 'abc', '1e3', '0.0000001', '1001'])
      expect(problems({ multipliers: { speed: { fast: rate } } })[0], rate).toMatch(
        /^house\.json: x:y: multipliers\.speed\.fast: must be a decimal/,
      );
    expect(problems({ multipliers: { colour: { red: '2' } } })[0]).toMatch(/unknown key/);
    expect(problems({ fees: { web_search: '10', web_fetch: 0 }, multipliers: MULTIPLIERS })).toEqual([]);
  });

  it('is refused where multipliers that may meet make a fraction of a picodollar of any rate, steps included', () => {
    const multipliers = { service_tier: { flex: '0.5' }, inference_geo: { us: '1.1' } };
    // 0.00001 USD per million are 10 picodollars a token: 5 by one, 11 by the other, 5.5 by both.
    expect(problems({ input_per_mtok_usd: '0.00001', multipliers })).toEqual([
      'house.json: x:y: multipliers: 0.5 × 1.1 × 0.00001 is no whole number of picodollars per token',
    ]);
    const long_context = [{ above_prompt_tokens: 5, output_per_mtok_usd: '0.000001' }];
    expect(problems({ long_context, multipliers: { speed: { fast: '2.5' } } })).toEqual([
      'house.json: x:y: multipliers: 2.5 × 0.000001 is no whole number of picodollars per token',
    ]);
    expect(problems({ input_per_mtok_usd: '0.00002', multipliers })).toEqual([]);
  });

  it('keeps its hash without them, and changes it by them', () => {
    const hash = (more: object) => tableOf(file(more)).contentHash;
    expect(hash({ fees: {}, multipliers: { speed: {} } })).toBe(hash({}));
    expect(hash({ fees: { web_search: '10' } })).not.toBe(hash({}));
    expect(hash({ fees: { web_search: '10.00' } })).toBe(hash({ fees: { web_search: 10 } }));
  });
});

describe('the bill of a call', () => {
  it('adds three searches at 10 USD per thousand beside the tokens, which alone are multiplied', () => {
    expect(
      bill(
        { fees: { web_search: '10' }, multipliers: MULTIPLIERS },
        { uses: { web_search: 3 }, terms: { speed: 'fast' } },
      ),
    ).toEqual({ tokens: '0.003', fees: '0.03', surcharge: '0.015', unknown: false, unpriced: [] });
  });

  it('names tools without a fee and leaves them out', () => {
    const found = bill({ fees: { web_search: '10' } }, { uses: { web_search: 1, code_execution: 2, constructor: 1 } });
    expect(found).toMatchObject({ fees: '0.01', unpriced: ['code_execution', 'constructor'] });
  });

  it('multiplies terms that meet by each other, and a discount is negative', () => {
    const terms = { service_tier: 'flex', inference_geo: 'us' };
    expect(bill({ multipliers: MULTIPLIERS }, { terms })).toMatchObject({ surcharge: '-0.00135', unknown: false });
  });

  it('takes the standard values silently, and any other value without a multiplier is unknown', () => {
    for (const value of ['standard', 'default', 'auto', 'on_demand', 'global', 'not_available'])
      expect(bill({}, { terms: { service_tier: value } }), value).toMatchObject({ surcharge: '0', unknown: false });
    for (const value of ['flex', 'scale', 'batch', 'constructor'])
      expect(bill({}, { terms: { service_tier: value } }), value).toMatchObject({ surcharge: '0', unknown: true });
    expect(bill({ multipliers: { inference_geo: { global: '0.9' } } }, { terms: { inference_geo: 'global' } })).toEqual(
      expect.objectContaining({ surcharge: '-0.0003', unknown: false }),
    );
  });

  it('knows the surcharge of what costs nothing', () => {
    const terms = { service_tier: 'flex' };
    expect(bill({ input_per_mtok_usd: 0, output_per_mtok_usd: 0 }, { terms })).toMatchObject({ unknown: false });
    expect(bill({}, { terms, model: 'ollama:any' })).toMatchObject({ tokens: '0', unknown: false });
  });

  it('is exact for every accepted table: the surcharge of a sum is the sum of the surcharges of its tokens', () => {
    const rates = fc.integer({ min: 1, max: 3_000_000 }).map((n) => fromPusd(BigInt(n) * 100_000_000n));
    const multipliers = fc.integer({ min: 1, max: 900 }).map((n) => fromPusd(BigInt(n) * 10_000_000_000n));
    const counts = fc.record({ input_tokens: fc.nat(1_000_000), output_tokens: fc.nat(1_000_000) });
    fc.assert(
      fc.property(rates, multipliers, counts, (rate, fast, tokens) => {
        const table = tableOf(file({ input_per_mtok_usd: rate, multipliers: { speed: { fast } } }));
        const price = (usage: Partial<typeof NO_TOKENS>) =>
          priceBill(table, {
            model: 'x:y',
            rounds: [{ model: 'x:y', usage: { ...NO_TOKENS, ...usage }, billed: true }],
            uses: new Map(),
            terms: { ...STANDARD_TERMS, speed: 'fast' },
          }).surcharge;
        const each = [{ input_tokens: 1 }, { output_tokens: 1 }].map(price);
        expect(price(tokens)).toBe(each[0]! * BigInt(tokens.input_tokens) + each[1]! * BigInt(tokens.output_tokens));
      }),
    );
  });
});
