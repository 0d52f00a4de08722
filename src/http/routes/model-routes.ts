// Models and how one is chosen: `/models`, `/pricing`, `/routing` and `/patterns` (05 §2, §3.5).

import { z } from 'zod';
import type { Engine } from '#core/engine/create-engine.ts';
import { checkPolicy, describePolicy, explainRoute, listPatterns } from '#core/engine/inspect-routing.ts';
import { setDefaultModel } from '#core/engine/manage-routing.ts';
import { type AvailabilitySnapshot, describeAvailability, snapshot } from '#core/policy/registry/availability.ts';
import { listEfforts } from '#core/policy/registry/model-efforts.ts';
import {
  CheckRoutingBody,
  CheckRoutingReply,
  ExplainRouteBody,
  ExplainRouteReply,
  ModelListReply,
  PatternListReply,
  PricingReply,
  RoutingDefaultReply,
  RoutingPolicyReply,
  SetDefaultModelBody,
} from '#protocol/api/model-bodies.ts';
import { isoTime } from '#protocol/clock.ts';
import type { Model, ModelEntry } from '#protocol/model.ts';
import { fromPusd } from '#protocol/money.ts';
import { WorkspacePathSchema } from '#protocol/scalars.ts';
import { compareText } from '#protocol/text/compare-text.ts';
import { isSimulated } from '#protocol/text/simulated.ts';
import { notFound } from '../error-handler.ts';
import type { HttpApp, RouteDeps } from '../http-app.ts';
import { operation } from '../operation.ts';
import { decodeCursor, encodeCursor, PageQuery } from '../params.ts';
import { toReader } from '../visibility.ts';

const TOKENS_PER_MTOK = 1_000_000n;

export function modelRoutes(app: HttpApp, { engine }: RouteDeps): void {
  app.get(
    '/models',
    {
      schema: operation({
        id: 'listModels',
        tag: 'models',
        summary: 'List the registered models by id.',
        results: { 200: ModelListReply },
        errors: [],
      }),
    },
    async (_request, reply) => {
      const outages = snapshot(engine.routes.availability, engine.clock.monotonic());
      const models = engine.registry.models.map((entry) => describeModel(engine, entry, outages));
      return reply.send({ models: models.sort((a, b) => compareText(a.id, b.id)) });
    },
  );
}

function describeModel(engine: Engine, entry: ModelEntry, outages: AvailabilitySnapshot): Model {
  const { id, adapter, tier, can_delegate, aliases, capabilities, superseded_by } = entry;
  return {
    id,
    adapter,
    tier,
    can_delegate,
    aliases: [...aliases],
    efforts: [...listEfforts(entry, null)],
    default_effort: entry.default_effort,
    capabilities,
    configured: engine.registry.isConfigured(id),
    superseded_by,
    simulated: isSimulated(id),
    availability: describeAvailability(outages, entry),
    pricing: describePricing(engine, entry),
  };
}

function describePricing({ prices }: Engine, { pricing_id }: ModelEntry): Model['pricing'] {
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

/** `/pricing`: current and earlier rates (08 §8). */
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
          summary: 'List price versions with the price table of one of them.',
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
        imported_on: engine.prices.importedOn,
        currency: 'USD',
        versions: stored.map(({ version, source, created_at }) => ({
          version,
          source,
          created_at: isoTime(created_at),
          active: version === active,
        })),
        table: await readPriceTable(request.query.version),
      });
    },
  );

  async function readPriceTable(asked: string) {
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

/** `/routing`: shows the policy in force, checks a file, explains a decision (05 §3.5). */
export function routingRoutes(app: HttpApp, { engine }: RouteDeps): void {
  app.get(
    '/routing/policy',
    {
      schema: {
        querystring: z.strictObject({
          workspace_path: WorkspacePathSchema.optional().describe('With the rules of this workspace.'),
        }),
        ...operation({
          id: 'getRoutingPolicy',
          tag: 'models',
          summary: 'Get the routing policy that applies to a turn that starts now.',
          results: { 200: RoutingPolicyReply },
          errors: ['validation_error', 'not_found', 'workspace_not_allowed', 'workspace_not_shared'],
        }),
      },
    },
    async (request, reply) => reply.send(await describePolicy(engine, request.query.workspace_path ?? null)),
  );

  app.post(
    '/routing/check',
    {
      schema: {
        body: CheckRoutingBody,
        ...operation({
          id: 'checkRoutingPolicy',
          tag: 'models',
          summary: 'Check the text of a routing file, or the files on disk. Nothing is loaded.',
          results: { 200: CheckRoutingReply },
          errors: ['not_found', 'workspace_not_allowed', 'workspace_not_shared'],
        }),
      },
    },
    async (request, reply) => {
      const { policy_yaml, workspace_path } = request.body;
      return reply.send(await checkPolicy(engine, policy_yaml, workspace_path));
    },
  );

  app.put(
    '/routing/default',
    {
      schema: {
        body: SetDefaultModelBody,
        ...operation({
          id: 'setDefaultModel',
          tag: 'models',
          summary: 'Write the default model of a workspace into its routing file. Everything else in the file stays.',
          results: { 200: RoutingDefaultReply },
          errors: [
            'not_found',
            'workspace_not_allowed',
            'workspace_not_shared',
            'model_not_configured',
            'unknown_alias',
          ],
        }),
      },
    },
    async (request, reply) => reply.send(await setDefaultModel(engine, request.body)),
  );

  app.post(
    '/routing/explain',
    {
      schema: {
        body: ExplainRouteBody,
        ...operation({
          id: 'explainRoute',
          tag: 'models',
          summary: 'Explain which model the first message of a new session would get. Nothing runs or is stored.',
          results: { 200: ExplainRouteReply },
          errors: [
            'not_found',
            'workspace_not_allowed',
            'workspace_not_shared',
            'model_not_configured',
            'unknown_alias',
            'override_missing_body',
          ],
        }),
      },
    },
    async (request, reply) => reply.send(await explainRoute(engine, request.body)),
  );
}

/** `/patterns`: what routing has learned in a workspace (12 §12.7). */
export function patternRoutes(app: HttpApp, { engine }: RouteDeps): void {
  app.get(
    '/patterns',
    {
      schema: {
        querystring: z.strictObject({
          workspace_path: WorkspacePathSchema.describe('The workspace that learned them.'),
          ...PageQuery,
        }),
        ...operation({
          id: 'listPatterns',
          tag: 'models',
          summary: 'List the turn shapes of a workspace, newest first, with the results of each model.',
          results: { 200: PatternListReply },
          errors: ['validation_error', 'not_found', 'workspace_not_allowed', 'workspace_not_shared'],
        }),
      },
    },
    async (request, reply) => {
      const { cursor, limit, workspace_path } = request.query;
      const filter = { workspace_path };
      const before = decodeCursor(cursor, filter);
      const { patterns, next } = await listPatterns(engine, workspace_path, {
        before,
        limit,
        reader: toReader(request.person),
      });
      return reply.send({ patterns, next_cursor: encodeCursor(next, filter) });
    },
  );
}
