// Routing for all workspaces as it is found before a turn asks for it: what is wrong with its file and its default, in time (03 §6).
import fs from 'node:fs';
import type { ModelRegistry } from '#core/policy/registry/registry.ts';
import { parsePolicyFile } from '#core/policy/routing/policy-file.ts';
import { policyWarnings } from '#core/policy/routing/policy-warnings.ts';
import type { Config } from '#protocol/config.ts';

/** Lines that tell what is wrong: with errors nothing of it is in force, with warnings a part is asked for in vain. */
export interface RoutingCheck {
  readonly errors: readonly string[];
  readonly warnings: readonly string[];
}

/** The models that the configuration names, each by id or alias. */
export function checkDefaultModels({ routing, workers }: Config, registry: ModelRegistry): RoutingCheck {
  const checks = [
    checkModel('routing.global_default_model', routing.global_default_model, registry),
    checkModel('workers.creation.default_model', workers.creation.default_model, registry),
  ];
  return { errors: checks.flatMap(({ errors }) => errors), warnings: checks.flatMap(({ warnings }) => warnings) };
}

function checkModel(key: string, name: string | null, registry: ModelRegistry): RoutingCheck {
  if (name === null) return { errors: [], warnings: [] };
  const id = registry.resolveAlias(name);
  if (id === null) {
    const known = registry.models
      .flatMap((model) => (model.aliases.length > 0 ? model.aliases : [model.id]))
      .join(', ');
    return { errors: [`${key}: ${JSON.stringify(name)} is no model of the registry; it has ${known}`], warnings: [] };
  }
  const passedOver = `${key}: ${id} is registered but its adapter has no credentials here; routing will pass it over`;
  return { errors: [], warnings: registry.isConfigured(id) ? [] : [passedOver] };
}

/** Lines that name the file. Null = no file. */
export function checkRoutingFile(file: string, registry: ModelRegistry): RoutingCheck | null {
  let text: string;
  try {
    text = fs.readFileSync(file, 'utf8');
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    return code === 'ENOENT' ? null : { errors: [`${file}: cannot be read: ${code}`], warnings: [] };
  }
  const withFileName = (lines: readonly string[]) => lines.map((line) => `${file}: ${line}`);
  const parsed = parsePolicyFile(text, 'global', registry);
  return parsed.ok
    ? { errors: [], warnings: withFileName(policyWarnings(parsed.value, 'global', registry)) }
    : { errors: withFileName(parsed.error), warnings: [] };
}
