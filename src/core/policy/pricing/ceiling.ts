// The most a call can cost (14 §2).

import type { Pusd } from '#protocol/money.ts';
import { NO_TOKENS } from '#protocol/usage.ts';
import type { PriceTable } from './price-table.ts';

/** The most expensive class that a prompt can be billed as. */
export type PromptClass = 'none' | 'write' | 'write_1h';

/** The price of a call with so many tokens, its prompt in the most expensive class. */
export function ceilingPrice(
  prices: Pick<PriceTable, 'cost'>,
  pricingId: string,
  call: { readonly prompt_tokens: number; readonly output_tokens: number; readonly cache: PromptClass },
): Pusd {
  const { prompt_tokens, output_tokens, cache } = call;
  const plain = prices.cost(pricingId, { ...NO_TOKENS, input_tokens: prompt_tokens, output_tokens }).cost_pusd;
  if (cache === 'none') return plain;
  const written = prices.cost(pricingId, {
    ...NO_TOKENS,
    cache_creation_input_tokens: prompt_tokens,
    cache_creation_1h_input_tokens: cache === 'write_1h' ? prompt_tokens : 0,
    output_tokens,
  }).cost_pusd;
  return written > plain ? written : plain;
}
