// What a call can cost at most, and by whose prices (14 §2).

import type { ModelEntry } from '../../domain/model.ts';
import { NO_TOKENS } from '../../domain/usage.ts';
import type { Pusd } from '../../kernel/money.ts';
import type { SentParts } from '../../policy/context/estimate.ts';
import { boundRequest } from '../../policy/context/estimate.ts';
import type { Engine } from '../state/engine.ts';

/** The most a call can cost: its request at its bound, its answer at the cap, no cache (14 §2). */
export function ceiling(
  engine: Engine,
  model: ModelEntry,
  request: SentParts & { readonly max_output_tokens: number },
): Pusd {
  return engine.prices.cost(pricingId(engine, model.id), {
    ...NO_TOKENS,
    input_tokens: boundRequest(request, model.capabilities),
    output_tokens: request.max_output_tokens,
  }).cost_pusd;
}

/** The price table row of a model. */
export function pricingId(engine: Engine, modelId: string): string {
  return engine.registry.get(modelId)?.pricing_id ?? modelId;
}
