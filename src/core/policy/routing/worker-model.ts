// The model that a worker starts on: that of its definition or its tier, with the effort that was asked for (13 §8, 22 §1).
import type { Rung } from '#protocol/check.ts';
import { err, ok, type Result } from '#protocol/result.ts';
import type { Effort, Tier } from '#protocol/scalars.ts';
import { describeUnknownModel } from '../registry/find-model.ts';
import type { ModelRegistry } from '../registry/model-registry.ts';
import { type RoutingPolicies, tierModel } from './policy-file.ts';

/** The tier that a worker's model is looked up by; null = its definition names the model. */
export function findModelTier({ model, tier }: Pick<WorkerModelRequest, 'model' | 'tier'>): Tier | null {
  if (model !== null) return null;
  return tier;
}

export interface WorkerModelRequest {
  /** Of a definition, id or alias; null = the tier decides. */
  readonly model: string | null;
  readonly tier: Tier | null;
  /** Wins over that of the reference. */
  readonly effort: Effort | null;
}

/** A model reference; null = no model. The error lists the efforts of a model that lacks the effort. */
export function chooseWorkerModel(
  { model, tier, effort }: WorkerModelRequest,
  policies: RoutingPolicies,
  registry: ModelRegistry,
): Result<string | null, string> {
  let reference: string | null = null;
  if (model !== null) reference = registry.resolveAlias(model);
  else if (tier !== null) reference = tierModel(policies, registry, tier);
  if (reference === null || effort === null) return ok(reference);
  const wanted = `${registry.findReference(reference)?.id ?? reference}:${effort}`;
  const found = registry.resolveAlias(wanted);
  if (found === null) return err(describeUnknownModel(registry, wanted));
  return ok(found);
}

/** What is wanted after these rungs: `tier:` puts another tier in the place of the model, `effort:` another effort, `retry` neither. */
export function climbRungs(start: WorkerModelRequest, rungs: readonly Rung[]): WorkerModelRequest {
  let wanted = start;
  for (const rung of rungs) {
    const [kind, value] = rung.split(':') as [string, string];
    if (kind === 'tier') wanted = { model: null, tier: value as Tier, effort: wanted.effort };
    if (kind === 'effort') wanted = { ...wanted, effort: value as Effort };
  }
  return wanted;
}

/** The model after these rungs. Each builds on the ones before it. The error is the reason why there is none. */
export function chooseRungModel(
  start: WorkerModelRequest,
  rungs: readonly Rung[],
  policies: RoutingPolicies,
  registry: ModelRegistry,
): Result<string | null, string> {
  const wanted = climbRungs(start, rungs);
  const found = chooseWorkerModel(wanted, policies, registry);
  const needsModel = wanted.tier !== null || wanted.model !== null;
  if (found.ok && found.value === null && needsModel) return err(`no model serves the tier "${wanted.tier}"`);
  return found;
}
