// One model's rates: as written in a file, and resolved with every default filled in (08 §2, §4.2).
import { z } from 'zod';
import { fromPusd, toPusd } from '#protocol/money.ts';
import type { RateSet } from './cost.ts';

const RATE_FORM = /^(0|[1-9]\d*)(\.\d{1,6})?$/;
const RATE_RULE = 'must be a decimal of US dollars per million tokens, from 0 to 1000000, at most 6 fraction digits';
const TOKENS_PER_RATE = 1_000_000n;

/** A decimal string, or a number whose shortest text is a plain decimal. */
const RateSchema = z.preprocess(
  (value) => (typeof value === 'number' ? String(value) : value),
  z
    .string({ error: (issue) => (issue.input === undefined ? 'is required' : RATE_RULE) })
    .refine((rate) => RATE_FORM.test(rate) && toPusd(rate) <= toPusd('1000000'), RATE_RULE),
);

const OptionalRate = RateSchema.optional();
const StepSchema = z.strictObject({
  above_prompt_tokens: z.int({ error: 'must be a whole number of tokens' }).min(0),
  input_per_mtok_usd: OptionalRate,
  output_per_mtok_usd: OptionalRate,
  cached_read_per_mtok_usd: OptionalRate,
  cache_write_per_mtok_usd: OptionalRate,
  cache_write_1h_per_mtok_usd: OptionalRate,
});

export const RawEntrySchema = z.strictObject({
  input_per_mtok_usd: RateSchema,
  output_per_mtok_usd: RateSchema,
  cached_read_per_mtok_usd: OptionalRate,
  cache_write_per_mtok_usd: OptionalRate,
  cache_write_1h_per_mtok_usd: OptionalRate,
  long_context: z
    .array(StepSchema)
    .refine(
      (steps) => steps.every((step, i) => i === 0 || step.above_prompt_tokens > steps[i - 1]!.above_prompt_tokens),
      'above_prompt_tokens must ascend from step to step',
    )
    .optional(),
});
/** As in a file: rates are decimal strings, absent ones take their default. */
export type RawEntry = z.infer<typeof RawEntrySchema>;

export interface ResolvedRates {
  readonly input_per_mtok_usd: string;
  readonly output_per_mtok_usd: string;
  readonly cached_read_per_mtok_usd: string;
  readonly cache_write_per_mtok_usd: string;
  readonly cache_write_1h_per_mtok_usd: string;
}
/** Every rate present, as a decimal string in shortest form. */
export interface ResolvedEntry extends ResolvedRates {
  readonly long_context: readonly ({ readonly above_prompt_tokens: number } & ResolvedRates)[];
}

/** A parsed table file. */
export interface RawTable {
  readonly pricing_version: string;
  readonly currency: 'USD';
  readonly source: string;
  readonly imported_on: string | null;
  readonly models: Readonly<Record<string, RawEntry>>;
}

/** Fills in the defaults. A step inherits what the entry writes; a cache rate written nowhere is the step's own input rate. */
export function resolveEntry(entry: RawEntry): ResolvedEntry {
  return {
    ...resolveRates([entry]),
    long_context: (entry.long_context ?? []).map((step) => ({
      above_prompt_tokens: step.above_prompt_tokens,
      ...resolveRates([step, entry]),
    })),
  };
}

/** Picodollars per token. */
export function rateSet(rates: ResolvedRates): RateSet {
  return {
    input: perToken(rates.input_per_mtok_usd),
    output: perToken(rates.output_per_mtok_usd),
    cached_read: perToken(rates.cached_read_per_mtok_usd),
    cache_write: perToken(rates.cache_write_per_mtok_usd),
    cache_write_1h: perToken(rates.cache_write_1h_per_mtok_usd),
  };
}

type RateField = keyof ResolvedRates;
type WrittenRates = Readonly<Partial<Record<RateField, string | undefined>>>;

function resolveRates(layers: readonly WrittenRates[]): ResolvedRates {
  const written = (field: RateField) => layers.find((layer) => layer[field] !== undefined)?.[field];
  const rate = (field: RateField, otherwise: string) => shortest(written(field) ?? otherwise);
  // A missing discount must never make tokens free, so the plain input rate stands in for a missing cache rate.
  const input = rate('input_per_mtok_usd', '0');
  const write = rate('cache_write_per_mtok_usd', input);
  return {
    input_per_mtok_usd: input,
    output_per_mtok_usd: rate('output_per_mtok_usd', '0'),
    cached_read_per_mtok_usd: rate('cached_read_per_mtok_usd', input),
    cache_write_per_mtok_usd: write,
    cache_write_1h_per_mtok_usd: rate('cache_write_1h_per_mtok_usd', write),
  };
}

function shortest(rate: string): string {
  return fromPusd(toPusd(rate));
}

function perToken(rate: string): bigint {
  return toPusd(rate) / TOKENS_PER_RATE;
}
