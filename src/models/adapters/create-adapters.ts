// Builds all usable adapters from the registry's configuration (11.9 to 11.12).
import {
  type AdapterConfig,
  anthropicVersion,
  keyAdvice,
  usableAdapters,
} from '#core/policy/registry/adapter-config.ts';
import type { Logger } from '#core/ports/logger.ts';
import type { ProviderAdapter, Providers } from '#core/ports/provider.ts';
import type { Clock } from '#protocol/clock.ts';
import { StartupError } from '#protocol/errors.ts';
import type { IdGenerator } from '#protocol/ids.ts';
import { createHttpClient } from '../http/http-client.ts';
import { createHttpTransport, type Send } from '../http/provider-http.ts';
import { createRecorder, type Recorder, type WriterOptions } from '../recorded/recorder.ts';
import { loadReplay, type Replay } from '../recorded/recording-replay.ts';
import { parseScenario } from '../scripted/scenario.ts';
import { createScriptedAdapter } from '../scripted/scripted-adapter.ts';
import { type BaseOptions, createAdapter } from './adapter-loop.ts';
import {
  ANTHROPIC_BASE_URL,
  anthropicWire,
  OPENAI_BASE_URL,
  OPENROUTER_BASE_URL,
  openAiWire,
  responsesWire,
  type Wire,
} from './provider-wires.ts';

type RealConfig = AdapterConfig & { readonly type: Exclude<AdapterConfig['type'], 'scripted'> };

interface AdapterCredentials {
  readonly key: string | null;
  readonly base_url: string | null;
}

/** Reads keys and base URLs from the environment. */
export interface CredentialSource {
  /** Null = the adapter cannot be used. */
  forAdapter(id: string, config: AdapterConfig): AdapterCredentials | null;
  /** The variable that would hold the adapter's key. */
  keyName(id: string, config: AdapterConfig): string;
  /** Values that must never be logged or stored. */
  readonly secrets: readonly string[];
}

export interface AdapterSetup {
  readonly adapters: ReadonlyMap<string, AdapterConfig>;
  readonly credentials: CredentialSource;
  /** The file that the warning about a missing key names. */
  readonly envFile: string;
  /** Text of a scenario file; null = the built-in scenario. */
  readonly readScenario: (path: string | null) => { readonly path: string; readonly text: string };
  readonly record: string | null;
  readonly replay: string | null;
  /** The environment, which names the proxies. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Replaces the network. */
  readonly send?: Send;
  readonly clock: Clock;
  readonly random: () => number;
  readonly ids: IdGenerator;
  readonly log: Logger;
  readonly parser: WriterOptions['parser'];
}

/**
 * The usable adapters by id.
 * Throws `StartupError` for an invalid scenario, unreadable recordings, recording combined with replay, or an invalid
 * proxy address.
 */
export function createAdapters(setup: AdapterSetup): Providers {
  const { credentials, log } = setup;
  if (setup.record !== null && setup.replay !== null)
    throw new StartupError('record_and_replay', [
      'providers.record and providers.replay are mutually exclusive; unset one of them',
    ]);
  const found = new Map([...setup.adapters].map(([id, config]) => [id, credentials.forAdapter(id, config)]));
  const { secrets } = credentials;
  const replay = setup.replay === null ? null : loadReplay(setup.replay, secrets);
  const without: [string, AdapterConfig][] = [];
  const usable = usableAdapters(setup.adapters, (id, config) => {
    if (replay !== null) return replay.adapters.has(id);
    if (found.get(id) != null) return true;
    without.push([id, config]);
    return false;
  });
  if (without.length > 0) log.warn({ adapters: without.map(([id]) => id) }, describeMissingKeys(without, setup));

  const direct = setup.send ?? createHttpClient(setup.env);
  const providers = new Map<string, ProviderAdapter>();
  for (const [id, config] of setup.adapters) {
    if (!usable.has(id)) continue;
    const base: BaseOptions = {
      name: id,
      limits: {
        total: config.timeout_seconds,
        connect: config.connect_timeout_seconds,
        idle: config.idle_timeout_seconds,
      },
      maxRetries: config.max_retries,
      clock: setup.clock,
      random: setup.random,
      ids: setup.ids,
      log: log.child({ adapter: id }),
      secrets,
      joinTextDeltas: true,
    };
    if (isReal(config)) {
      const sources = { ...setup, found: found.get(id) ?? null, direct, replay };
      providers.set(id, createRealAdapter(config, base, sources));
    } else providers.set(id, createScriptedAdapter({ ...base, scenario: readScenario(config, setup) }));
  }
  return providers;
}

function isReal(config: AdapterConfig): config is RealConfig {
  return config.type !== 'scripted';
}

/** One sentence for all adapters. */
function describeMissingKeys(
  without: readonly [string, AdapterConfig][],
  { credentials, envFile }: AdapterSetup,
): string {
  const advice = without.map(([id, config]) => keyAdvice(config, credentials.keyName(id, config), envFile));
  return `no credentials configured for ${without.map(([id]) => id).join(', ')}; ${advice.join('; ')}`;
}

function createRealAdapter(
  config: RealConfig,
  base: BaseOptions,
  by: {
    readonly found: AdapterCredentials | null;
    readonly direct: Send;
    readonly record: string | null;
    readonly replay: Replay | null;
    readonly parser: WriterOptions['parser'];
  },
): ProviderAdapter {
  const { found, direct, record, replay, parser } = by;
  const wire = createWire(config, found?.key ?? null, base.log);
  let recorder: Recorder | null = null;
  if (record !== null) {
    recorder = createRecorder({
      dir: record,
      adapter: base.name,
      send: direct,
      clock: base.clock,
      secrets: base.secrets,
      log: base.log,
      parser,
    });
  }
  const transport = createHttpTransport(wire, {
    baseUrl: config.base_url ?? found?.base_url ?? DEFAULT_BASE_URLS[config.type],
    extraHeaders: config.extra_headers,
    send: replay?.sendFor(base.name) ?? recorder?.send ?? direct,
    clock: base.clock,
  });
  const adapter = createAdapter(base, transport);
  if (recorder === null) return adapter;
  return { ...adapter, close: recorder.flush };
}

export const DEFAULT_BASE_URLS = {
  anthropic: ANTHROPIC_BASE_URL,
  openai: OPENAI_BASE_URL,
  openrouter: OPENROUTER_BASE_URL,
} as const satisfies Record<RealConfig['type'], string>;

function createWire(config: RealConfig, key: string | null, log: Logger): Wire {
  const { options, type, wire } = config;
  const trimmed = key?.trim() || null;
  if (type === 'anthropic') return anthropicWire(trimmed, { ...options, api_version: anthropicVersion(config) }, log);
  if (wire === 'responses') return responsesWire(trimmed, log);
  return openAiWire(type, trimmed, options, log);
}

function readScenario(config: AdapterConfig, setup: AdapterSetup) {
  const { path, text } = setup.readScenario(config.scenario);
  const parsed = parseScenario(text, path);
  if (!parsed.ok) throw new StartupError('scenario_invalid', parsed.error);
  return parsed.value;
}
