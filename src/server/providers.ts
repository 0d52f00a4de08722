// The registry this server runs with and the adapters it can use of it (11.9, 11.11).

import fs from 'node:fs';
import path from 'node:path';
import { type AdapterConfig, keyAdvice } from '#core/policy/registry/adapter-config.ts';
import type { RegistryFile } from '#core/policy/registry/registry.ts';
import type { Logger } from '#core/ports/log.ts';
import type { Providers } from '#core/ports/provider.ts';
import { createHostRule, type HostSettings } from '#http/access.ts';
import { type AdapterSetup, createAdapters } from '#models/adapters/create-adapters.ts';
import { createThreadedParser, type ThreadedParser } from '#models/threads/threaded-parser.ts';
import { createThreadedTokenizer, type ThreadedTokenizer } from '#models/threads/threaded-tokenizer.ts';
import type { Clock } from '#protocol/clock.ts';
import { StartupError } from '#protocol/errors.ts';
import { type Credentials, getBaseUrlVariable } from './credentials.ts';
import { readRegistry } from './registry-file.ts';
import { findThreadProgram } from './storage/thread-program.ts';

export interface ProviderSettings extends Omit<AdapterSetup, 'adapters' | 'readScenario'> {
  readonly registryPath: string;
  readonly packageDir: string;
  /** A scenario file: only the scripted provider serves, and it plays this. */
  readonly scenario: string | null;
  /** Where this server listens. */
  readonly server: ServerAddress;
}

type ServerAddress = HostSettings & { readonly port: number };

export interface StartedProviders {
  /** Every model of the registry, usable or not. */
  readonly file: RegistryFile;
  readonly providers: Providers;
  /** The sentence for a person whose server has no real model; null = it has one. */
  readonly notice: string | null;
}

/** Throws `StartupError`: `registry_invalid`, `scenario_invalid`, `provider_is_server`. */
export function startProviders(settings: ProviderSettings): StartedProviders {
  const own = readRegistry(settings.registryPath, settings.packageDir);
  const file = settings.scenario === null ? own : keepScripted(own, settings.scenario);
  const circles = findOwnAddresses(file.adapters, settings.credentials, settings.server);
  if (circles.length > 0) throw new StartupError('provider_is_server', circles);
  const providers = createAdapters({
    ...settings,
    adapters: file.adapters,
    readScenario: (name) => readScenario(name, settings.packageDir),
  });
  const real = [...providers.keys()].some((id) => file.adapters.get(id)?.type !== 'scripted');
  return { file, providers, notice: real ? null : composeNotice(file, providers, settings) };
}

/**
 * One line for each adapter whose address is the server's own: a call would come back as another one, without end. Who
 * points a client at the gateway by a variable of the shell easily starts the server with it (11 §9, 19 §2.1).
 */
export function findOwnAddresses(
  adapters: ReadonlyMap<string, AdapterConfig>,
  credentials: Pick<Credentials, 'forAdapter'>,
  server: ServerAddress,
): string[] {
  const isOurs = createHostRule(server);
  return [...adapters].flatMap(([id, adapter]) => {
    if (adapter.type === 'scripted') return [];
    const written = adapter.base_url ?? credentials.forAdapter(id, adapter)?.base_url ?? null;
    if (written === null || !URL.canParse(written)) return [];
    const { protocol, host, port } = new URL(written);
    const at = port === '' ? (protocol === 'https:' ? 443 : 80) : Number(port);
    if (at !== server.port || !isOurs(host, server.port)) return [];
    const cure =
      adapter.base_url === null
        ? `${getBaseUrlVariable(id)} is for the clients of this server; start the server without it`
        : 'write the address of the provider into the registry';
    return [`${id}: its address ${written} is this server itself; ${cure}, or choose another --port`];
  });
}

function composeNotice({ adapters }: RegistryFile, providers: Providers, settings: ProviderSettings): string {
  const { credentials, envFile, registryPath } = settings;
  const real = [...adapters].filter(([, adapter]) => adapter.type !== 'scripted');
  if (providers.size === 0) {
    const advice = real.map(
      ([id, adapter]) => `${id}: ${keyAdvice(adapter, credentials.keyName(id, adapter), envFile)}`,
    );
    const what = advice.length === 0 ? 'it has none' : advice.join('. ');
    return `No adapter of ${registryPath} can be used, so every message is refused; ${what}.`;
  }
  if (real.length === 0) return `Scripted models answer: ${registryPath} has no other adapter.`;
  const names = real.map(([id, adapter]) => credentials.keyName(id, adapter));
  const listed = [names.slice(0, -1).join(', '), names.at(-1)].filter((part) => part !== '').join(' or ');
  const keyless = real.some(([, adapter]) => adapter.base_url !== null)
    ? ' A server that needs no key has key_optional: true in the registry.'
    : '';
  return `No provider key is configured, so scripted models answer; set ${listed}, or write it to ${envFile}, for real ones.${keyless}`;
}

/** Adapters of type scripted with their models. */
function keepScripted(file: RegistryFile, scenario: string | null): RegistryFile {
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

export interface Threads {
  readonly bodies: ThreadedParser;
  readonly tokenizer: ThreadedTokenizer;
  close(): Promise<void>;
}

/** Each thread starts with its first text. */
export function startThreads(packageDir: string, clock: Clock, log: Logger): Threads {
  const bodies = createThreadedParser(findThreadProgram(packageDir, 'models/threads/parser-thread'), log);
  const program = findThreadProgram(packageDir, 'models/threads/tokenizer-thread');
  const tokenizer = createThreadedTokenizer(program, clock, log);
  return {
    bodies,
    tokenizer,
    async close() {
      await Promise.all([bodies.close(), tokenizer.close()]);
    },
  };
}
