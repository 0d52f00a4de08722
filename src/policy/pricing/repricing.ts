// Pricing sums of calls: the cost formula is linear, so calls under one rate set can be priced together (08 §4, §7).

/** Picodollars per token of each class. */
export interface CallRates {
  readonly input: bigint;
  readonly output: bigint;
  readonly cached_read: bigint;
  readonly cache_write: bigint;
  readonly cache_write_1h: bigint;
}

/** Token sums of calls that one rate set prices. */
export interface TokenSums {
  readonly input_tokens: bigint;
  readonly cached_input_tokens: bigint;
  readonly cache_creation_input_tokens: bigint;
  /** Per call at most its cache writes. */
  readonly billed_1h_tokens: bigint;
  readonly output_tokens: bigint;
}

/** Exactly the sum of the costs of the single calls, in picodollars. */
export function costOfSums(rates: CallRates, tokens: TokenSums): bigint {
  return (
    tokens.input_tokens * rates.input +
    tokens.cached_input_tokens * rates.cached_read +
    (tokens.cache_creation_input_tokens - tokens.billed_1h_tokens) * rates.cache_write +
    tokens.billed_1h_tokens * rates.cache_write_1h +
    tokens.output_tokens * rates.output
  );
}

/** Prompt sizes above which the rates of some model of the table change, ascending, each once (08 §4.2). */
export function promptSteps(
  models: Readonly<Record<string, { readonly long_context: readonly { readonly above_prompt_tokens: number }[] }>>,
): readonly number[] {
  const steps = Object.values(models).flatMap((entry) => entry.long_context.map((step) => step.above_prompt_tokens));
  return [...new Set(steps)].sort((a, b) => a - b);
}

/** A prompt size for which every model has the rates of all calls that lie above `passed` of the steps. */
export function promptAbove(steps: readonly number[], passed: number): number {
  return passed === 0 ? 0 : steps[passed - 1]! + 1;
}
