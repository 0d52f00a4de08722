// Table files, overlays and versions (08 §2, §3).
import { describe, expect, it } from 'vitest';
import { formatPriceTable, parsePriceTable } from '#core/policy/pricing/price-file.ts';
import { ceilingPrice, describeStaleRates, storedPriceTable } from '#core/policy/pricing/price-table.ts';
import { toPusd } from '#protocol/money.ts';
import { STANDARD_TERMS } from '#protocol/usage.ts';
import { priceFileA, priceTableA, tableOf } from '../../support/prices.ts';

const HAIKU = 'anthropic:claude-haiku-4-5';
const SONNET = 'anthropic:claude-sonnet-4-6';

function problems(file: unknown): readonly string[] {
  const parsed = parsePriceTable(typeof file === 'string' ? file : JSON.stringify(file), 'house.yaml');
  return parsed.ok ? [] : parsed.error;
}
const fileWith = (entry: object, head: object = {}) => ({
  pricing_version: 'v1',
  models: { 'x:y': { input_per_mtok_usd: '1', output_per_mtok_usd: '2', ...entry } },
  ...head,
});

describe('parsePriceTable', () => {
  it('reads JSON and YAML, and numbers whose text is a plain decimal', () => {
    const yaml =
      'pricing_version: v1\nmodels:\n  x:y:\n    input_per_mtok_usd: 0.25\n    output_per_mtok_usd: "2.50"\n';
    expect(tableOf(yaml).contentHash).toBe(
      tableOf(JSON.stringify(fileWith({ input_per_mtok_usd: '0.25', output_per_mtok_usd: 2.5 }))).contentHash,
    );
  });

  // Promise 08.16: A broken rate is refused with file, model and field.
  it('names file, model and field of a rate that is over-precise, negative, no number, or too large', () => {
    for (const rate of ['0.0000001', '-1', 'abc', 1e-7, -1, true, '1000000.1', '', null]) {
      const found = problems(fileWith({ cached_read_per_mtok_usd: rate }));
      expect(found, String(rate)).toHaveLength(1);
      expect(found[0]).toMatch(/^house\.yaml: x:y: cached_read_per_mtok_usd: must be a decimal/);
    }
    const nan = 'pricing_version: v1\nmodels:\n  x:y: {input_per_mtok_usd: .nan, output_per_mtok_usd: .inf}\n';
    expect(problems(nan)).toHaveLength(2);
    expect(problems(fileWith({ cached_read_per_mtok_usd: '1000000' }))).toEqual([]);
  });

  // Promise 08.16: Unknown fields and other currencies are refused by name.
  it('names a missing rate, an unknown field, a bad id, a bad version and another currency', () => {
    expect(problems({ pricing_version: 'v1', models: { 'x:y': { output_per_mtok_usd: '1' } } })).toEqual([
      'house.yaml: x:y: input_per_mtok_usd: is required',
    ]);
    expect(problems(fileWith({ cached_per_mtok_usd: '1' }))).toEqual([
      'house.yaml: x:y: cached_per_mtok_usd: unknown key',
    ]);
    expect(problems(fileWith({}, { colour: 'red' }))).toEqual(['house.yaml: colour: unknown key']);
    expect(problems(fileWith({}, { currency: 'EUR' }))[0]).toMatch(/^house\.yaml: currency: must be USD/);
    expect(problems(fileWith({}, { pricing_version: 'a+b' }))[0]).toMatch(/^house\.yaml: pricing_version: /);
    expect(
      problems(fileWith({}, { models: { nocolon: { input_per_mtok_usd: '1', output_per_mtok_usd: '1' } } }))[0],
    ).toMatch(/^house\.yaml: nocolon: must be a model id/);
    for (const day of ['2026-99-99', '2026-02-29', 'today', '2026-1-1'])
      expect(problems(fileWith({}, { imported_on: day }))).toEqual([
        'house.yaml: imported_on: must be a date YYYY-MM-DD',
      ]);
    // A record of a schema passes over such a key.
    expect(problems('{"pricing_version": "v1", "models": {"__proto__": {}}}')[0]).toContain('__proto__');
    expect(problems({ models: {} })[0]).toMatch(/pricing_version: is required/);
    expect(problems('a: [')[0]).toMatch(/^house\.yaml: /);
  });

  // Promise 08.16: Thresholds that do not ascend are refused.
  it('refuses thresholds that do not ascend', () => {
    const steps = [{ above_prompt_tokens: 200 }, { above_prompt_tokens: 100 }];
    expect(problems(fileWith({ long_context: steps }))).toEqual([
      'house.yaml: x:y: long_context: above_prompt_tokens must ascend from step to step',
    ]);
    expect(problems(fileWith({ long_context: [{ above_prompt_tokens: 1, colour: 1 }] }))).toEqual([
      'house.yaml: x:y: long_context.0.colour: unknown key',
    ]);
  });

  it('reports every problem of a file at once', () => {
    expect(
      problems(fileWith({ input_per_mtok_usd: '-1', output_per_mtok_usd: 'abc' }, { currency: 'EUR' })),
    ).toHaveLength(3);
  });
});

