// `/analytics/*`: parameters in, one report out (07). No route here writes.
import type { FastifyRequest } from 'fastify';
import { z } from 'zod';
import { askWhatIf } from '#core/engine/ask-what-if.ts';
import type { Engine } from '#core/engine/create-engine.ts';
import { compareQuality } from '#core/engine/inspect-routing.ts';
import {
  encodeCursor,
  parseCostQuery,
  parseLedgerQuery,
  parseSavingsQuery,
  parseTraceQuery,
  parseVerifiedQuery,
  parseWindow,
  type RawQuery,
} from '#core/policy/analytics/query.ts';
import { DAY_MS } from '#core/policy/analytics/rollup.ts';
import { WINDOW_DAYS } from '#core/policy/learning/compare-models.ts';
import { type PriceTable, storedPriceTable } from '#core/policy/pricing/price-table.ts';
import type { PriceVersions } from '#core/ports/price-versions.ts';
import type { Analytics } from '#core/ports/report-reader.ts';
import {
  type CallFilter,
  CostReportSchema,
  type CostRow,
  LedgerReportSchema,
  QualityReportSchema,
  ReliabilityReportSchema,
  RoutingReportSchema,
  SavingsReportSchema,
  type TimeWindow,
  type TraceQuery,
  VERIFIED_GROUPS,
  VerifiedReportSchema,
  WhatIfReportSchema,
} from '#protocol/analytics.ts';
import { WhatIfBody } from '#protocol/api/analytics-bodies.ts';
import { isoTime } from '#protocol/clock.ts';
import { type Issue, validationError } from '#protocol/errors.ts';
import { type Person, toPersonRef } from '#protocol/people/person.ts';
import type { Result } from '#protocol/result.ts';
import { WorkspacePathSchema } from '#protocol/scalars.ts';
import { ForecastCheckSchema } from '#protocol/what-if/cost-ahead.ts';
import type { HttpApp } from '../http-app.ts';
import { operation } from '../operation.ts';
import { isHidden, toReader } from '../visibility.ts';

export interface AnalyticsDeps {
  readonly engine: Engine;
  readonly analytics: Analytics;
  readonly priceVersions: PriceVersions;
}

const text = (description: string) => z.string().optional().describe(description);
const window = {
  from: text('RFC 3339 with offset, inclusive, or all. Default: 7 days ago.'),
  to: text('RFC 3339 with offset, exclusive. Default: now.'),
};
const traceFilters = { session: text('Session id.'), model: text('Model id.'), provider: text('Provider.') };
const callFilters = {
  ...traceFilters,
  parent_session: text('Planner session id; a top-level session is its own parent.'),
  workspace_hash: text('SHA-256 of the workspace path.'),
  delegation_tier: text('fast, balanced or deep.'),
  worker_name: text('Named worker.'),
  door: text('api, gateway, mcp or acp.'),
  caller: text('Name of a token or of a key of the gateway; empty = without one.'),
  owner: text('Token that owns the sessions, by name or id; me = of the caller, empty = no token.'),
  include_workers: text('true folds workers into their parent session, false leaves their calls out.'),
};
// Loose: an unknown parameter is a warning. Values are read by the policy, which reports all faults at once.
const CostParameters = z.looseObject({
  ...window,
  ...callFilters,
  group_by: text('none, or one or two dimensions separated by a comma. Default: model.'),
  order: text('cost, calls, tokens or key.'),
  dir: text('asc or desc.'),
  limit: text('Default 1000, at most 10000.'),
  cursor: text('next_cursor of the page before.'),
  pricing: text('stamped (default), current or a known pricing version.'),
});
const SavingsParameters = z.looseObject({
  ...window,
  ...callFilters,
  baseline: text('Model id or alias, or planner. Default: analytics.savings_baseline.'),
});
const LedgerParameters = z.looseObject({ ...window, provider: text('Provider.') });
const VerifiedParameters = z.looseObject({
  ...window,
  group_by: z.enum(VERIFIED_GROUPS).optional().describe('Default: model.'),
});
const TraceParameters = z.looseObject({ ...window, ...traceFilters });

