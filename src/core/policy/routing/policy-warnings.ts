// What a valid policy file asks for in vain: models that this server cannot call.

import type { ModelRegistry } from '../registry/registry.ts';
import type { PolicyFile, PolicyKind } from './policy-file.ts';

/** One line for each reference to a model without a usable adapter, `<path>: <problem>`. */
export function policyWarnings(file: PolicyFile, kind: PolicyKind, registry: ModelRegistry): readonly string[] {
  const references: (readonly [string, string | null])[] = [
    [kind === 'global' ? 'global_default' : 'default', file.default_model],
    ...Object.entries(file.tiers ?? {}).map(([tier, model]) => [`tiers.${tier}`, model] as const),
    ...file.rules.map(({ use }, i) => [`rules[${i}].use`, use] as const),
  ];
  return references.flatMap(([path, model]) =>
    model === null || registry.isConfigured(model)
      ? []
      : [`${path}: ${model} is registered but its adapter has no credentials here; routing will pass it over`],
  );
}
