// The price table: files parsed and checked, overlays merged, rates looked up as integers (08 §2, §3, §5, §8).
import { getProvider, type ModelEntry } from '#protocol/model.ts';
import { type Pusd, ZERO_PUSD } from '#protocol/money.ts';
import { canonicalJson, sha256Hex } from '#protocol/text/canonical-json.ts';
import { NO_TOKENS, promptTokens, type TokenUsage } from '#protocol/usage.ts';
import {
  priceUsage,
  type RateSet,
  type RawEntry,
  type RawTable,
  type ResolvedEntry,
  resolveEntry,
  selectRateSet,
  toRateSet,
  ZERO_RATES,
} from './price-file.ts';

// Versions of a price table: names, content hashes, and what a start must warn about (08 §2, §3).

const STALE_DAYS = 90;
const DAY_MS = 86_400_000;

/** Opaque to every reader: compared and joined on, never parsed. */
function overlayVersion(base: string, overlay: string): string {
  return `${base}+${overlay}`;
}

/** SHA-256 of the canonical JSON of the resolved entries. */
function contentHash(models: Readonly<Record<string, ResolvedEntry>>): string {
  return sha256Hex(canonicalJson(models));
}

/**
 * The startup warning for rates older than 90 days, or null.
 * @param now Unix milliseconds
 */
export function describeStaleRates(importedOn: string | null, now: number): string | null {
  if (importedOn === null) return null;
  const days = Math.floor((now - Date.parse(importedOn)) / DAY_MS);
  if (days > STALE_DAYS) return `the price table's rates are ${days} days old (imported on ${importedOn})`;
  return null;
}

export interface PriceTable {
  readonly version: string;
  readonly contentHash: string;
  readonly source: string;
  /** Date of the base table's rates, `YYYY-MM-DD`. */
  readonly importedOn: string | null;
  /** Every entry resolved, rates as decimal strings, by model id: for storage and for people. */
  readonly models: Readonly<Record<string, ResolvedEntry>>;
  /** True also for a model of a free provider. */
  has(model: string): boolean;
  /** Rates in picodollars per token for a prompt of this size; null for an unknown model. */
  ratesFor(model: string, promptTokens: number): RateSet | null;
  /** Throws `RangeError` for counts that are not whole and non-negative, never for an unknown model. */
  cost(model: string, usage: TokenUsage): { readonly cost_pusd: Pusd; readonly priced: boolean };
  /** A new table `old+version` whose entries for these ids replace the old ones whole. */
  withOverlay(version: string, models: Readonly<Record<string, RawEntry>>): PriceTable;
}

interface Rates {
  readonly base: RateSet;
  /** Ascending. */
  readonly steps: readonly { readonly above: number; readonly rates: RateSet }[];
}

/**
 * The active table: a base with its overlays in order.
 * @param options.freeProviders providers whose models cost nothing unless an entry has rates for them
 */
export function buildPriceTable(
  base: RawTable,
  overlays: readonly RawTable[],
  options: { readonly freeProviders: readonly string[] },
): PriceTable {
  const head = {
    version: base.pricing_version,
    source: base.source,
    importedOn: base.imported_on,
    freeProviders: options.freeProviders,
  };
  return overlays.reduce(
    (table, overlay) => table.withOverlay(overlay.pricing_version, overlay.models),
    createTable(head, resolveAll(base.models)),
  );
}

/** A table made again from what `price_versions` holds. */
export function storedPriceTable(
  stored: {
    readonly version: string;
    readonly source: string;
    readonly models: Readonly<Record<string, ResolvedEntry>>;
  },
  options: { readonly freeProviders: readonly string[] },
): PriceTable {
  const { version, source, models } = stored;
  return createTable({ version, source, importedOn: null, freeProviders: options.freeProviders }, models);
}

interface TableHead {
  readonly version: string;
  readonly source: string;
  readonly importedOn: string | null;
  readonly freeProviders: readonly string[];
}

