// The price of a call, stamped once (08 §6).
import type { ModelEntry } from '../../domain/model.ts';
import type { TokenUsage, Usage } from '../../domain/usage.ts';
import { fromPusd, type Pusd } from '../../kernel/money.ts';
import { priceCall, servedModelId } from '../../policy/pricing/price-call.ts';
import type { Engine } from '../state/engine.ts';

/** @param call `served` is the model that answered, null for the one asked; `where` goes into a warning */
export function stampedUsage(
  engine: Engine,
  model: ModelEntry,
  tokens: TokenUsage,
  call: { readonly served: string | null; readonly latency: number; readonly where: object },
): { readonly usage: Usage; readonly cost: Pusd } {
  const { cost_pusd, priced } = priceCall({
    table: engine.prices,
    servedModelId: servedModelId(model, call.served),
    pricingId: model.pricing_id,
    modelId: model.id,
    usage: tokens,
  });
  if (!priced && !engine.unpriced.has(model.id)) {
    engine.unpriced.add(model.id);
    engine.log.warn(
      { ...call.where, model: model.id, pricing_version: engine.prices.version },
      'no price for this model',
    );
  }
  return {
    usage: {
      input_tokens: tokens.input_tokens,
      cached_input_tokens: tokens.cached_input_tokens,
      cache_creation_input_tokens: tokens.cache_creation_input_tokens,
      cache_creation_1h_input_tokens: tokens.cache_creation_1h_input_tokens,
      output_tokens: tokens.output_tokens,
      reasoning_tokens: tokens.reasoning_tokens,
      usage_estimated: tokens.usage_estimated,
      cost_usd: fromPusd(cost_pusd),
      pricing_version: engine.prices.version,
      priced,
      latency_ms: Math.round(call.latency),
    },
    cost: cost_pusd,
  };
}
