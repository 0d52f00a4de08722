// The registry of the engine's tests, its models served by a script.
import fs from 'node:fs';
import path from 'node:path';
import { createModelRegistry, type ModelRegistry, parseRegistry } from '#core/policy/registry/model-registry.ts';

export function engineRegistry(): ModelRegistry {
  const file = path.resolve(import.meta.dirname, '../support/registry.yaml');
  const parsed = parseRegistry(fs.readFileSync(file, 'utf8'), file);
  if (!parsed.ok) throw new Error(parsed.error.join('\n'));
  return createModelRegistry(parsed.value, new Set(['scripted']));
}
