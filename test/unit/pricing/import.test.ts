// Making the shipped price table from the public collection, and checking it against that collection (08 §10).
import fs from 'node:fs';
import { calcPrice, findProvider } from '@pydantic/genai-prices';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { parse } from 'yaml';
import { importEntry, importPrices, type SourceHit } from '#core/policy/pricing/import-prices.ts';
import { formatPriceTable, parsePriceTable } from '#core/policy/pricing/price-file.ts';
import { PUBLISHED } from '#core/policy/pricing/published-prices.ts';
import { fromPusd } from '#protocol/money.ts';
import { NO_TOKENS } from '#protocol/usage.ts';
import { tableOf } from '../../support/prices.ts';

const hit = (prices: SourceHit['model_price']): SourceHit => ({ model_price: prices, model: { prices } });
const shipped = fs.readFileSync(new URL('../../../config/prices.json', import.meta.url), 'utf8');
const at = new Date(JSON.parse(shipped).imported_on);
const lookup = (providerId: string, name: string) =>
  findProvider({ providerId })
    ? calcPrice({ input_tokens: 0, output_tokens: 0 }, name, { providerId, timestamp: at })
    : null;

describe('importEntry', () => {
  it('maps the five rates, drops other keys with a note, and skips a model without input or output rate', () => {
    const { entry, notes } = importEntry(
      hit({
        input_mtok: 3,
        output_mtok: 15,
        cache_read_mtok: 0.3,
        cache_write_mtok: 3.75,
        cache_write_1h_mtok: 6,
        x_kcount: 1,
      }),
    );
    expect(entry).toEqual({
      input_per_mtok_usd: '3',
      output_per_mtok_usd: '15',
      cached_read_per_mtok_usd: '0.3',
      cache_write_per_mtok_usd: '3.75',
      cache_write_1h_per_mtok_usd: '6',
    });
    expect(notes).toEqual(['left out x_kcount']);
    expect(importEntry(hit({ input_mtok: 3 })).entry).toBeNull();
  });

  it('joins the tiers of all classes into steps, a class keeping its last reached tier', () => {
    const { entry } = importEntry(
      hit({
        input_mtok: {
          base: 1,
          tiers: [
            { start: 100, price: 2 },
            { start: 200, price: 3 },
          ],
        },
        output_mtok: { base: 5, tiers: [{ start: 100, price: 6 }] },
        cache_read_mtok: 0.1,
      }),
    );
    expect(entry?.long_context).toEqual([
      { above_prompt_tokens: 100, input_per_mtok_usd: '2', output_per_mtok_usd: '6' },
      { above_prompt_tokens: 200, input_per_mtok_usd: '3', output_per_mtok_usd: '6' },
    ]);
  });

  it('takes the most expensive rates of a day for all times, with a note', () => {
    const cheap = { input_mtok: 1, output_mtok: 2 };
    const dear = { input_mtok: 2, output_mtok: 4 };
    const prices = [{ prices: cheap }, { constraint: { type: 'time_of_date' }, prices: dear }];
    const { entry, notes } = importEntry({ model_price: cheap, model: { prices } });
    expect(entry?.output_per_mtok_usd).toBe('4');
    expect(notes[0]).toContain('time of day');
    const dated = [{ prices: cheap }, { constraint: { type: 'start_date' }, prices: dear }];
    expect(importEntry({ model_price: cheap, model: { prices: dated } }).entry?.output_per_mtok_usd).toBe('2');
  });

  it('writes plain decimals, rounding more than six fraction digits half to even with a note', () => {
    const { entry, notes } = importEntry(hit({ input_mtok: 1e-7, output_mtok: 0.0000025, cache_read_mtok: 0.000001 }));
    expect(entry).toMatchObject({
      input_per_mtok_usd: '0',
      output_per_mtok_usd: '0.000002',
      cached_read_per_mtok_usd: '0.000001',
    });
    expect(notes).toHaveLength(2);
  });
});

describe('importPrices', () => {
  const [id, entry] = Object.entries(PUBLISHED)[0]!;
  const page = 'https://collection.example';
  const from = { ids: [id, 'openai:nope'], date: '2026-01-01', source: 'the collection', page };

  it("takes the rates of a provider's page, whatever the collection has", () => {
    const { table } = importPrices({ ...from, lookup: () => hit({ input_mtok: 7, output_mtok: 9 }) });
    expect(table.models[id]).toEqual(entry);
  });

  it('takes the rates of the collection for other models, with its page and day, and none for an unknown one', () => {
    const rates = hit({ input_mtok: 7, output_mtok: 9 });
    const lookup = (_: string, name: string) => (name === 'nope' ? null : rates);
    const { table, notes } = importPrices({ ...from, ids: ['openai:other', 'openai:nope'], lookup });
    expect(table.models['openai:other']).toEqual({
      source: { url: page, read_on: '2026-01-01' },
      input_per_mtok_usd: '7',
      output_per_mtok_usd: '9',
    });
    expect(table.models['openai:nope']).toBeUndefined();
    expect(notes).toEqual(['openai:nope: unknown to the collection']);
  });

  it('names a table by its day and its content, so that other rates of one day are another version', () => {
    const nameTable = (output_mtok: number, date = from.date) =>
      importPrices({ ...from, date, ids: ['openai:other'], lookup: () => hit({ input_mtok: 7, output_mtok }) }).table
        .pricing_version;
    expect(nameTable(9)).toMatch(/^2026-01-01-[0-9a-f]{8}$/);
    expect(nameTable(9)).toBe(nameTable(9));
    expect(nameTable(9.5)).not.toBe(nameTable(9));
    expect(nameTable(9, '2026-01-02').slice(10)).toBe(nameTable(9).slice(10));
  });
});

