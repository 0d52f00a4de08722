// The models that a run of `metis benchmark` uses, by id (17 §6).

import { type ModelRegistry, unknownModel } from '#core/policy/registry/registry.ts';
import { err, ok, type Result } from '#protocol/result.ts';
import type { Policy } from './policy.ts';

/**
 * The models of a policy by id; the planner is the first model of the tier `deep` where none is named.
 * Errors: one line per model that cannot be used, or cannot delegate.
 */
export function resolveModels(
  policy: Policy,
  registry: ModelRegistry,
): Result<{ readonly planner: string; readonly worker: string | null }, string[]> {
  const problems: string[] = [];
  const resolve = (name: string) => {
    const id = registry.resolveAlias(name);
    if (id === null) problems.push(unknownModel(name));
    else if (!registry.isConfigured(id)) problems.push(`${id} cannot be used: its provider has no key`);
    return id;
  };
  const planner = policy.planner === null ? registry.modelForTier('deep') : resolve(policy.planner);
  const worker = policy.worker === null ? null : resolve(policy.worker);
  if (policy.planner === null && planner === null)
    problems.push('no model of the tier deep can be used; name the planner with --model');
  if (problems.length === 0 && registry.get(planner!)?.can_delegate === false)
    problems.push(`${planner} cannot plan: its entry in the registry has can_delegate: false`);
  return problems.length === 0 ? ok({ planner: planner!, worker }) : err(problems);
}
