// The most a call of the gateway can cost, and how far its answer is lowered to fit what is left (19 §2.5).
import type { ModelEntry } from '../../domain/model.ts';
import { NO_TOKENS } from '../../domain/usage.ts';
import type { Pusd } from '../../kernel/money.ts';
import type { RequestFacts } from './request-facts.ts';

/** As of our own requests (14 §2). */
const BYTES_A_TOKEN = 2.5;

export interface Prices {
  cost(pricingId: string, usage: typeof NO_TOKENS): { readonly cost_pusd: Pusd };
}

/** Tokens of the prompt, never fewer than a provider counts. */
export function inputBound({ size }: Pick<RequestFacts, 'size'>, { capabilities }: ModelEntry): number {
  const { max_context_tokens: window, max_image_tokens } = capabilities;
  if (size.unbounded) return window;
  return Math.min(Math.ceil(size.text_bytes / BYTES_A_TOKEN) + size.images * max_image_tokens, window);
}

/** Tokens that the answer may have at most: what the client set, or the model's maximum. */
export function outputBound({ output }: Pick<RequestFacts, 'output'>, model: ModelEntry): number {
  return output.tokens ?? model.capabilities.max_output_tokens;
}

/** The price of the call with so many tokens for each answer: its prompt in the dearest class that the body can cause. */
export function callCeiling(prices: Prices, model: ModelEntry, facts: RequestFacts, outputTokens: number): Pusd {
  const prompt = inputBound(facts, model);
  const output_tokens = outputTokens * facts.output.copies;
  const plain = prices.cost(model.pricing_id, { ...NO_TOKENS, input_tokens: prompt, output_tokens }).cost_pusd;
  if (facts.size.cache === 'none') return plain;
  const written = prices.cost(model.pricing_id, {
    ...NO_TOKENS,
    cache_creation_input_tokens: prompt,
    cache_creation_1h_input_tokens: facts.size.cache === 'write_1h' ? prompt : 0,
    output_tokens,
  }).cost_pusd;
  return written > plain ? written : plain;
}

/**
 * The largest bound of the answer, from `floor` to what was asked, whose price is no more than `left`; null when not
 * even the floor fits.
 */
export function affordableOutput(
  priceOf: (outputTokens: number) => Pusd,
  { floor, asked, left }: { readonly floor: number; readonly asked: number; readonly left: Pusd },
): number | null {
  if (priceOf(floor) > left) return null;
  let [low, high] = [floor, asked];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (priceOf(middle) <= left) low = middle;
    else high = middle - 1;
  }
  return low;
}
