// What a call costs: exact integer arithmetic over token classes, and which row prices it (08 §4, §5).
import { type ModelEntry, providerOf } from '../../domain/model.ts';
import type { TokenUsage } from '../../domain/usage.ts';
import type { Pusd } from '../../kernel/money.ts';
import type { PriceTable } from './price-table.ts';

/** Picodollars per token of each class. */
export interface RateSet {
  readonly input: bigint;
  readonly output: bigint;
  readonly cached_read: bigint;
  readonly cache_write: bigint;
  readonly cache_write_1h: bigint;
}

export const ZERO_RATES: RateSet = { input: 0n, output: 0n, cached_read: 0n, cache_write: 0n, cache_write_1h: 0n };

/** The formula of 08 §4.1. Throws `RangeError` for a count that is not whole or negative; 1 h writes beyond all writes are clamped. */
export function costAt(rates: RateSet, usage: TokenUsage): Pusd {
  const written = count(usage.cache_creation_input_tokens);
  const written1h = min(count(usage.cache_creation_1h_input_tokens), written);
  return (count(usage.input_tokens) * rates.input +
    count(usage.cached_input_tokens) * rates.cached_read +
    (written - written1h) * rates.cache_write +
    written1h * rates.cache_write_1h +
    count(usage.output_tokens) * rates.output) as Pusd;
}

/** The rates for a prompt of this size: the highest step that lies below it replaces the base for the whole call. */
export function ratesAt(
  base: RateSet,
  steps: readonly { readonly above: number; readonly rates: RateSet }[],
  promptTokens: number,
): RateSet {
  return steps.findLast((step) => step.above < promptTokens)?.rates ?? base;
}

/** The id of the model that answered; null when the provider named none, or the one that was asked for. */
export function servedModelId(model: Pick<ModelEntry, 'id' | 'wire_name'>, served: string | null): string | null {
  return served === null || served === model.wire_name ? null : `${providerOf(model.id)}:${served}`;
}

/**
 * Prices one call: the answered model where another one than asked for answered and has a row of its own,
 * else the asked model's `pricing_id`. An unknown model costs nothing and is `priced: false`.
 * @param call.servedModelId canonical id of the model that answered, null for the asked one (see `servedModelId`)
 */
export function priceCall(call: {
  readonly table: PriceTable;
  readonly servedModelId: string | null;
  readonly pricingId: string;
  readonly modelId: string;
  readonly usage: TokenUsage;
}): { readonly cost_pusd: Pusd; readonly priced: boolean } {
  const { table, servedModelId: served } = call;
  // Only a written row counts: the implicit zero of a free provider says nothing about this very model.
  const answeredByOther = served !== null && served !== call.modelId && Object.hasOwn(table.models, served);
  return table.cost(answeredByOther ? served : call.pricingId, call.usage);
}

/** What is wrong with a reported usage, or null; a usage with a fault is an error of its adapter (08 §4.1). */
export function usageFault(usage: TokenUsage): string | null {
  for (const [field, value] of Object.entries(usage)) {
    if (typeof value === 'number' && !(Number.isInteger(value) && value >= 0)) {
      return `${field} must be a whole number of tokens, got ${value}`;
    }
  }
  return null;
}

function count(tokens: number): bigint {
  if (tokens < 0) throw new RangeError(`negative token count: ${tokens}`);
  return BigInt(tokens);
}

function min(a: bigint, b: bigint): bigint {
  return a < b ? a : b;
}
