// From the data of a public price collection to a table of ours: a pure mapping, run when the table is made (08 §10).
import { Decimal } from 'decimal.js';
import { getProvider } from '#protocol/model.ts';
import type { RawEntry, RawTable } from './price-file.ts';

/** A rate in US dollars per million tokens; a tier holds for the whole call above `start` prompt tokens. */
type SourceRate = number | { readonly base: number; readonly tiers: readonly { start: number; price: number }[] };
type SourceRates = Readonly<Record<string, SourceRate | undefined>>;

/** The entry of the collection for one model at one moment. */
export interface SourceHit {
  /** The rates valid at that moment. */
  readonly model_price: SourceRates;
  /** All rates, with the condition under which each set holds where there are several. */
  readonly model: { readonly prices: SourceRates | readonly SourceVariant[] };
}

interface SourceVariant {
  readonly constraint?: { readonly type: string };
  readonly prices: SourceRates;
}

const FIELDS = {
  input_mtok: 'input_per_mtok_usd',
  output_mtok: 'output_per_mtok_usd',
  cache_read_mtok: 'cached_read_per_mtok_usd',
  cache_write_mtok: 'cache_write_per_mtok_usd',
  cache_write_1h_mtok: 'cache_write_1h_per_mtok_usd',
} as const;
type SourceField = keyof typeof FIELDS;
const SOURCE_FIELDS = Object.keys(FIELDS) as SourceField[];

/** Made-up rates of the scripted provider, one model a class, so that a demo shows money. */
const SCRIPTED: Readonly<Record<string, RawEntry>> = {
  'scripted:deep': toRates(['5', '25', '0.5', '6.25', '10']),
  'scripted:balanced': toRates(['3', '15', '0.3', '3.75', '6']),
  'scripted:fast': toRates(['1', '5', '0.1', '1.25', '2']),
};

/** Rates of models that the collection lacks, with the provider's page that lists them. A row of the collection replaces its row here. */
export const PUBLISHED: Readonly<Record<string, { readonly page: string; readonly entry: RawEntry }>> = {
  'anthropic:claude-haiku-5-5': {
    page: 'https://platform.claude.com/docs/en/models/haiku-5-5/overview',
    entry: {
      ...toRates(['0.1', '0.5', '0.01', '0.125', '0.2']),
      long_context: [{ above_prompt_tokens: 100_000, ...toRates(['0.5', '2.5', '0.05', '0.625', '1']) }],
    },
  },
  'openai:gpt-6.1-sol': {
    page: 'https://developers.openai.com/api/docs/models/gpt-6.1-sol',
    entry: {
      ...toRates(['2', '10', '0.1', '2.5']),
      long_context: [{ above_prompt_tokens: 272_000, ...toRates(['4', '15', '0.2', '5']) }],
    },
  },
};

/**
 * A table with a row for every id that the collection knows or a page lists, and for the scripted models.
 * @param from.date `YYYY-MM-DD`: the table's version and the date of its rates
 * @param from.source package name and version
 * @returns the table and one note per thing a person should know
 */
export function importPrices(from: {
  readonly ids: readonly string[];
  readonly lookup: (provider: string, name: string) => SourceHit | null;
  readonly date: string;
  readonly source: string;
}): { readonly table: RawTable; readonly notes: readonly string[] } {
  const models: Record<string, RawEntry> = { ...SCRIPTED };
  const notes: string[] = [];
  const sources = [from.source];
  for (const id of new Set(from.ids)) {
    if (Object.hasOwn(SCRIPTED, id)) continue;
    const provider = getProvider(id);
    const hit = from.lookup(provider, id.slice(provider.length + 1));
    const published = Object.hasOwn(PUBLISHED, id) ? PUBLISHED[id] : undefined;
    if (hit === null && published !== undefined) {
      models[id] = published.entry;
      sources.push(published.page);
      notes.push(`${id}: rates of ${published.page}`);
      continue;
    }
    if (published !== undefined) notes.push(`${id}: known to ${from.source}; delete its row in PUBLISHED`);
    if (hit === null) {
      notes.push(`${id}: unknown to ${from.source}`);
      continue;
    }
    const { entry, notes: remarks } = importEntry(hit);
    notes.push(...remarks.map((remark) => `${id}: ${remark}`));
    if (entry !== null) models[id] = entry;
  }
  const { date } = from;
  const source = sources.join(', ');
  return { table: { pricing_version: date, currency: 'USD', source, imported_on: date, models }, notes };
}

