// What tokens cost: exact integer arithmetic over token classes (08 §4, §7).

import type { Pusd } from '#protocol/money.ts';
import type { TokenUsage } from '#protocol/usage.ts';

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
export function costOfSums(rates: RateSet, tokens: TokenSums): Pusd {
  return (tokens.input_tokens * rates.input +
    tokens.cached_input_tokens * rates.cached_read +
    (tokens.cache_creation_input_tokens - tokens.billed_1h_tokens) * rates.cache_write +
    tokens.billed_1h_tokens * rates.cache_write_1h +
    tokens.output_tokens * rates.output) as Pusd;
}

/** What one call costs. Throws `RangeError` for a count that is not whole or negative; 1 h writes beyond all writes are clamped. */
export function costAt(rates: RateSet, usage: TokenUsage): Pusd {
  const written = count(usage.cache_creation_input_tokens);
  return costOfSums(rates, {
    input_tokens: count(usage.input_tokens),
    cached_input_tokens: count(usage.cached_input_tokens),
    cache_creation_input_tokens: written,
    billed_1h_tokens: min(count(usage.cache_creation_1h_input_tokens), written),
    output_tokens: count(usage.output_tokens),
  });
}

/** The rates for a prompt of this size: the highest step that lies below it replaces the base for the whole call. */
export function ratesAt(
  base: RateSet,
  steps: readonly { readonly above: number; readonly rates: RateSet }[],
  promptTokens: number,
): RateSet {
  return steps.findLast((step) => step.above < promptTokens)?.rates ?? base;
}

function count(tokens: number): bigint {
  if (tokens < 0) throw new RangeError(`negative token count: ${tokens}`);
  return BigInt(tokens);
}

function min(a: bigint, b: bigint): bigint {
  return a < b ? a : b;
}
