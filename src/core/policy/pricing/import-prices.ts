// Converts a public price collection to this server's price table; pure, run when the table is generated (08 §10).
import { Decimal } from 'decimal.js';
import { getProvider } from '#protocol/model.ts';
import type { RawEntry, RawTable } from './price-file.ts';
import { buildPriceTable } from './price-table.ts';
import { PUBLISHED, SCRIPTED } from './published-prices.ts';

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

/**
 * A table with a row for every id that a provider's page or else the collection lists, and for the scripted models.
 * @param from.date `YYYY-MM-DD`: the date of its rates; its version is the date and a digest of the content
 * @param from.source package name and version
 * @param from.page where the collection is published
 * @returns the table, and notes for the operator
 */
export function importPrices(from: {
  readonly ids: readonly string[];
  readonly lookup: (provider: string, name: string) => SourceHit | null;
  readonly date: string;
  readonly source: string;
  readonly page: string;
}): { readonly table: RawTable; readonly notes: readonly string[] } {
  const models: Record<string, RawEntry> = { ...SCRIPTED };
  const notes: string[] = [];
  const collected = { url: from.page, read_on: from.date };
  for (const id of new Set(from.ids)) {
    if (Object.hasOwn(SCRIPTED, id)) continue;
    if (Object.hasOwn(PUBLISHED, id)) {
      models[id] = PUBLISHED[id]!;
      continue;
    }
    const provider = getProvider(id);
    const hit = from.lookup(provider, id.slice(provider.length + 1));
    if (hit === null) {
      notes.push(`${id}: unknown to ${from.source}`);
      continue;
    }
    const { entry, notes: remarks } = importEntry(hit);
    notes.push(...remarks.map((remark) => `${id}: ${remark}`));
    if (entry !== null) models[id] = { source: collected, ...entry };
  }
  const { date } = from;
  const source = `the providers' pages, ${from.source}`;
  const table: RawTable = { pricing_version: date, currency: 'USD', source, imported_on: date, models };
  return { table: { ...table, pricing_version: `${date}-${digestContent(table)}` }, notes };
}

const DIGEST_LENGTH = 8;

/** No two contents are shipped under one version: a data folder that has stored the first would refuse the second. */
function digestContent(table: RawTable): string {
  return buildPriceTable(table, [], { freeProviders: [] }).contentHash.slice(0, DIGEST_LENGTH);
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

/** Rates that change with the time of day count as the most expensive one, so that a cost is never understated. */
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
  if (rate === undefined || typeof rate === 'number') return [];
  return rate.tiers;
}

function readBase(rate: SourceRate): number {
  if (typeof rate === 'number') return rate;
  return rate.base;
}

/** Plain decimal text with at most 6 fraction digits. */
function formatRate(rate: number, notes: string[]): string {
  const exact = new Decimal(rate);
  if (exact.decimalPlaces() <= 6) return exact.toFixed();
  const rounded = exact.toDecimalPlaces(6, Decimal.ROUND_HALF_EVEN);
  notes.push(`${exact.toFixed()} has more than 6 fraction digits, rounded to ${rounded.toFixed()}`);
  return rounded.toFixed();
}
