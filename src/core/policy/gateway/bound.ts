// The most an answer of the gateway may have, and how far it is lowered to fit what is left (19 §2.5).
import type { ModelEntry } from '#protocol/model.ts';
import type { Pusd } from '#protocol/money.ts';
import type { AdapterConfig } from '../registry/adapter-config.ts';
import type { RequestFacts } from './request-facts.ts';

interface Answering {
  readonly capabilities: Pick<ModelEntry['capabilities'], 'max_output_tokens'>;
}
type Optioned = Pick<AdapterConfig, 'options'>;
type Asked = Pick<RequestFacts, 'wire' | 'output'>;

/** Tokens that the answer may have at most: what the client set in a field that the adapter knows, or the model's maximum. */
export function outputBound(facts: Asked, model: Answering, adapter: Optioned): number {
  const { key, tokens } = facts.output;
  return tokens === null || key !== boundKey(facts, adapter) ? model.capabilities.max_output_tokens : tokens;
}

/** The field that bounds the answer: the client's, unless its adapter is said to know another one alone. */
export function boundKey({ wire, output }: Asked, { options }: Optioned): string {
  if (wire !== 'chat') return wire === 'messages' ? 'max_tokens' : 'max_output_tokens';
  return options.max_tokens_field === 'max_tokens' ? 'max_tokens' : (output.key ?? 'max_completion_tokens');
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
