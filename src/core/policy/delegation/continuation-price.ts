// What it costs to continue a worker, and the line in which its planner reads it (20 §3).
import type { PromptCache } from '#core/policy/registry/adapter-config.ts';
import { fromPusd, type Pusd } from '#protocol/money.ts';
import { NO_TOKENS } from '#protocol/usage.ts';
import type { PriceTable } from '../pricing/price-table.ts';

/** The price of sending a worker's history again. */
export interface ContinuationPrice {
  /** While its provider still caches the history; null where it does not. */
  readonly cached: { readonly cost: Pusd; readonly until: number } | null;
  readonly uncached: Pusd;
}

/** The last request of a worker and the answer to it. */
export interface LastCall {
  /** The row of the price table. */
  readonly pricing_id: string;
  /** Of the request and the answer, as the provider counted them. */
  readonly tokens: number;
  /** Unix milliseconds. */
  readonly answered_at: number;
  /** Null where the provider caches no prompts. */
  readonly cache: PromptCache | null;
}

/** Null without a price. */
export function priceContinuation(
  prices: Pick<PriceTable, 'cost'>,
  { pricing_id, tokens, answered_at, cache }: LastCall,
  now: number,
): ContinuationPrice | null {
  const compute = (usage: Partial<typeof NO_TOKENS>) => prices.cost(pricing_id, { ...NO_TOKENS, ...usage });
  const plain = compute({ input_tokens: tokens });
  if (!plain.priced) return null;
  if (cache === null) return { cached: null, uncached: plain.cost_pusd };
  const uncached = compute({
    cache_creation_input_tokens: tokens,
    cache_creation_1h_input_tokens: cache.write === 'write_1h' ? tokens : 0,
  }).cost_pusd;
  const cost = compute({ cached_input_tokens: tokens }).cost_pusd;
  const until = answered_at + cache.lifetime_ms;
  const isCached = now < until && cost < uncached;
  return { cached: isCached ? { cost, until } : null, uncached };
}

/** `[worker sess_1; continuing costs about $0.004 until 14:05, then $0.031]`, the time in UTC. */
export function formatWorkerLine(worker: string, price: ContinuationPrice | null): string {
  if (price === null) return `[worker ${worker}]`;
  const uncached = formatRounded(price.uncached);
  if (price.cached === null) return `[worker ${worker}; continuing costs about ${uncached}]`;
  const time = new Date(price.cached.until).toISOString().slice(11, 16);
  return `[worker ${worker}; continuing costs about ${formatRounded(price.cached.cost)} until ${time}, then ${uncached}]`;
}

const SIGNIFICANT_DIGITS = 3;

/** Dollars with three significant digits, halves rounded up. */
function formatRounded(amount: Pusd): string {
  const excess = amount.toString().length - SIGNIFICANT_DIGITS;
  if (excess <= 0) return `$${fromPusd(amount)}`;
  const unit = 10n ** BigInt(excess);
  return `$${fromPusd(((amount + unit / 2n) / unit) * unit)}`;
}
