// `/models`: what may be chosen, whether it answers, and what it costs (05 §2, §3.5).

import type { Engine } from '#core/engine/create-engine.ts';
import { type AvailabilitySnapshot, availabilityOf, snapshot } from '#core/policy/registry/availability.ts';
import { ModelListReply } from '#protocol/api/models.ts';
import type { Model, ModelEntry } from '#protocol/model.ts';
import { fromPusd } from '#protocol/money.ts';
import type { HttpApp } from '../app.ts';
import type { RouteDeps } from '../deps.ts';
import { operation } from '../operation.ts';

const TOKENS_PER_MTOK = 1_000_000n;

export function modelRoutes(app: HttpApp, { engine }: RouteDeps): void {
  app.get(
    '/models',
    {
      schema: operation({
        id: 'listModels',
        tag: 'models',
        summary: 'Every registered model, by id.',
        results: { 200: ModelListReply },
        errors: [],
      }),
    },
    async (_request, reply) => {
      const outages = snapshot(engine.routes.availability, engine.clock.monotonic());
      const models = engine.registry.models.map((entry) => viewOf(engine, entry, outages));
      return reply.send({ models: models.sort((a, b) => (a.id < b.id ? -1 : 1)) });
    },
  );
}

function viewOf(engine: Engine, entry: ModelEntry, outages: AvailabilitySnapshot): Model {
  const { id, adapter, tier, can_delegate, aliases, capabilities } = entry;
  return {
    id,
    adapter,
    tier,
    can_delegate,
    aliases: [...aliases],
    capabilities,
    configured: engine.registry.isConfigured(id),
    availability: availabilityOf(outages, entry),
    pricing: pricingOf(engine, entry),
  };
}

function pricingOf({ prices }: Engine, { pricing_id }: ModelEntry): Model['pricing'] {
  const rates = prices.ratesFor(pricing_id, 0);
  if (rates === null) return null;
  const perMtok = (rate: bigint) => fromPusd(rate * TOKENS_PER_MTOK);
  return {
    input_per_mtok: perMtok(rates.input),
    output_per_mtok: perMtok(rates.output),
    cached_read_per_mtok: perMtok(rates.cached_read),
    cache_creation_per_mtok: perMtok(rates.cache_write),
    currency: 'USD',
    pricing_version: prices.version,
  };
}
