// Parses a price table file with one line per problem, and writes it in a stable form (08 §2, §10).
import { z } from 'zod';
import { MODEL_ID_PATTERN } from '#protocol/model.ts';
import { fromPusd, type Pusd, toPusd } from '#protocol/money.ts';
import { err, ok, type Result } from '#protocol/result.ts';
import type { TokenUsage } from '#protocol/usage.ts';
import { describeIssues } from '../parsing/plain-issue.ts';
import { type Limits, OWN_FILE } from '../parsing/text-limits.ts';
import { readYaml } from '../parsing/yaml.ts';
import {
  type Fees,
  FeesSchema,
  findFraction,
  type Multipliers,
  MultipliersSchema,
  resolveFees,
  resolveMultipliers,
} from './fees.ts';

// Computes the cost of tokens: exact integer arithmetic over token classes (08 §4, §7).

/** Picodollars per token of each class. */
export interface RateSet {
  readonly input: bigint;
  readonly output: bigint;
  readonly cached_read: bigint;
  readonly cache_write: bigint;
  readonly cache_write_1h: bigint;
}

export const ZERO_RATES: RateSet = { input: 0n, output: 0n, cached_read: 0n, cache_write: 0n, cache_write_1h: 0n };

/** Token sums of calls that one rate set prices. */
export interface TokenSums {
  readonly input_tokens: bigint;
  readonly cached_input_tokens: bigint;
  readonly cache_creation_input_tokens: bigint;
  /** Per call at most its cache writes. */
  readonly billed_1h_tokens: bigint;
  readonly output_tokens: bigint;
}

/** The formula of 08 §4.1. It is linear: the cost of sums is exactly the sum of the costs of the single calls. */
export function priceTokenSums(rates: RateSet, tokens: TokenSums): Pusd {
  return (tokens.input_tokens * rates.input +
    tokens.cached_input_tokens * rates.cached_read +
    (tokens.cache_creation_input_tokens - tokens.billed_1h_tokens) * rates.cache_write +
    tokens.billed_1h_tokens * rates.cache_write_1h +
    tokens.output_tokens * rates.output) as Pusd;
}

/** The cost of one call. Throws `RangeError` for a negative or fractional count; 1 h writes are clamped to the count of all writes. */
export function priceUsage(rates: RateSet, usage: TokenUsage): Pusd {
  const written = toCount(usage.cache_creation_input_tokens);
  return priceTokenSums(rates, {
    input_tokens: toCount(usage.input_tokens),
    cached_input_tokens: toCount(usage.cached_input_tokens),
    cache_creation_input_tokens: written,
    billed_1h_tokens: takeSmaller(toCount(usage.cache_creation_1h_input_tokens), written),
    output_tokens: toCount(usage.output_tokens),
  });
}

/** The rates for a prompt of this size: the highest step that lies below it replaces the base for the whole call. */
export function selectRateSet(
  base: RateSet,
  steps: readonly { readonly above: number; readonly rates: RateSet }[],
  promptTokens: number,
): RateSet {
  return steps.findLast((step) => step.above < promptTokens)?.rates ?? base;
}

function toCount(tokens: number): bigint {
  if (tokens < 0) throw new RangeError(`negative token count: ${tokens}`);
  return BigInt(tokens);
}

function takeSmaller(a: bigint, b: bigint): bigint {
  if (a < b) return a;
  return b;
}

// One model's rates: as written in a file, and resolved with every default filled in (08 §2, §4.2).

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

const DaySchema = z.iso.date({ error: 'must be a date YYYY-MM-DD' });
/** Where an entry's figures were read, and on which day. It is no part of the entry's content. */
const EntrySourceSchema = z.strictObject({
  url: z.url({ protocol: /^https?$/, error: 'must be an http or https URL' }),
  read_on: DaySchema,
});

const PlainEntrySchema = z.strictObject({
  source: EntrySourceSchema.optional(),
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
  fees: FeesSchema.optional(),
  fees_source: EntrySourceSchema.optional(),
  multipliers: MultipliersSchema.optional(),
  multipliers_source: EntrySourceSchema.optional(),
});
const RawEntrySchema = PlainEntrySchema.superRefine((entry, context) => {
  if (entry.multipliers === undefined || !PlainEntrySchema.safeParse(entry).success) return;
  const { long_context, ...base } = resolveEntry(entry);
  const rates = [base, ...long_context].flatMap((set) => RATE_FIELDS.map((field) => set[field]));
  const fraction = findFraction(entry.multipliers, rates);
  if (fraction === null) return;
  const message = `${fraction} is no whole number of picodollars per token`;
  context.addIssue({ code: 'custom', path: ['multipliers'], message });
});
/** As in a file: rates are decimal strings, absent ones take their default. */
export type RawEntry = z.infer<typeof PlainEntrySchema>;

