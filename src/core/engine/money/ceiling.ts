// What a call of ours can cost at most, and by whose prices (14 §2).

import { requestPrompt, type SentParts } from '#core/policy/context/request-prompt.ts';
import { ceilingPrice } from '#core/policy/pricing/ceiling.ts';
import { promptClass } from '#core/policy/registry/adapter-config.ts';
import type { SessionId } from '#protocol/ids.ts';
import type { ModelEntry } from '#protocol/model.ts';
import type { CanonicalRequest } from '#protocol/model-request.ts';
import type { Pusd } from '#protocol/money.ts';
import type { Engine } from '../state/engine.ts';
import { type BoundPrompt, boundPrompt } from './prompt-bound.ts';

/** A request, as far as its price depends on it. */
export type PricedRequest = SentParts & Pick<CanonicalRequest, 'max_output_tokens' | 'cache_ttl'>;

/** The most a call can cost: its request at its bound, its answer at the cap (14 §2). */
export async function ceiling(
  engine: Engine,
  session: SessionId,
  model: ModelEntry,
  request: PricedRequest,
): Promise<{ readonly price: Pusd; readonly prompt: BoundPrompt }> {
  const prompt = await boundPrompt(engine, session, model, requestPrompt(request));
  const adapter = engine.registry.adapters.get(model.adapter);
  const price = ceilingPrice(engine.prices, pricingId(engine, model.id), {
    prompt_tokens: prompt.tokens,
    output_tokens: request.max_output_tokens,
    cache: adapter === undefined ? 'none' : promptClass(adapter, request.cache_ttl),
  });
  return { price, prompt };
}

/** The price table row of a model. */
export function pricingId(engine: Engine, modelId: string): string {
  return engine.registry.get(modelId)?.pricing_id ?? modelId;
}
