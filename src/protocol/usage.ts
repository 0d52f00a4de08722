// Token usage in disjoint classes, with and without money (01 §4.4).
import { z } from 'zod';
import { CountSchema, UsdSchema } from './scalars.ts';

/** Token counts of a provider: the three input classes are disjoint and sum to the whole prompt. */
export const TokenUsageSchema = z.strictObject({
  input_tokens: CountSchema,
  cached_input_tokens: CountSchema,
  cache_creation_input_tokens: CountSchema,
  cache_creation_1h_input_tokens: CountSchema,
  output_tokens: CountSchema,
  reasoning_tokens: CountSchema,
  usage_estimated: z.boolean(),
});
export type TokenUsage = z.infer<typeof TokenUsageSchema>;

/** A call's usage with its stamped cost. */
export const UsageSchema = TokenUsageSchema.extend({
  cost_usd: UsdSchema,
  pricing_version: z.string(),
  priced: z.boolean(),
  latency_ms: CountSchema,
});
export type Usage = z.infer<typeof UsageSchema>;

export const NO_TOKENS: TokenUsage = {
  input_tokens: 0,
  cached_input_tokens: 0,
  cache_creation_input_tokens: 0,
  cache_creation_1h_input_tokens: 0,
  output_tokens: 0,
  reasoning_tokens: 0,
  usage_estimated: false,
};

/** Tokens of the whole prompt, all classes. */
export function promptTokens(usage: TokenUsage): number {
  return usage.input_tokens + usage.cached_input_tokens + usage.cache_creation_input_tokens;
}