const RATE_FIELDS = [
  'input_per_mtok_usd',
  'output_per_mtok_usd',
  'cached_read_per_mtok_usd',
  'cache_write_per_mtok_usd',
  'cache_write_1h_per_mtok_usd',
] as const;
interface ResolvedRates {
  readonly input_per_mtok_usd: string;
  readonly output_per_mtok_usd: string;
  readonly cached_read_per_mtok_usd: string;
  readonly cache_write_per_mtok_usd: string;
  readonly cache_write_1h_per_mtok_usd: string;
}
/** Every rate present, as a decimal string in shortest form. */
export interface ResolvedEntry extends ResolvedRates {
  readonly long_context: readonly ({ readonly above_prompt_tokens: number } & ResolvedRates)[];
  /** USD per thousand uses by tool. Absent where there are none, likewise below. */
  readonly fees?: Fees;
  readonly multipliers?: Multipliers;
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
  const fees = resolveFees(entry.fees);
  const multipliers = resolveMultipliers(entry.multipliers);
  return {
    ...resolveRates([entry]),
    ...(fees !== undefined && { fees }),
    ...(multipliers !== undefined && { multipliers }),
    long_context: (entry.long_context ?? []).map((step) => ({
      above_prompt_tokens: step.above_prompt_tokens,
      ...resolveRates([step, entry]),
    })),
  };
}

/** Picodollars per token. */
export function toRateSet(rates: ResolvedRates): RateSet {
  return {
    input: toPerToken(rates.input_per_mtok_usd),
    output: toPerToken(rates.output_per_mtok_usd),
    cached_read: toPerToken(rates.cached_read_per_mtok_usd),
    cache_write: toPerToken(rates.cache_write_per_mtok_usd),
    cache_write_1h: toPerToken(rates.cache_write_1h_per_mtok_usd),
  };
}

type RateField = keyof ResolvedRates;
type WrittenRates = Readonly<Partial<Record<RateField, string | undefined>>>;

function resolveRates(layers: readonly WrittenRates[]): ResolvedRates {
  const findWritten = (field: RateField) => layers.find((layer) => layer[field] !== undefined)?.[field];
  const resolveRate = (field: RateField, otherwise: string) => shortenRate(findWritten(field) ?? otherwise);
  // A missing discount must never make tokens free, so the plain input rate replaces a missing cache rate.
  const input = resolveRate('input_per_mtok_usd', '0');
  const write = resolveRate('cache_write_per_mtok_usd', input);
  return {
    input_per_mtok_usd: input,
    output_per_mtok_usd: resolveRate('output_per_mtok_usd', '0'),
    cached_read_per_mtok_usd: resolveRate('cached_read_per_mtok_usd', input),
    cache_write_per_mtok_usd: write,
    cache_write_1h_per_mtok_usd: resolveRate('cache_write_1h_per_mtok_usd', write),
  };
}

function shortenRate(rate: string): string {
  return fromPusd(toPusd(rate));
}

function toPerToken(rate: string): bigint {
  return toPusd(rate) / TOKENS_PER_RATE;
}

const FileSchema = z.strictObject({
  pricing_version: z
    .string({ error: 'is required and must be a string' })
    .regex(/^[A-Za-z0-9._-]{1,64}$/, 'must be 1 to 64 of A-Z a-z 0-9 . _ -'),
  currency: z.literal('USD', { error: 'must be USD; enter other currencies at a USD rate of your own' }).default('USD'),
  source: z.string().default(''),
  imported_on: DaySchema.nullable().default(null),
  models: z.record(z.string().regex(MODEL_ID_PATTERN, 'must be a model id <provider>:<name>'), RawEntrySchema, {
    error: 'is required and must be a map of model ids',
  }),
});

/**
 * Reads a table from JSON or YAML, all or nothing.
 * @param path only named in the problems, each of which is `<path>: <model>: <field>: <reason>`
 */
export function parsePriceTable(text: string, path: string, limits: Limits = OWN_FILE): Result<RawTable, string[]> {
  const yaml = readYaml(text, limits);
  if (!yaml.ok) return err([`${path}: ${yaml.error}`]);
  if (hasPrototypeKey(yaml.value)) return err([`${path}: __proto__ is no name`]);
  const parsed = FileSchema.safeParse(yaml.value);
  if (parsed.success) return ok(parsed.data);
  return err(describeIssues(parsed.error).map((issue) => `${path}: ${formatIssuePlace(issue.path)}${issue.message}`));
}

/** A schema passes over an entry with this key, and the rest would count as the whole table. */
function hasPrototypeKey(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return Object.hasOwn(value, '__proto__') || Object.values(value).some(hasPrototypeKey);
}

/** The file's text: models sorted by id, fields in their documented order, defaults left out. */
export function formatPriceTable(table: RawTable): string {
  const models: Record<string, RawEntry> = {};
  for (const id of Object.keys(table.models).sort()) models[id] = table.models[id]!;
  const { pricing_version, currency, source, imported_on } = table;
  return `${JSON.stringify({ pricing_version, currency, source, imported_on, models }, null, 2)}\n`;
}

// `models`, id, field, ... -> `id: field: `; other fields by their dotted path.
function formatIssuePlace(path: readonly PropertyKey[]): string {
  const [first, model, ...field] = path.map(String);
  if (first !== 'models' || model === undefined) return endWithColon(path.map(String).join('.'));
  return `${endWithColon(model)}${endWithColon(field.join('.'))}`;
}

function endWithColon(name: string): string {
  if (name === '') return '';
  return `${name}: `;
}
