// The registry this server runs with and the adapters it can use of it (11.9, 11.11).
import fs from 'node:fs';
import path from 'node:path';
import { StartupError } from '../kernel/errors.ts';
import type { RegistryFile } from '../policy/registry/registry.ts';
import type { Providers } from '../ports/provider.ts';
import { type AdapterSetup, createAdapters } from '../provider/adapters.ts';
import { readRegistry } from './registry-file.ts';

export interface ProviderSettings extends Omit<AdapterSetup, 'adapters' | 'readScenario'> {
  readonly registryPath: string;
  readonly packageDir: string;
  /** A scenario file: only the scripted provider serves, and it plays this. */
  readonly scenario: string | null;
}

export interface StartedProviders {
  /** Every model of the registry, usable or not. */
  readonly file: RegistryFile;
  readonly providers: Providers;
  /** Only scripted models answer. */
  readonly scripted: boolean;
}

/** Throws `StartupError`: `registry_invalid`, `scenario_invalid`. */
export function startProviders(settings: ProviderSettings): StartedProviders {
  const own = readRegistry(settings.registryPath);
  const file = settings.scenario === null ? own : scriptedPart(own, settings.scenario);
  const start = (adapters: RegistryFile['adapters']) =>
    createAdapters({ ...settings, adapters, readScenario: (name) => readScenario(name, settings.packageDir) });

  const providers = start(file.adapters);
  if (providers.size > 0) {
    return {
      file,
      providers,
      scripted: [...providers.keys()].every((id) => file.adapters.get(id)?.type === 'scripted'),
    };
  }
  // A registry of one's own without a usable adapter: the shipped stand-in registers itself.
  const standIn = scriptedPart(readRegistry(path.join(settings.packageDir, 'config', 'registry.yaml')), null);
  const taken = new Set(standIn.models.map((model) => model.id));
  return {
    file: {
      adapters: new Map([...file.adapters, ...standIn.adapters]),
      models: [...file.models.filter((model) => !taken.has(model.id)), ...standIn.models],
    },
    providers: start(standIn.adapters),
    scripted: true,
  };
}

/** Adapters of type scripted with their models. */
function scriptedPart(file: RegistryFile, scenario: string | null): RegistryFile {
  const adapters = new Map(
    [...file.adapters]
      .filter(([, adapter]) => adapter.type === 'scripted')
      .map(([id, adapter]) => [id, scenario === null ? adapter : { ...adapter, scenario }] as const),
  );
  return { adapters, models: file.models.filter((model) => adapters.has(model.adapter)) };
}

/** @param name absolute path; null = the built-in scenario */
function readScenario(name: string | null, packageDir: string): { readonly path: string; readonly text: string } {
  const file = name ?? path.join(packageDir, 'config', 'scenarios', 'demo.yaml');
  try {
    return { path: file, text: fs.readFileSync(file, 'utf8') };
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    throw new StartupError('scenario_invalid', [`${file}: the scenario cannot be read: ${code}`]);
  }
}