describe('resolved entries', () => {
  it('hold every rate in shortest form, cache rates defaulting to input and to the shorter lifetime', () => {
    const table = tableOf(JSON.stringify(fileWith({ input_per_mtok_usd: '3.00', cache_write_per_mtok_usd: '3.750' })));
    expect(table.models['x:y']).toEqual({
      input_per_mtok_usd: '3',
      output_per_mtok_usd: '2',
      cached_read_per_mtok_usd: '3',
      cache_write_per_mtok_usd: '3.75',
      cache_write_1h_per_mtok_usd: '3.75',
      long_context: [],
    });
  });

  it('make the same table again from what was stored', () => {
    const table = tableOf(
      JSON.stringify(fileWith({ long_context: [{ above_prompt_tokens: 5, input_per_mtok_usd: '9' }] })),
    );
    const models = JSON.parse(JSON.stringify(table.models));
    const again = storedPriceTable({ version: 'v1', source: '', models }, { freeProviders: [] });
    expect(again.contentHash).toBe(table.contentHash);
    expect(again.ratesFor('x:y', 6)).toEqual(table.ratesFor('x:y', 6));
  });
});

describe('overlays', () => {
  const overlay = JSON.stringify({
    pricing_version: 'o1',
    models: { [HAIKU]: { input_per_mtok_usd: '2', output_per_mtok_usd: '9' } },
  });

  // Promise 08.15: An overlay replaces whole entries under a joined version and leaves the base as it was.
  it('replace an entry whole under a joined version, and leave every other entry and the base alone', () => {
    const base = priceTableA();
    const before = base.contentHash;
    const table = tableOf(priceFileA(), overlay);
    expect(table.version).toBe('A+o1');
    expect(table.models[HAIKU]?.cached_read_per_mtok_usd).toBe('2');
    expect(table.ratesFor(SONNET, 0)).toEqual(base.ratesFor(SONNET, 0));
    const direct = base.withOverlay('o1', { [HAIKU]: { input_per_mtok_usd: '2', output_per_mtok_usd: '9' } });
    expect([direct.version, direct.contentHash]).toEqual([table.version, table.contentHash]);
    expect([base.version, base.contentHash, base.ratesFor(HAIKU, 0)?.input]).toEqual(['A', before, 1_000_000n]);
    expect(direct.has('ollama:any')).toBe(true);
  });

  it('apply in the given order, later ones winning', () => {
    const later = overlay.replace('"o1"', '"o2"').replace('"2"', '"4"');
    const table = tableOf(priceFileA(), overlay, later);
    expect([table.version, table.ratesFor(HAIKU, 0)?.input]).toEqual(['A+o1+o2', 4_000_000n]);
  });
});

describe('the ceiling of a price', () => {
  const ceiling = (entry: object, prompt_tokens: number) => {
    const terms = { ...STANDARD_TERMS, speed: 'standard' };
    const call = { prompt_tokens, output_tokens: 10, cache: 'none', terms } as const;
    return ceilingPrice(tableOf(JSON.stringify(fileWith(entry))), 'x:y', call);
  };

  it('is that of the prompt up to a step, where one beyond it costs less', () => {
    const cheap = { above_prompt_tokens: 1000, input_per_mtok_usd: '0.1', output_per_mtok_usd: '0.1' };
    expect(ceiling({ long_context: [cheap] }, 2000)).toBe(toPusd('0.00102'));
    expect(ceiling({ long_context: [cheap] }, 1000)).toBe(toPusd('0.00102'));
    const dear = { above_prompt_tokens: 1000, input_per_mtok_usd: '3' };
    expect(ceiling({ long_context: [cheap, { ...dear, above_prompt_tokens: 1500 }] }, 2000)).toBe(toPusd('0.00602'));
  });

  it('counts the prompt as read from a cache, where that costs more', () => {
    expect(ceiling({ cached_read_per_mtok_usd: '4' }, 1000)).toBe(toPusd('0.00402'));
  });
});

describe('versions', () => {
  it('warn when the rates are more than 30 days old, or of a future day', () => {
    const now = Date.parse('2026-05-08T12:00:00Z');
    expect(describeStaleRates('2026-04-08', now)).toBeNull();
    expect(describeStaleRates('2026-04-07', now)).toContain('2026-04-07');
    expect(describeStaleRates(null, now)).toBeNull();
    expect(describeStaleRates('2026-05-09', now)).toBeNull();
    expect(describeStaleRates('2026-05-10', now)).toContain('2026-05-10, which is in the future');
  });
});

describe('formatPriceTable', () => {
  it('writes a file that reads back equal and does not depend on the order of the models', () => {
    const parsed = parsePriceTable(priceFileA(), 'a');
    if (!parsed.ok) throw new Error(parsed.error.join());
    const { models } = parsed.value;
    const reversed = Object.fromEntries(Object.entries(models).reverse());
    const text = formatPriceTable(parsed.value);
    expect(formatPriceTable({ ...parsed.value, models: reversed })).toBe(text);
    expect(parsePriceTable(text, 'a')).toEqual(parsed);
  });
});