/** One model's rates in our fields; null when it has no input or output rate. */
export function importEntry(hit: SourceHit): { readonly entry: RawEntry | null; readonly notes: readonly string[] } {
  const notes: string[] = [];
  const source = ratesForAllTimes(hit, notes);
  const dropped = Object.keys(source).filter((key) => !(key in FIELDS) && source[key] !== undefined);
  if (dropped.length > 0) notes.push(`left out ${dropped.join(', ')}`);
  if (source.input_mtok === undefined || source.output_mtok === undefined) {
    return { entry: null, notes: [...notes, 'skipped: no input or no output rate'] };
  }
  const entry: RawEntry = {
    input_per_mtok_usd: formatRate(readBase(source.input_mtok), notes),
    output_per_mtok_usd: formatRate(readBase(source.output_mtok), notes),
  };
  for (const field of SOURCE_FIELDS.slice(2)) {
    const rate = source[field];
    if (rate !== undefined) entry[FIELDS[field]] = formatRate(readBase(rate), notes);
  }
  const steps = buildLongContext(source, notes);
  if (steps.length > 0) entry.long_context = steps;
  return { entry, notes };
}

/** Of rates that change with the hour the most expensive counts, so that a cost is never understated. */
function ratesForAllTimes(hit: SourceHit, notes: string[]): SourceRates {
  const { prices } = hit.model;
  if (!isVariants(prices) || !prices.some((variant) => variant.constraint?.type === 'time_of_date'))
    return hit.model_price;
  notes.push('rates vary by time of day; the most expensive are used for all times');
  const weighRates = (set: SourceRates) => readBase(set.input_mtok ?? 0) + readBase(set.output_mtok ?? 0);
  const hourly = prices.filter((v) => v.constraint === undefined || v.constraint.type === 'time_of_date');
  return hourly.map((variant) => variant.prices).reduce((a, b) => (weighRates(b) > weighRates(a) ? b : a));
}

function isVariants(prices: SourceRates | readonly SourceVariant[]): prices is readonly SourceVariant[] {
  return Array.isArray(prices);
}

/** One step for each distinct start, with the rate that each tiered class has above it. */
function buildLongContext(source: SourceRates, notes: string[]): NonNullable<RawEntry['long_context']> {
  const starts = new Set(SOURCE_FIELDS.flatMap((field) => listTiers(source[field]).map((tier) => tier.start)));
  return [...starts]
    .sort((a, b) => a - b)
    .map((start) => {
      const step: NonNullable<RawEntry['long_context']>[number] = { above_prompt_tokens: start };
      for (const field of SOURCE_FIELDS) {
        const reached = listTiers(source[field]).filter((tier) => tier.start <= start);
        const tier = reached.sort((a, b) => a.start - b.start).at(-1);
        if (tier !== undefined) step[FIELDS[field]] = formatRate(tier.price, notes);
      }
      return step;
    });
}

function listTiers(rate: SourceRate | undefined): readonly { readonly start: number; readonly price: number }[] {
  return rate === undefined || typeof rate === 'number' ? [] : rate.tiers;
}

function readBase(rate: SourceRate): number {
  return typeof rate === 'number' ? rate : rate.base;
}

/** Plain decimal text with at most 6 fraction digits. */
function formatRate(rate: number, notes: string[]): string {
  const exact = new Decimal(rate);
  if (exact.decimalPlaces() <= 6) return exact.toFixed();
  const rounded = exact.toDecimalPlaces(6, Decimal.ROUND_HALF_EVEN);
  notes.push(`${exact.toFixed()} has more than 6 fraction digits, rounded to ${rounded.toFixed()}`);
  return rounded.toFixed();
}

type Rates = readonly [input: string, output: string, read: string, write: string, write1h?: string];

function toRates([input, output, read, write, write1h]: Rates): RawEntry {
  return {
    input_per_mtok_usd: input,
    output_per_mtok_usd: output,
    cached_read_per_mtok_usd: read,
    cache_write_per_mtok_usd: write,
    ...(write1h === undefined ? {} : { cache_write_1h_per_mtok_usd: write1h }),
  };
}
