// The price table: files parsed and checked, overlays merged, rates looked up as integers (08 §2, §3, §5, §8).
import { getProvider, type ModelEntry } from '#protocol/model.ts';
import { type Pusd, ZERO_PUSD } from '#protocol/money.ts';
import { canonicalJson, sha256Hex } from '#protocol/text/canonical-json.ts';
import { NO_TOKENS, promptTokens, type Terms, type TokenUsage } from '#protocol/usage.ts';
import { largestMultiplier } from './fees.ts';
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

// Versions of a price table: names, content hashes, and warnings at the start (08 §2, §3).

const STALE_DAYS = 30;
const DAY_MS = 86_400_000;

/** Opaque to readers: compared and used as a key, never parsed. */
function overlayVersion(base: string, overlay: string): string {
  return `${base}+${overlay}`;
}

/** SHA-256 of the canonical JSON of the resolved entries. */
function contentHash(models: Readonly<Record<string, ResolvedEntry>>): string {
  return sha256Hex(canonicalJson(models));
}

/**
 * What a person should know of rates older than 30 days, or of a future day, or null.
 * @param now Unix milliseconds
 */
export function describeStaleRates(importedOn: string | null, now: number): string | null {
  if (importedOn === null) return null;
  const days = Math.floor((now - Date.parse(importedOn)) / DAY_MS);
  // A publisher's day may be ahead of UTC's.
  if (days < -1)
    return `the prices are of ${importedOn}, which is in the future, so newer ones are not taken; correct imported_on of the price table`;
  if (days > STALE_DAYS)
    return `the prices are ${days} days old (of ${importedOn}); metis prices update --from FILE|URL takes newer ones`;
  return null;
}

export interface PriceTable {
  readonly version: string;
  readonly contentHash: string;
  readonly source: string;
  /** Date of the shipped rates, or of those that update them, `YYYY-MM-DD`. */
  readonly importedOn: string | null;
  /** Resolved entries by model id, rates as decimal strings: for storage and display. */
  readonly models: Readonly<Record<string, ResolvedEntry>>;
  /** True also for a model of a free provider. */
  has(model: string): boolean;
  /** Rates in picodollars per token for a prompt of this size; null for an unknown model. */
  ratesFor(model: string, promptTokens: number): RateSet | null;
  /** Throws `RangeError` for counts that are not whole and non-negative, never for an unknown model. */
  cost(model: string, usage: TokenUsage): { readonly cost_pusd: Pusd; readonly priced: boolean };
  /** The table as it is now: a live one may be replaced meanwhile. */
  now(): PriceTable;
  /** A new table `old+version` whose entries for these ids replace the old ones whole. */
  withOverlay(version: string, models: Readonly<Record<string, RawEntry>>): PriceTable;
}

/** The active table of a server, which a newer version replaces while it runs (08 §3). */
export interface LivePrices extends PriceTable {
  replace(next: PriceTable): void;
}

export function createLivePrices(first: PriceTable): LivePrices {
  let current = first;
  return {
    get version() {
      return current.version;
    },
    get contentHash() {
      return current.contentHash;
    },
    get source() {
      return current.source;
    },
    get importedOn() {
      return current.importedOn;
    },
    get models() {
      return current.models;
    },
    has: (model) => current.has(model),
    ratesFor: (model, prompt) => current.ratesFor(model, prompt),
    cost: (model, usage) => current.cost(model, usage),
    now: () => current,
    withOverlay: (version, models) => current.withOverlay(version, models),
    replace(next) {
      current = next;
    },
  };
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

/** A table rebuilt from a row of `price_versions`. */
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
    if (free.has(getProvider(model))) return ZERO_RATES;
    return null;
  };
  const table: PriceTable = {
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
    now: () => table,
    withOverlay: (version, overlay) =>
      createTable({ ...head, version: overlayVersion(head.version, version) }, { ...models, ...resolveAll(overlay) }),
  };
  return table;
}

function resolveAll(models: Readonly<Record<string, RawEntry>>): Record<string, ResolvedEntry> {
  return Object.fromEntries(Object.entries(models).map(([id, entry]) => [id, resolveEntry(entry)]));
}

// Selects the row of a price table for a call (08 §5).

/** The id of the model that answered; null when the provider named none or the requested one. */
export function resolveServedModelId(
  model: Pick<ModelEntry, 'id' | 'wire_name'>,
  served: string | null,
): string | null {
  if (served === null || served === model.wire_name) return null;
  return `${getProvider(model.id)}:${served}`;
}

/** Whether a model other than the requested one answered and has a price of its own. */
export function isAnsweredByOther(
  table: Pick<PriceTable, 'models'>,
  model: Pick<ModelEntry, 'id' | 'wire_name'>,
  served: string | null,
): boolean {
  const id = resolveServedModelId(model, served);
  return id !== null && id !== model.id && Object.hasOwn(table.models, id);
}

/**
 * The row of the price table for a call: the row of the model that answered, if it is not the requested one and has a
 * row of its own; else the requested model's `pricing_id`.
 * @param call.servedModelId canonical id of the model that answered, null for the requested one (see `resolveServedModelId`)
 */
export function selectPriceRow(
  table: Pick<PriceTable, 'models'>,
  call: { readonly servedModelId: string | null; readonly pricingId: string; readonly modelId: string },
): string {
  const { servedModelId: served } = call;
  // Only an explicit row counts: the implicit zero of a free provider is not a price of this model.
  if (served !== null && served !== call.modelId && Object.hasOwn(table.models, served)) return served;
  return call.pricingId;
}

// The maximum cost of a call (14 §2).

/** The most expensive class that a prompt can be billed as. */
export type PromptClass = 'none' | 'write' | 'write_1h';

/** The price of a call with so many tokens, its prompt in the most expensive class, under the most expensive terms. */
export function ceilingPrice(
  prices: Pick<PriceTable, 'cost' | 'models'>,
  pricingId: string,
  call: {
    readonly prompt_tokens: number;
    readonly output_tokens: number;
    readonly cache: PromptClass;
    readonly terms: Terms;
  },
): Pusd {
  const entry = Object.hasOwn(prices.models, pricingId) ? prices.models[pricingId]! : null;
  const steps = (entry?.long_context ?? []).map((step) => step.above_prompt_tokens);
  // Beyond a step a longer prompt may cost less than one up to it.
  const sizes = [call.prompt_tokens, ...steps.filter((above) => above < call.prompt_tokens)];
  const most = sizes
    .flatMap((prompt) => listPromptClasses(prompt, call.cache))
    .map((usage) => prices.cost(pricingId, { ...NO_TOKENS, ...usage, output_tokens: call.output_tokens }).cost_pusd)
    .reduce((best, cost) => (cost > best ? cost : best));
  if (entry === null) return most;
  const { by, over } = largestMultiplier(entry.multipliers, call.terms);
  return ((most * by + over - 1n) / over) as Pusd;
}

/** Each class that a whole prompt of this size can be billed as. */
function listPromptClasses(prompt: number, cache: PromptClass): Partial<TokenUsage>[] {
  const classes: Partial<TokenUsage>[] = [{ input_tokens: prompt }, { cached_input_tokens: prompt }];
  if (cache === 'none') return classes;
  const written = { cache_creation_input_tokens: prompt };
  return [...classes, { ...written, cache_creation_1h_input_tokens: cache === 'write_1h' ? prompt : 0 }];
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
