// What the same work would have cost under other rules, tiers or models: the question, checked and completed (21 §2).
import type { TimeWindow } from '#protocol/analytics.ts';
import type { WhatIfBody } from '#protocol/api/analytics-bodies.ts';
import { type Issue, validationError } from '#protocol/errors.ts';
import { MODEL_ID_PATTERN } from '#protocol/model.ts';
import { TierSchema } from '#protocol/scalars.ts';
import { sha256Hex } from '#protocol/text/canonical-json.ts';
import { nameReference } from '#protocol/text/model-reference.ts';
import { findModel } from '../policy/registry/find-model.ts';
import type { ModelReference } from '../policy/registry/model-registry.ts';
import { parsePolicy, policyKind, policyWarnings, readPolicy } from '../policy/routing/policy-file.ts';
import type { Analytics, WhatIfQuery } from '../ports/report-reader.ts';
import { listUsableAdapters } from './gateway/choose-model.ts';
import { resolvePricingId } from './money/call-price.ts';
import { resolveWorkspace } from './session/session-records.ts';
import type { Engine, ModelCatalog } from './state/engine.ts';

/**
 * Throws `validation_error` with every fault of the body, `not_found` (workspace) or `workspace_not_allowed`.
 * @param window of the decisions and calls, as Unix milliseconds
 */
export async function askWhatIf(
  engine: Engine,
  analytics: Pick<Analytics, 'whatIf'>,
  body: WhatIfBody & { readonly reader?: WhatIfQuery['reader'] },
  window: TimeWindow,
): Promise<{ readonly report: Awaited<ReturnType<Analytics['whatIf']>>; readonly warnings: readonly string[] }> {
  const { registry, config, prices } = engine;
  const issues: Issue[] = [];
  const { routing, warnings } = readRouting(engine, body.routing, issues);
  const tiers = readTiers(engine, body.tiers, issues);
  const models = readReplacements(engine, body.models ?? {}, issues);
  if (routing === null && tiers === null && models.length === 0 && issues.length === 0)
    issues.push({ path: '', message: 'needs at least one of routing, tiers and models' });
  if (issues.length > 0) throw validationError(issues);
  const workspace = body.workspace_path === null ? null : await resolveWorkspace(engine, body.workspace_path);
  const report = await analytics.whatIf(
    {
      window,
      workspace_hash: workspace === null ? null : sha256Hex(workspace),
      group_by: body.group_by,
      ...(body.reader !== undefined && { reader: body.reader }),
      routing,
      tiers,
      models,
      catalog: {
        models: registry.models,
        adapters: registry.adapters,
        usable: new Set(registry.models.filter(({ id }) => registry.isConfigured(id)).map(({ adapter }) => adapter)),
        gateway: listUsableAdapters(engine),
        default_model: config.routing.global_default_model,
        allow_costlier_fallback: config.delegation.allow_costlier_fallback,
      },
    },
    prices.now(),
  );
  const { unpriced_calls: unpriced, unlinked_calls: unlinked } = report;
  if (unpriced > 0)
    warnings.push(`${unpriced} calls are at their stamped price: the other model lacks a rate, a fee or a multiplier`);
  if (unlinked > 0)
    warnings.push(
      `${unlinked} calls are at their stamped price: their decisions were purged or pruned, or lie earlier`,
    );
  return { report, warnings };
}

function readRouting(
  { registry }: Pick<ModelCatalog, 'registry'>,
  text: string | null,
  issues: Issue[],
): { readonly routing: WhatIfQuery['routing']; readonly warnings: string[] } {
  if (text === null) return { routing: null, warnings: [] };
  const yaml = readPolicy(text);
  const kind = policyKind(yaml);
  const parsed = parsePolicy(yaml, kind, registry);
  if (!parsed.ok) {
    issues.push(...parsed.error.map((message) => ({ path: 'routing', message })));
    return { routing: null, warnings: [] };
  }
  return { routing: { kind, text }, warnings: [...policyWarnings(parsed.value, kind, registry)] };
}

function readTiers(
  { registry }: Pick<ModelCatalog, 'registry'>,
  tiers: WhatIfBody['tiers'],
  issues: Issue[],
): WhatIfQuery['tiers'] {
  if (tiers === null) return null;
  const found = { ...tiers };
  for (const tier of TierSchema.options) {
    const model = findModel(registry, tiers[tier]);
    if (model.ok) found[tier] = model.value;
    else issues.push({ path: `tiers.${tier}`, message: model.error });
  }
  return found;
}

/** A model that two lines replace, by its id and by an alias for instance, is a fault. */
function readReplacements(
  engine: ModelCatalog,
  given: Readonly<Record<string, string>>,
  issues: Issue[],
): WhatIfQuery['models'] {
  const names = new Map<string, string>();
  return Object.entries(given).flatMap(([name, to]) => {
    const lines = readLine(engine, name, to, issues);
    for (const { from } of lines) {
      const replaced = nameReference(from.model, from.effort);
      const other = names.get(replaced);
      if (other !== undefined) issues.push({ path: `models.${name}`, message: `names the same model as ${other}` });
      names.set(replaced, name);
    }
    return lines;
  });
}

/** A model that the registry does not list any more may be replaced; what replaces it needs a price. */
function readLine(engine: ModelCatalog, from: string, to: string, issues: Issue[]): WhatIfQuery['models'] {
  const { registry, prices } = engine;
  const path = `models.${from}`;
  const replaced = findReference(engine, from);
  if (replaced === null && !MODEL_ID_PATTERN.test(from)) {
    issues.push({ path, message: 'is no model of this server; name it by its id, or as metis models lists it' });
    return [];
  }
  const found = findModel(registry, to);
  const other = found.ok ? registry.findReference(found.value) : null;
  if (!found.ok && !prices.has(to)) {
    issues.push({ path, message: found.error });
    return [];
  }
  const { id, effort } = other ?? { id: to, effort: null };
  if (!prices.has(resolvePricingId(engine, id))) {
    issues.push({ path, message: `${id} has no price; add one to a file of pricing.tables` });
    return [];
  }
  const { id: model, effort: of } = replaced ?? { id: from, effort: null };
  return [{ from: { model, effort: of }, to: { model: id, effort } }];
}

function findReference({ registry }: Pick<ModelCatalog, 'registry'>, name: string): ModelReference | null {
  const found = findModel(registry, name);
  if (!found.ok) return null;
  return registry.findReference(found.value);
}