function createTable(head: TableHead, models: Readonly<Record<string, ResolvedEntry>>): PriceTable {
  const rates = new Map<string, Rates>();
  for (const [id, entry] of Object.entries(models)) {
    rates.set(id, {
      base: toRateSet(entry),
      steps: entry.long_context.map((step) => ({ above: step.above_prompt_tokens, rates: toRateSet(step) })),
    });
  }
  const free = new Set(head.freeProviders);

  const ratesFor = (model: string, prompt: number): RateSet | null => {
    const known = rates.get(model);
    if (known !== undefined) return selectRateSet(known.base, known.steps, prompt);
    return free.has(getProvider(model)) ? ZERO_RATES : null;
  };
  return {
    version: head.version,
    source: head.source,
    importedOn: head.importedOn,
    contentHash: contentHash(models),
    models,
    has: (model) => rates.has(model) || free.has(getProvider(model)),
    ratesFor,
    cost(model, usage) {
      const set = ratesFor(model, promptTokens(usage));
      if (set === null) return { cost_pusd: ZERO_PUSD, priced: false };
      return { cost_pusd: priceUsage(set, usage), priced: true };
    },
    withOverlay: (version, overlay) =>
      createTable({ ...head, version: overlayVersion(head.version, version) }, { ...models, ...resolveAll(overlay) }),
  };
}

function resolveAll(models: Readonly<Record<string, RawEntry>>): Record<string, ResolvedEntry> {
  return Object.fromEntries(Object.entries(models).map(([id, entry]) => [id, resolveEntry(entry)]));
}

// Which row of a price table prices a call (08 §5).

/** The id of the model that answered; null when the provider named none, or the one that was asked for. */
export function resolveServedModelId(
  model: Pick<ModelEntry, 'id' | 'wire_name'>,
  served: string | null,
): string | null {
  if (served === null || served === model.wire_name) return null;
  return `${getProvider(model.id)}:${served}`;
}

/** Whether another model than the one asked answered, one that has a price of its own. */
export function isAnsweredByOther(
  table: Pick<PriceTable, 'models'>,
  model: Pick<ModelEntry, 'id' | 'wire_name'>,
  served: string | null,
): boolean {
  const id = resolveServedModelId(model, served);
  return id !== null && id !== model.id && Object.hasOwn(table.models, id);
}

/**
 * Prices one call: the answered model where another one than asked for answered and has a row of its own,
 * else the asked model's `pricing_id`. An unknown model costs nothing and is `priced: false`.
 * @param call.servedModelId canonical id of the model that answered, null for the asked one (see `resolveServedModelId`)
 */
export function priceCall(call: {
  readonly table: PriceTable;
  readonly servedModelId: string | null;
  readonly pricingId: string;
  readonly modelId: string;
  readonly usage: TokenUsage;
}): { readonly cost_pusd: Pusd; readonly priced: boolean } {
  const { table, servedModelId: served } = call;
  // Only a written row counts: the implicit zero of a free provider is no price of this very model.
  const answeredByOther = served !== null && served !== call.modelId && Object.hasOwn(table.models, served);
  return table.cost(answeredByOther ? served : call.pricingId, call.usage);
}

// The most a call can cost (14 §2).

/** The most expensive class that a prompt can be billed as. */
export type PromptClass = 'none' | 'write' | 'write_1h';

/** The price of a call with so many tokens, its prompt in the most expensive class. */
export function ceilingPrice(
  prices: Pick<PriceTable, 'cost'>,
  pricingId: string,
  call: { readonly prompt_tokens: number; readonly output_tokens: number; readonly cache: PromptClass },
): Pusd {
  const { prompt_tokens, output_tokens, cache } = call;
  const plain = prices.cost(pricingId, { ...NO_TOKENS, input_tokens: prompt_tokens, output_tokens }).cost_pusd;
  if (cache === 'none') return plain;
  const written = prices.cost(pricingId, {
    ...NO_TOKENS,
    cache_creation_input_tokens: prompt_tokens,
    cache_creation_1h_input_tokens: cache === 'write_1h' ? prompt_tokens : 0,
    output_tokens,
  }).cost_pusd;
  return written > plain ? written : plain;
}

// Sizes of prompts that share their rates, so that calls can be priced together (08 §4.2, §7).

/** Prompt sizes above which the rates of some model of the table change, ascending, each once (08 §4.2). */
export function promptSteps(
  models: Readonly<Record<string, { readonly long_context: readonly { readonly above_prompt_tokens: number }[] }>>,
): readonly number[] {
  const steps = Object.values(models).flatMap((entry) => entry.long_context.map((step) => step.above_prompt_tokens));
  return [...new Set(steps)].sort((a, b) => a - b);
}

/** A prompt size for which every model has the rates of all calls that lie above `passed` of the steps. */
export function promptAbove(steps: readonly number[], passed: number): number {
  if (passed === 0) return 0;
  return steps[passed - 1]! + 1;
}
