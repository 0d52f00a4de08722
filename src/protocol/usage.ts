// Token usage in disjoint classes, with and without money (01 §4.4), and what a provider bills beside it (08 §12).
import { z } from 'zod';
import { CountSchema, SignedUsdSchema, UsdSchema } from './scalars.ts';

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

export const CostBreakdownSchema = z.strictObject({
  /** At the standard rates. */
  tokens: UsdSchema,
  fees: UsdSchema,
  /** What the terms of the call added to its tokens; negative for a discount. */
  surcharge: SignedUsdSchema,
});
export type CostBreakdown = z.infer<typeof CostBreakdownSchema>;

/** A call's usage with its stamped cost. */
export const UsageSchema = TokenUsageSchema.extend({
  cost_usd: UsdSchema,
  cost_breakdown: CostBreakdownSchema,
  pricing_version: z.string(),
  priced: z.boolean(),
  /** The answer shows a tool of the provider for which the price table has no fee. */
  fees_unpriced: z.boolean(),
  /** The answer was served under terms for which the price table has no multiplier. */
  surcharge_unknown: z.boolean(),
  /** The counts are the sum of several agents, priced as one round. */
  rounds_unknown: z.boolean(),
  latency_ms: CountSchema,
});
export type Usage = z.infer<typeof UsageSchema>;

/** The cost of a call that is billed for its tokens alone, at the standard rates. */
export function buildPlainCost(cost_usd: string) {
  return {
    cost_usd,
    cost_breakdown: { tokens: cost_usd, fees: '0', surcharge: '0' },
    fees_unpriced: false,
    surcharge_unknown: false,
    rounds_unknown: false,
  };
}

export const NO_TOKENS: TokenUsage = {
  input_tokens: 0,
  cached_input_tokens: 0,
  cache_creation_input_tokens: 0,
  cache_creation_1h_input_tokens: 0,
  output_tokens: 0,
  reasoning_tokens: 0,
  usage_estimated: false,
};

/** The counts of several attempts together. */
export function sumUsage(all: readonly TokenUsage[]): TokenUsage {
  return all.reduce((sum, one) => ({
    input_tokens: sum.input_tokens + one.input_tokens,
    cached_input_tokens: sum.cached_input_tokens + one.cached_input_tokens,
    cache_creation_input_tokens: sum.cache_creation_input_tokens + one.cache_creation_input_tokens,
    cache_creation_1h_input_tokens: sum.cache_creation_1h_input_tokens + one.cache_creation_1h_input_tokens,
    output_tokens: sum.output_tokens + one.output_tokens,
    reasoning_tokens: sum.reasoning_tokens + one.reasoning_tokens,
    usage_estimated: sum.usage_estimated || one.usage_estimated,
  }));
}

/** Tokens of the whole prompt, all classes. */
export function promptTokens(usage: TokenUsage): number {
  return usage.input_tokens + usage.cached_input_tokens + usage.cache_creation_input_tokens;
}

// The parts of a bill beside the tokens of one sampling: rounds, the provider's tools, terms of service (08 §12).

/** Fields of an answer that change the price of its tokens. */
export const TERMS = ['service_tier', 'speed', 'inference_geo'] as const;
export type Term = (typeof TERMS)[number];
/** Null = the standard rate, or not reported. */
export type Terms = Readonly<Record<Term, string | null>>;

export const STANDARD_TERMS: Terms = { service_tier: null, speed: null, inference_geo: null };

/** One of several samplings inside a call; null counts were not reported. */
export interface ReportedRound {
  /** The wire's name: `message`, `compaction`, `advisor_message`, `fallback_message`. */
  readonly kind: string;
  /** Null = the model of the call. */
  readonly model: string | null;
  /** False for a model that declined without output. */
  readonly billed: boolean;
  readonly usage: {
    readonly input: number | null;
    readonly cached: number | null;
    readonly creation: number | null;
    readonly creation1h: number | null;
    readonly output: number | null;
    readonly reasoning: number | null;
  };
}

/** The parts of a bill that an answer shows. */
export interface ReportedBill {
  /** Empty = one sampling. */
  readonly rounds: readonly ReportedRound[];
  /** Uses by the name of the provider's tool. */
  readonly uses: ReadonlyMap<string, number>;
  readonly terms: Terms;
  /** The counts are the sum of several agents, which cannot be separated. */
  readonly rounds_unknown: boolean;
  /** Counts of attempts that broke off before the answer began and were repeated; absent = none was reported. */
  readonly lost?: readonly TokenUsage[];
}

/** Uses of one of the provider's tools. */
export const FeeSchema = z.strictObject({
  tool: z.string(),
  uses: CountSchema,
  /** Null = the price table has no fee for the tool. */
  cost_usd: UsdSchema.nullable(),
});
export type Fee = z.infer<typeof FeeSchema>;

/** One sampling of a call with several of them, priced by itself. */
export const RoundSchema = z.strictObject({
  kind: z.string(),
  model: z.string(),
  input_tokens: CountSchema,
  cached_input_tokens: CountSchema,
  cache_creation_input_tokens: CountSchema,
  cache_creation_1h_input_tokens: CountSchema,
  output_tokens: CountSchema,
  reasoning_tokens: CountSchema,
  /** Its surcharge included. */
  cost_usd: UsdSchema,
  priced: z.boolean(),
  /** False for a model that declined without output: the call's sums leave the round out. */
  billed: z.boolean(),
});
export type Round = z.infer<typeof RoundSchema>;

/** Stored with the call, not with its message. */
export const billFields = {
  service_tier: z.string().nullable(),
  speed: z.string().nullable(),
  inference_geo: z.string().nullable(),
  fees: z.array(FeeSchema),
  /** Empty for a call of one sampling. */
  rounds: z.array(RoundSchema),
  /** 'none' = the call left under a limit although nothing in its request bounds its cost. */
  bound: z.literal('none').nullable(),
} as const;
export interface CallBill extends Terms {
  readonly fees: Fee[];
  readonly rounds: Round[];
  readonly bound: 'none' | null;
}

export const PLAIN_BILL: CallBill = { ...STANDARD_TERMS, fees: [], rounds: [], bound: null };