export function analyticsRoutes(app: HttpApp, { engine, analytics, priceVersions }: AnalyticsDeps): void {
  const { clock, config, prices, registry } = engine;

  app.get(
    '/analytics/cost',
    {
      schema: {
        querystring: CostParameters,
        ...operation({
          id: 'getCost',
          tag: 'analytics',
          summary: 'Report the cost of model calls by group.',
          results: { 200: CostReportSchema },
          errors: ['validation_error'],
        }),
      },
    },
    async (request, reply) => {
      const parsed = requireValid(parseCostQuery(resolveOwner(request), clock.now()));
      const pricer = await priceTable(parsed.pricing);
      const query = restrict(parsed.query, request.person);
      const { data: rows, totals, simulated, next } = await analytics.cost(query, pricer);
      const data = Array.isArray(rows) ? rows.map(nameOwner) : rows;
      return reply.send({
        ...envelope(parsed.query.window, parsed.warnings),
        ...(pricer && { pricing_mode: 'repriced', repriced_version: pricer.version }),
        data,
        totals,
        simulated,
        next_cursor: next && encodeCursor(parsed, next),
      });
    },
  );

  app.get(
    '/analytics/savings',
    {
      schema: {
        querystring: SavingsParameters,
        ...operation({
          id: 'getSavings',
          tag: 'analytics',
          summary: 'Report what the same tokens would have cost on another model.',
          results: { 200: SavingsReportSchema },
          errors: ['validation_error'],
        }),
      },
    },
    async (request, reply) => {
      const parsed = requireValid(parseSavingsQuery(resolveOwner(request), clock.now()));
      const baseline = baselineModel(parsed.baseline ?? config.analytics.savings_baseline);
      const query = restrict(parsed.query, request.person);
      const data = await analytics.savings({ ...query, baseline }, prices);
      const partial = data.rows_missing_from_price_table > 0 ? ['savings_partial'] : [];
      return reply.send({ ...envelope(parsed.query.window, [...parsed.warnings, ...partial]), data });
    },
  );

  app.get(
    '/analytics/routing',
    {
      schema: {
        querystring: TraceParameters,
        ...operation({
          id: 'getRoutingStats',
          tag: 'analytics',
          summary: 'Report how often each routing slot chose, rejected or deferred.',
          results: { 200: RoutingReportSchema },
          errors: ['validation_error'],
        }),
      },
    },
    async (request, reply) => {
      const { query, warnings } = requireValid(parseTraceQuery(request.query, clock.now()));
      const data = await analytics.routing(await hideSession(query, request.person));
      return reply.send({ ...envelope(query.window, warnings), data });
    },
  );

  app.get(
    '/analytics/reliability',
    {
      schema: {
        querystring: TraceParameters,
        ...operation({
          id: 'getReliability',
          tag: 'analytics',
          summary: 'Report how the calls of each model ended and how long they took.',
          results: { 200: ReliabilityReportSchema },
          errors: ['validation_error'],
        }),
      },
    },
    async (request, reply) => {
      const { query, warnings } = requireValid(parseTraceQuery(request.query, clock.now()));
      const data = await analytics.reliability(await hideSession(query, request.person));
      return reply.send({ ...envelope(query.window, warnings), data });
    },
  );

  app.get(
    '/analytics/verified',
    {
      schema: {
        querystring: VerifiedParameters,
        ...operation({
          id: 'getVerifiedResults',
          tag: 'analytics',
          summary: 'Report what checked workers cost, by the results that their checks confirmed.',
          results: { 200: VerifiedReportSchema },
          errors: ['validation_error'],
        }),
      },
    },
    async (request, reply) => {
      const { query, warnings } = requireValid(parseVerifiedQuery(request.query, clock.now()));
      const reader = toReader(request.person);
      const { groups, simulated } = await analytics.verified({ ...query, ...(reader !== null && { reader }) }, prices);
      return reply.send({ ...envelope(query.window, warnings), data: [...groups], simulated });
    },
  );
  app.get(
    '/analytics/ledger',
    {
      schema: {
        querystring: LedgerParameters,
        ...operation({
          id: 'getLedgerDays',
          tag: 'analytics',
          summary: "Report the ledger by day and model, to set it beside a provider's bill.",
          results: { 200: LedgerReportSchema },
          errors: ['validation_error'],
        }),
      },
    },
    async (request, reply) => {
      const { query, warnings } = requireValid(parseLedgerQuery(request.query, clock.now()));
      return reply.send({ ...envelope(query.window, warnings), data: await analytics.ledgerDays(query) });
    },
  );

  app.get(
    '/analytics/quality',
    {
      schema: {
        querystring: z.strictObject({ workspace_path: WorkspacePathSchema.describe('The workspace to look at.') }),
        ...operation({
          id: 'getQuality',
          tag: 'analytics',
          summary: 'Report task shapes that a cheaper model does as well, with the saving per day.',
          results: { 200: QualityReportSchema },
          errors: ['validation_error', 'not_found', 'workspace_not_allowed', 'workspace_not_shared'],
        }),
      },
    },
    async (request, reply) => {
      const to = clock.now();
      const window = { from: to - WINDOW_DAYS * DAY_MS, to };
      const data = await compareQuality(engine, analytics, {
        workspace: request.query.workspace_path,
        window,
        reader: toReader(request.person),
      });
      return reply.send({ ...envelope(window, []), data });
    },
  );

  app.post(
    '/analytics/what-if',
    {
      schema: {
        body: WhatIfBody,
        ...operation({
          id: 'askWhatIf',
          tag: 'analytics',
          summary: 'Report what the same work would have cost under other rules, tiers or models. Nothing is stored.',
          results: { 200: WhatIfReportSchema },
          errors: ['validation_error', 'not_found', 'workspace_not_allowed', 'workspace_not_shared'],
        }),
      },
    },
    async (request, reply) => {
      const window = requireValid(parseWindow(request.body, clock.now()));
      const reader = toReader(request.person);
      const { report, warnings } = await askWhatIf(
        engine,
        analytics,
        { ...request.body, ...(reader !== null && { reader }) },
        window,
      );
      const { unpriced_calls: _, unlinked_calls: __, ...answer } = report;
      return reply.send({ ...envelope(window, warnings), ...answer });
    },
  );
  /** Names become ids: of a token, of a key of the gateway, or `me`. */
  function resolveOwner({ query, person }: FastifyRequest): RawQuery {
    const raw = query as RawQuery;
    const { owner } = raw;
    if (typeof owner !== 'string' || owner === '') return raw;
    if (owner === 'me') return { ...raw, owner: person.id ?? '' };
    return { ...raw, owner: engine.people.findId(owner) ?? owner };
  }

  function nameOwner(row: CostRow): CostRow {
    if (row.owner == null) return row;
    const { id } = row.owner;
    return { ...row, owner: toPersonRef(id, engine.people.find(id)?.name ?? null) };
  }

  /** A private session of another owner has no calls. */
  async function hideSession(query: TraceQuery, person: Person): Promise<TraceQuery> {
    const { session } = query.filter;
    if (session === null || !(await isHidden(engine, person, session))) return query;
    return { ...query, filter: { ...query.filter, session: 'none' } };
  }

  app.get(
    '/analytics/forecast',
    {
      schema: {
        querystring: z.strictObject({}),
        ...operation({
          id: 'getForecastCheck',
          tag: 'analytics',
          summary: 'Compare the newest 200 forecasts with what their turns cost.',
          results: { 200: ForecastCheckSchema },
          errors: ['validation_error'],
        }),
      },
    },
    async (_request, reply) => reply.send(await analytics.forecast()),
  );

  function envelope({ from, to }: TimeWindow, warnings: readonly string[]) {
    return {
      window: { start: isoTime(from), end: isoTime(to) },
      current_pricing_version: prices.version,
      warnings,
    };
  }

  /** The rates to price with again; null for what was stamped. */
  async function priceTable(pricing: string): Promise<PriceTable | null> {
    if (pricing === 'stamped') return null;
    if (pricing === 'current' || pricing === prices.version) return prices;
    const stored = await priceVersions.get(pricing);
    if (!stored)
      throw toParameterError('pricing', 'must be stamped, current or a pricing version that was active before');
    const { version, source, models_json } = stored;
    return storedPriceTable(
      { version, source, models: JSON.parse(models_json) },
      { freeProviders: config.pricing.free_providers },
    );
  }

  function baselineModel(baseline: string): string {
    if (baseline === 'planner') return baseline;
    const model = registry.resolveAlias(baseline) ?? baseline;
    if (!prices.has(model)) {
      throw toParameterError(
        'baseline',
        `no price for ${model} in version ${prices.version}; name a priced model, or planner`,
      );
    }
    return model;
  }
}

/** Groups that would name private sessions of others are one. */
function restrict<Q extends { readonly filter: CallFilter }>(query: Q, person: Person): Q {
  const reader = toReader(person);
  if (reader === null) return query;
  return { ...query, filter: { ...query.filter, reader } };
}

function requireValid<T>(parsed: Result<T, readonly Issue[]>): T {
  if (!parsed.ok) throw validationError(parsed.error);
  return parsed.value;
}

function toParameterError(path: string, message: string) {
  return validationError([{ path, message }]);
}
