// The price of a call, stamped once (08 §6).

import { priceCall, servedModelId } from '#core/policy/pricing/price-call.ts';
import type { ModelEntry } from '#protocol/model.ts';
import { fromPusd, type Pusd } from '#protocol/money.ts';
import type { TokenUsage, Usage } from '#protocol/usage.ts';
import type { Engine } from '../state/engine.ts';

/** A part of a call that is priced by itself: its own model, its own long-context step. */
export interface Round {
  readonly model: ModelEntry;
  /** Name of the model that answered; null = that one. */
  readonly served: string | null;
  readonly usage: TokenUsage;
}

/** Clients and providers may name any model: beyond it the name that was logged first is logged again. */
const MAX_UNPRICED = 1000;

/**
 * @param call `served` is the model that answered, null for the one asked; `where` goes into a warning; `rounds` add up
 * to `tokens`, absent = one
 */
export function stampedUsage(
  engine: Engine,
  model: ModelEntry,
  tokens: TokenUsage,
  call: {
    readonly served: string | null;
    readonly latency: number;
    readonly where: object;
    readonly rounds?: readonly Round[];
  },
): { readonly usage: Usage; readonly cost: Pusd } {
  const rounds = call.rounds ?? [{ model, served: call.served, usage: tokens }];
  const prices = rounds.map((round) =>
    priceCall({
      table: engine.prices,
      servedModelId: servedModelId(round.model, round.served),
      pricingId: round.model.pricing_id,
      modelId: round.model.id,
      usage: round.usage,
    }),
  );
  const cost_pusd = prices.reduce((sum, one) => sum + one.cost_pusd, 0n) as Pusd;
  const unpriced = rounds[prices.findIndex((one) => !one.priced)]?.model.id;
  if (unpriced !== undefined) warnOfUnpriced(engine, unpriced, call.where);
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
      priced: unpriced === undefined,
      latency_ms: Math.round(call.latency),
    },
    cost: cost_pusd,
  };
}

/** One line in the log for each model. */
function warnOfUnpriced({ unpriced, prices, log }: Engine, model: string, where: object): void {
  if (unpriced.has(model)) return;
  unpriced.add(model);
  if (unpriced.size > MAX_UNPRICED) unpriced.delete(unpriced.values().next().value!);
  log.warn({ ...where, model, pricing_version: prices.version }, 'no price for this model');
}
