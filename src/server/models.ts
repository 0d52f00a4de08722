// The models of a server, as its files say: registry, adapters, prices and routing rules (11.9, 11.11, 08 §2, 03 §6).

import fs from 'node:fs';
import path from 'node:path';
import { parsePriceTable, type RawTable } from '#core/policy/pricing/price-file.ts';
import { buildPriceTable, type PriceTable } from '#core/policy/pricing/price-table.ts';
import { isOlder, selectUpdate } from '#core/policy/pricing/price-update.ts';
import { type AdapterConfig, keyAdvice, usableAdapters } from '#core/policy/registry/adapter-config.ts';
import {
  createModelRegistry,
  type KnownModels,
  type ModelRegistry,
  parseRegistry,
  type RegistryFile,
} from '#core/policy/registry/model-registry.ts';
import { parsePolicyFile, policyWarnings } from '#core/policy/routing/policy-file.ts';
import type { Journal } from '#core/ports/journal-writer.ts';
import type { Logger } from '#core/ports/logger.ts';
import type { ProviderAdapter, Providers } from '#core/ports/provider.ts';
import { createHostRule, type HostSettings } from '#http/access.ts';
import { type AdapterSetup, createAdapters } from '#models/adapters/create-adapters.ts';
import { createThreadedParser, type ThreadedParser } from '#models/threads/threaded-parser.ts';
import { createThreadedTokenizer, type ThreadedTokenizer } from '#models/threads/threaded-tokenizer.ts';
import type { Clock } from '#protocol/clock.ts';
import type { Config } from '#protocol/config.ts';
import { StartupError } from '#protocol/errors.ts';
import type { ModelEntry } from '#protocol/model.ts';
import { readErrorMessage } from '#protocol/text/error-message.ts';
import { type Credentials, getBaseUrlVariable } from './credentials.ts';
import { layModels, readUpdate } from './update-files.ts';
import { hideQuotedCredentials, readPort } from './url.ts';

/** @param place below `src/`, without its ending */
export function findThreadProgram(packageDir: string, place: string): string {
  // From source like this file, where Node itself runs TypeScript: a test runner may, on a Node that does not.
  const fromSource = import.meta.filename.endsWith('.ts') && process.features.typescript !== false;
  if (fromSource) return path.join(packageDir, 'src', `${place}.ts`);
  return path.join(packageDir, 'dist', `${place}.cjs`);
}

/**
 * Throws `StartupError('registry_invalid')` with one line per fault.
 * @param file the shipped registry has the models of `metis models update` laid over it
 * @param packageDir whose shipped registry has the capabilities that an entry of `file` leaves out
 */
export function readRegistry(file: string, packageDir: string, dataDir: string | null): RegistryFile {
  const shipped = getShippedRegistry(packageDir);
  if (file === shipped) return parseRegistryFile(file, dataDir);
  let known: ReadonlyMap<string, ModelEntry> | null = null;
  return parseRegistryFile(file, null, () => {
    known ??= new Map(parseRegistryFile(shipped, dataDir).models.map((model) => [model.id, model]));
    return known;
  });
}

export function getShippedRegistry(packageDir: string): string {
  return path.join(packageDir, 'config', 'registry.yaml');
}

/** @param dataDir whose update is laid over the file; null = the file alone */
function parseRegistryFile(file: string, dataDir: string | null, known?: KnownModels): RegistryFile {
  let text: string;
  try {
    text = fs.readFileSync(file, 'utf8');
    if (dataDir !== null) text = layModels(text, readUpdate(dataDir, 'models'));
  } catch (cause) {
    if (cause instanceof StartupError) throw cause;
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

interface ProviderSettings extends Omit<AdapterSetup, 'adapters' | 'readScenario'> {
  readonly registryPath: string;
  readonly dataDir: string;
  readonly packageDir: string;
  /** A scenario file: only the scripted provider serves, and it plays this. */
  readonly scenario: string | null;
  /** Answers in place of every adapter; null = each answers for itself. */
  readonly provider: ProviderAdapter | null;
  /** Where this server listens. */
  readonly server: ServerAddress;
}

type ServerAddress = HostSettings & { readonly port: number };

interface StartedProviders {
  /** Every model of the registry, usable or not. */
  readonly file: RegistryFile;
  readonly providers: Providers;
  /** The sentence for a person whose server has no real model; null = it has one. */
  readonly notice: string | null;
}

/** Throws `StartupError`: `registry_invalid`, `scenario_invalid`, `provider_is_server`. */
export function startProviders(settings: ProviderSettings): StartedProviders {
  const own = readRegistry(settings.registryPath, settings.packageDir, settings.dataDir);
  const file = settings.scenario === null ? own : keepScripted(own, settings.scenario);
  const circles = findOwnAddresses(file.adapters, settings.credentials, settings.server);
  if (circles.length > 0) throw new StartupError('provider_is_server', circles);
  const adapters = createAdapters({
    ...settings,
    adapters: file.adapters,
    readScenario: (name) => readScenario(name, settings.packageDir),
  });
  const { provider } = settings;
  const providers = provider === null ? adapters : new Map([...adapters.keys()].map((id) => [id, provider]));
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
    const address = new URL(written);
    if (readPort(address) !== server.port || !isOurs(address.host, server.port)) return [];
    const cure = adviseOnOwnAddress(id, adapter);
    return [
      `${id}: its address ${hideQuotedCredentials(written)} is this server itself; ${cure}, or choose another --port`,
    ];
  });
}

