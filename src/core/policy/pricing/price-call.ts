// Which row of a price table prices a call (08 §5).
import { type ModelEntry, providerOf } from '#protocol/model.ts';
import type { Pusd } from '#protocol/money.ts';
import type { TokenUsage } from '#protocol/usage.ts';
import type { PriceTable } from './price-table.ts';

/** The id of the model that answered; null when the provider named none, or the one that was asked for. */
export function servedModelId(model: Pick<ModelEntry, 'id' | 'wire_name'>, served: string | null): string | null {
  return served === null || served === model.wire_name ? null : `${providerOf(model.id)}:${served}`;
}

/** Whether another model than the one asked answered, one that has a price of its own. */
export function isAnsweredByOther(
  table: Pick<PriceTable, 'models'>,
  model: Pick<ModelEntry, 'id' | 'wire_name'>,
  served: string | null,
): boolean {
  const id = servedModelId(model, served);
  return id !== null && id !== model.id && Object.hasOwn(table.models, id);
}

/**
 * Prices one call: the answered model where another one than asked for answered and has a row of its own,
 * else the asked model's `pricing_id`. An unknown model costs nothing and is `priced: false`.
 * @param call.servedModelId canonical id of the model that answered, null for the asked one (see `servedModelId`)
 */
export function priceCall(call: {
  readonly table: PriceTable;
  readonly servedModelId: string | null;
  readonly pricingId: string;
  readonly modelId: string;
  readonly usage: TokenUsage;
}): { readonly cost_pusd: Pusd; readonly priced: boolean } {
  const { table, servedModelId: served } = call;
  // Only a written row counts: the implicit zero of a free provider says nothing about this very model.
  const answeredByOther = served !== null && served !== call.modelId && Object.hasOwn(table.models, served);
  return table.cost(answeredByOther ? served : call.pricingId, call.usage);
}
