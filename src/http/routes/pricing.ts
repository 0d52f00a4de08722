// `/pricing`: the rates in force and those that were (08 §8).
import { z } from 'zod';
import { Sha256Schema, TimeSchema, UsdSchema } from '../../domain/scalars.ts';
import { isoTime } from '../../kernel/clock.ts';
import type { HttpApp } from '../app.ts';
import type { RouteDeps } from '../deps.ts';
import { notFound } from '../error-handler.ts';
import { operation } from '../operation.ts';

const rates = {
  input_per_mtok_usd: UsdSchema,
  output_per_mtok_usd: UsdSchema,
  cached_read_per_mtok_usd: UsdSchema,
  cache_write_per_mtok_usd: UsdSchema,
  cache_write_1h_per_mtok_usd: UsdSchema,
};
const PricingReply = z.object({
  active_version: z.string(),
  currency: z.literal('USD'),
  versions: z.array(z.object({ version: z.string(), source: z.string(), created_at: TimeSchema, active: z.boolean() })),
  table: z.object({
    pricing_version: z.string(),
    content_hash: Sha256Schema,
    source: z.string(),
    models: z.record(
      z.string(),
      z.object({ ...rates, long_context: z.array(z.object({ above_prompt_tokens: z.int(), ...rates })) }),
    ),
  }),
});

export function pricingRoutes(app: HttpApp, { engine, priceVersions }: RouteDeps): void {
  app.get(
    '/pricing',
    {
      schema: {
        querystring: z.strictObject({ version: z.string().min(1).default('current') }),
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