function adviseOnOwnAddress(id: string, { base_url }: AdapterConfig): string {
  if (base_url !== null) return 'write the address of the provider into the registry';
  return `${getBaseUrlVariable(id)} is for the clients of this server; start the server without it`;
}

function composeNotice({ adapters }: RegistryFile, providers: Providers, settings: ProviderSettings): string {
  const { credentials, envFile, registryPath } = settings;
  const real = [...adapters].filter(([, adapter]) => adapter.type !== 'scripted');
  if (providers.size === 0) {
    const advice = real.map(
      ([id, adapter]) => `${id}: ${keyAdvice(adapter, credentials.keyName(id, adapter), envFile)}`,
    );
    const what = advice.join('. ') || 'it has none';
    return `No adapter of ${registryPath} can be used, so every message is refused; ${what}.`;
  }
  if (real.length === 0) return `Scripted models answer: ${registryPath} has no other adapter.`;
  const names = real.map(([id, adapter]) => credentials.keyName(id, adapter));
  const listed = [names.slice(0, -1).join(', '), names.at(-1)].filter((part) => part !== '').join(' or ');
  const notice = `No provider key is configured, so simulated models answer from a script; set ${listed}, or write it to ${envFile}, for real ones.`;
  if (real.every(([, adapter]) => adapter.base_url === null)) return notice;
  return `${notice} A server that needs no key has key_optional: true in the registry.`;
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

interface Threads {
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

/** With errors no rule of the file applies. With warnings a part of it has no effect. */
interface RoutingCheck {
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
  if (registry.isConfigured(registry.findReference(id)?.id ?? id)) return { errors: [], warnings: [] };
  const passedOver = `${key}: ${id} is registered but its adapter has no credentials here; routing will pass it over`;
  return { errors: [], warnings: [passedOver] };
}

/** Lines that name the file. Null = no file. */
export function checkRoutingFile(file: string, registry: ModelRegistry): RoutingCheck | null {
  let text: string;
  try {
    text = fs.readFileSync(file, 'utf8');
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    if (code === 'ENOENT') return null;
    return { errors: [`${file}: cannot be read: ${code}`], warnings: [] };
  }
  const withFileName = (lines: readonly string[]) => lines.map((line) => `${file}: ${line}`);
  const parsed = parsePolicyFile(text, 'global', registry);
  if (parsed.ok) return { errors: [], warnings: withFileName(policyWarnings(parsed.value, 'global', registry)) };
  return { errors: withFileName(parsed.error), warnings: [] };
}

/**
 * The table of the configuration. What `metis prices update` took is laid directly over the shipped prices, below the
 * files of this server. Throws `StartupError('pricing_invalid')` with one line per fault of every file.
 * @param update in place of the one in the data folder; null = none
 */
export function loadPrices(
  config: Config['pricing'],
  packageDir: string,
  { dataDir, update }: { readonly dataDir: string; readonly update?: RawTable | null },
): PriceTable {
  const problems: string[] = [];
  const tables: RawTable[] = [];
  for (const name of config.tables) {
    const file = name === 'builtin' ? path.join(packageDir, 'config', 'prices.json') : name;
    const parsed = readTable(file);
    if (parsed.ok) tables.push(parsed.value);
    else problems.push(...parsed.error);
    if (name !== 'builtin' || !parsed.ok) continue;
    const taken = update === undefined ? readTakenPrices(dataDir, problems) : update;
    if (taken === null) continue;
    tables.push(selectUpdate(parsed.value, taken));
    const shipped = tables.indexOf(parsed.value);
    if (shipped === 0 && isOlder(parsed.value, taken)) tables[0] = { ...parsed.value, imported_on: taken.imported_on };
  }
  const [base, ...overlays] = tables;
  if (problems.length > 0 || base === undefined) {
    throw new StartupError(
      'pricing_invalid',
      problems.map((line) => `pricing_invalid: ${line}`),
    );
  }
  return buildPriceTable(base, overlays, { freeProviders: config.free_providers });
}

function readTakenPrices(dataDir: string, problems: string[]): RawTable | null {
  const taken = readUpdate(dataDir, 'prices');
  if (taken === null) return null;
  const parsed = parsePriceTable(taken.text, taken.file);
  if (parsed.ok) return parsed.value;
  problems.push(...parsed.error);
  return null;
}

function readTable(file: string): ReturnType<typeof parsePriceTable> {
  try {
    return parsePriceTable(fs.readFileSync(file, 'utf8'), file);
  } catch (cause) {
    return { ok: false, error: [`${file}: cannot be read: ${(cause as NodeJS.ErrnoException).code}`] };
  }
}

/** Stores the active table's rates, so that its calls can be explained for ever. Throws `StartupError('pricing_version_conflict')`. */
export async function storePrices(journal: Journal, prices: PriceTable): Promise<void> {
  try {
    await journal.savePriceVersion({
      version: prices.version,
      content_hash: prices.contentHash,
      source: prices.source,
      models_json: JSON.stringify(prices.models),
    });
  } catch (cause) {
    const reason = readErrorMessage(cause);
    throw new StartupError('pricing_version_conflict', [`pricing_version_conflict: ${reason}`]);
  }
}
