// `/pricing`: the rates in force and those that were (08 §8).
import { z } from 'zod';
import { PricingReply } from '#protocol/api/models.ts';
import { isoTime } from '#protocol/clock.ts';
import type { HttpApp } from '../app.ts';
import type { RouteDeps } from '../deps.ts';
import { notFound } from '../error-handler.ts';
import { operation } from '../operation.ts';

export function pricingRoutes(app: HttpApp, { engine, priceVersions }: RouteDeps): void {
  app.get(
    '/pricing',
    {
      schema: {
        querystring: z.strictObject({
          version: z.string().min(1).default('current').describe('A version of the price list, or current.'),
        }),
        ...operation({
          id: 'getPricing',
          tag: 'models',
          summary: 'Price versions, and the table of one of them.',
          results: { 200: PricingReply },
          errors: ['validation_error', 'not_found'],
        }),
      },
    },
    async (request, reply) => {
      const { version: active } = engine.prices;
      const stored = await priceVersions.list();
      return reply.send({
        active_version: active,
        currency: 'USD',
        versions: stored.map(({ version, source, created_at }) => ({
          version,
          source,
          created_at: isoTime(created_at),
          active: version === active,
        })),
        table: await tableOf(request.query.version),
      });
    },
  );

  async function tableOf(asked: string) {
    const { prices } = engine;
    if (asked === 'current' || asked === prices.version) {
      const { version: pricing_version, contentHash: content_hash, source, models } = prices;
      return { pricing_version, content_hash, source, models };
    }
    const stored = await priceVersions.get(asked);
    if (stored === null) throw notFound('pricing_version', asked);
    const { version: pricing_version, content_hash, source, models_json } = stored;
    return { pricing_version, content_hash, source, models: JSON.parse(models_json) as typeof prices.models };
  }
}