describe('the shipped table', () => {
  const registry = parse(fs.readFileSync(new URL('../../../config/registry.yaml', import.meta.url), 'utf8'));
  const ids = Object.entries<{ pricing_id?: string }>(registry.models).map(([id, model]) => model.pricing_id ?? id);
  const parsed = parsePriceTable(shipped, 'config/prices.json');
  if (!parsed.ok) throw new Error(parsed.error.join('\n'));
  const { imported_on, source, models } = parsed.value;
  const [, collection = ''] = source.split(', ');
  const page = `https://github.com/pydantic/genai-prices/releases/tag/v${collection.split('@').at(-1)}`;
  const again = () => importPrices({ ids, lookup, date: imported_on!, source: collection, page }).table;

  // Promise 22.10: every entry of the shipped price table has page and day.
  it('has the page and the day of every figure but the made-up ones', () => {
    const real = Object.entries(models).filter(([id]) => !id.startsWith('scripted:'));
    expect(real.filter(([, entry]) => entry.source === undefined).map(([id]) => id)).toEqual([]);
    const apart = real.filter(([, { fees, multipliers }]) => fees !== undefined || multipliers !== undefined);
    expect(apart.length).toBeGreaterThan(0);
    for (const [id, entry] of apart) {
      expect([id, entry.fees === undefined]).toEqual([id, entry.fees_source === undefined]);
      expect([id, entry.multipliers === undefined]).toEqual([id, entry.multipliers_source === undefined]);
    }
    for (const [, entry] of real)
      expect(Date.parse(entry.source!.read_on)).toBeLessThanOrEqual(Date.parse(imported_on!));
  });

  it('has a row for every registered model; run `npm run gen:prices` if not', () => {
    expect(ids.filter((id) => !tableOf(shipped).has(id))).toEqual([]);
  });

  afterEach(() => vi.unstubAllGlobals());

  // Promise 08.20: The price import gives the same bytes twice without a network.
  it('is byte for byte what two imports give without a network; run `npm run gen:prices` if not', () => {
    vi.stubGlobal('fetch', () => {
      throw new Error('a price import must not use the network');
    });
    expect(formatPriceTable(again())).toBe(shipped);
    expect(formatPriceTable(again())).toBe(shipped);
  });

  // Promise 08.20: Imported rates cost what the collection itself computes.
  it('costs what the collection itself computes, for a small, a cached and a very long call', () => {
    const table = tableOf(shipped);
    const imported = Object.keys(table.models).filter((id) => !id.startsWith('scripted:') && !(id in PUBLISHED));
    expect(imported.length).toBeGreaterThan(5);
    for (const id of imported) {
      const [providerId = '', ...name] = id.split(':');
      const writes1h = parsed.value.models[id]?.cache_write_1h_per_mtok_usd !== undefined;
      for (const usage of [
        { input: 1200, cached: 0, written: 0, written1h: 0, output: 345 },
        { input: 800, cached: 50_000, written: 3000, written1h: writes1h ? 1000 : 0, output: 2000 },
        { input: 900_000, cached: 400_000, written: 100_000, written1h: 0, output: 9000 },
      ]) {
        const theirs = calcPrice(
          {
            input_tokens: usage.input + usage.cached + usage.written,
            cache_read_tokens: usage.cached,
            cache_write_tokens: usage.written,
            ...(usage.written1h > 0 ? { cache_write_1h_tokens: usage.written1h } : {}),
            output_tokens: usage.output,
          },
          name.join(':'),
          { providerId, timestamp: at },
        )!.total_price;
        const ours = table.cost(id, {
          ...NO_TOKENS,
          input_tokens: usage.input,
          cached_input_tokens: usage.cached,
          cache_creation_input_tokens: usage.written,
          cache_creation_1h_input_tokens: usage.written1h,
          output_tokens: usage.output,
        });
        expect(ours.priced).toBe(true);
        expect(Math.abs(Number(fromPusd(ours.cost_pusd)) / theirs - 1), id).toBeLessThan(1e-9);
      }
    }
  });

  it.each([
    ['anthropic:claude-haiku-5-5', 10_000, '0.00179'],
    ['anthropic:claude-haiku-5-5', 110_000, '0.05895'],
    ['anthropic:claude-sonnet-5-5', 10_000, '0.0354'],
    ['anthropic:claude-opus-5-5', 10_000, '0.0708'],
    ['anthropic:claude-fable-5-1', 10_000, '0.176'],
    ['openai:gpt-6.2-sol', 10_000, '0.0354'],
    ['openai:gpt-6.2-sol', 282_000, '1.1538'],
    ['openai:gpt-6-luna', 282_000, '0.05773'],
  ])('%s costs the rates of its page, with %i fresh tokens', (id, input_tokens, cost) => {
    const usage = { cached_input_tokens: 4000, cache_creation_input_tokens: 2000, output_tokens: 1000 };
    const { cost_pusd } = tableOf(shipped).cost(id, { ...NO_TOKENS, ...usage, input_tokens });
    expect(fromPusd(cost_pusd)).toBe(cost);
  });
});
