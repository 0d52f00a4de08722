// The model registry a server starts with.
import fs from 'node:fs';
import path from 'node:path';
import { usableAdapters } from '#core/policy/registry/adapter-config.ts';
import {
  createModelRegistry,
  type KnownModels,
  type ModelRegistry,
  parseRegistry,
  type RegistryFile,
} from '#core/policy/registry/registry.ts';
import { StartupError } from '#protocol/errors.ts';
import type { ModelEntry } from '#protocol/model.ts';
import type { Credentials } from './credentials.ts';

/**
 * Throws `StartupError('registry_invalid')` with one line per fault.
 * @param packageDir whose shipped registry has the capabilities that an entry of `file` leaves out
 */
export function readRegistry(file: string, packageDir: string): RegistryFile {
  const shipped = path.join(packageDir, 'config', 'registry.yaml');
  let known: ReadonlyMap<string, ModelEntry> | null = null;
  return parseRegistryFile(file, () => {
    known ??= new Map(file === shipped ? [] : parseRegistryFile(shipped).models.map((model) => [model.id, model]));
    return known;
  });
}

function parseRegistryFile(file: string, known?: KnownModels): RegistryFile {
  let text: string;
  try {
    text = fs.readFileSync(file, 'utf8');
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    throw new StartupError('registry_invalid', [`${file}: the model registry cannot be read: ${code}`]);
  }
  const parsed = parseRegistry(text, file, known);
  if (!parsed.ok) throw new StartupError('registry_invalid', parsed.error);
  return parsed.value;
}

/** The registry as a server with these keys would have it. */
export function createUsableRegistry(file: RegistryFile, credentials: Credentials): ModelRegistry {
  const usable = usableAdapters(file.adapters, (id, adapter) => credentials.forAdapter(id, adapter) !== null);
  return createModelRegistry(file, usable);
}
