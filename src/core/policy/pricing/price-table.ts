// The price table: files parsed and checked, overlays merged, rates looked up as integers (08 §2, §3, §5, §8).
import { providerOf } from '#protocol/model.ts';
import { type Pusd, ZERO_PUSD } from '#protocol/money.ts';
import { promptTokens, type TokenUsage } from '#protocol/usage.ts';
import { costAt, type RateSet, ratesAt, ZERO_RATES } from './cost.ts';
import { type RawEntry, type RawTable, type ResolvedEntry, rateSet, resolveEntry } from './price-entry.ts';
import { contentHash, overlayVersion } from './versions.ts';

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
 * @param options.freeProviders providers whose models cost nothing unless an entry says otherwise
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
      base: rateSet(entry),
      steps: entry.long_context.map((step) => ({ above: step.above_prompt_tokens, rates: rateSet(step) })),
    });
  }
  const free = new Set(head.freeProviders);

  const ratesFor = (model: string, prompt: number): RateSet | null => {
    const known = rates.get(model);
    if (known !== undefined) return ratesAt(known.base, known.steps, prompt);
    return free.has(providerOf(model)) ? ZERO_RATES : null;
  };
  return {
    version: head.version,
    source: head.source,
    importedOn: head.importedOn,
    contentHash: contentHash(models),
    models,
    has: (model) => rates.has(model) || free.has(providerOf(model)),
    ratesFor,
    cost(model, usage) {
      const set = ratesFor(model, promptTokens(usage));
      return set === null ? { cost_pusd: ZERO_PUSD, priced: false } : { cost_pusd: costAt(set, usage), priced: true };
    },
    withOverlay: (version, overlay) =>
      createTable({ ...head, version: overlayVersion(head.version, version) }, { ...models, ...resolveAll(overlay) }),
  };
}

function resolveAll(models: Readonly<Record<string, RawEntry>>): Record<string, ResolvedEntry> {
  return Object.fromEntries(Object.entries(models).map(([id, entry]) => [id, resolveEntry(entry)]));
}
