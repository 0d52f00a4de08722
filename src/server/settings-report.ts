// What is in force and where it is set, for people: every key of the configuration without secrets (15 §1).
import fs from 'node:fs';
import { isDeepStrictEqual } from 'node:util';
import { OWN_FILE } from '#core/policy/parsing/text-limits.ts';
import { lineFinder } from '#core/policy/parsing/yaml.ts';
import type { AdapterConfig } from '#core/policy/registry/adapter-config.ts';
import type { SettingsReport } from '#protocol/api/server-bodies.ts';
import { type Config, defaultConfig } from '#protocol/config.ts';
import type { McpServerConfig } from '#protocol/mcp.ts';
import { scrubSecrets } from '#protocol/text/scrub.ts';
import { CONFIG_KEYS, readKey } from './config.ts';
import type { Settings } from './context.ts';
import type { Credentials, Env } from './credentials.ts';
import { HIDDEN, hideCredentials } from './url.ts';

const ENVIRONMENT = 'environment ';
/** Keys whose default depends on the installation and on other keys. */
const DERIVED_DEFAULTS: ReadonlySet<string> = new Set(['registry.path', 'server.rate_limit_rpm']);

/**
 * Where each key is set that is not a default, as a person finds it: files with their line, variables of the `.env` file
 * with that file.
 * @param env the environment of the process, without the `.env` file
 */
export function locateOrigins(
  { given, files, envFile }: Pick<Settings, 'given' | 'files' | 'envFile'>,
  env: Env,
): ReadonlyMap<string, string> {
  const finders = new Map(files.map((file) => [file, lineFinder(readText(file), OWN_FILE)]));
  const locate = (key: string, source: string): string => {
    const line = finders.get(source)?.(key.split('.')) ?? null;
    if (line !== null) return `${source}:${line}`;
    const variable = source.startsWith(ENVIRONMENT) ? source.slice(ENVIRONMENT.length) : null;
    if (variable !== null && env[variable] === undefined) return `${envFile.path} ${variable}`;
    return source;
  };
  return new Map([...given].map(([key, source]) => [key, locate(key, source)]));
}

function readText(file: string): string {
  try {
    return fs.readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}

interface SettingsInput {
  readonly config: Config;
  readonly dataDir: string;
  readonly keysFile: string;
  readonly configFiles?: readonly string[];
  readonly origins?: ReadonlyMap<string, string>;
  readonly credentials: Credentials;
  readonly adapters: ReadonlyMap<string, AdapterConfig>;
  /** The environment of the process, without the `.env` file. */
  readonly env: Env;
  /** Texts that must not leave the server, wherever they appear. */
  readonly secrets: readonly string[];
}

export function describeSettings(input: SettingsInput): SettingsReport {
  const { config, dataDir, keysFile, configFiles = [], secrets } = input;
  const { url } = config.database;
  const resolveSource = createSourceResolver(input);
  return {
    data_dir: dataDir,
    keys_file: keysFile,
    files: [...configFiles],
    database: url === null ? config.storage.db_path : hideCredentials(url),
    keys: listKeys(input),
    settings: [...CONFIG_KEYS.keys()].map((key) => {
      const shown = PUBLIC_FORMS[key]?.(config) ?? readKey(config, key);
      return { key, value: scrub(shown, secrets), source: resolveSource(key) };
    }),
  };
}

/** `command`: the command that started the server set the value, as `metis demo` and `metis run` do. */
function createSourceResolver({ config, dataDir, origins }: SettingsInput): (key: string) => string {
  const defaults = defaultConfig(dataDir);
  return (key) => {
    const origin = origins?.get(key);
    if (origin !== undefined) return origin;
    if (DERIVED_DEFAULTS.has(key) || isDeepStrictEqual(readKey(config, key), readKey(defaults, key))) return 'default';
    return 'command';
  };
}

function listKeys({ adapters, credentials, env, keysFile }: SettingsInput): SettingsReport['keys'] {
  return [...adapters].flatMap(([provider, adapter]) => {
    if (adapter.type === 'scripted') return [];
    const variable = credentials.keyName(provider, adapter);
    const found = credentials.forAdapter(provider, adapter);
    const file = env[variable] === undefined ? keysFile : 'environment';
    const source = (found?.key ?? null) === null ? null : file;
    return [{ provider, variable, source, required: found === null || found.key !== null }];
  });
}

/** What is shown of keys that hold secrets, or addresses and commands in which people write some. */
const PUBLIC_FORMS: Readonly<Record<string, (config: Config) => unknown>> = {
  'server.auth_tokens': ({ server }) => server.auth_tokens.map(() => HIDDEN),
  'database.url': ({ database }) => database.url && hideCredentials(database.url),
  'nats.url': ({ nats }) => nats.url && hideCredentials(nats.url),
  'cluster.advertise_url': ({ cluster }) => cluster.advertise_url && hideCredentials(cluster.advertise_url),
  'pricing.update_url': ({ pricing }) => pricing.update_url && hideCredentials(pricing.update_url),
  mcp_servers: ({ mcp_servers }) =>
    Object.fromEntries(Object.entries(mcp_servers).map(([name, server]) => [name, describeMcpServer(server)])),
  checks: ({ checks }) =>
    Object.fromEntries(Object.entries(checks).map(([name, { command: _, ...rest }]) => [name, rest])),
  notify: ({ notify }) => notify.map(({ url, events }) => ({ url: getOrigin(url), events })),
  'gateway.keys': ({ gateway }) =>
    Object.fromEntries(Object.entries(gateway.keys).map(([name, { daily_usd }]) => [name, { daily_usd }])),
};

/** Arguments, variables, headers and the path of an address often hold a token. */
function describeMcpServer({ transport, command, url, enabled = true }: McpServerConfig) {
  if (url === undefined) return { transport, command: command?.split(/\s/, 1)[0], enabled };
  return { transport, url: getOrigin(url), enabled };
}

function getOrigin(text: string): string {
  if (!URL.canParse(text)) return HIDDEN;
  const { protocol, host } = new URL(text);
  return `${protocol}//${host}`;
}

function scrub(value: unknown, secrets: readonly string[]): unknown {
  if (typeof value === 'string') return scrubSecrets(value, secrets);
  if (Array.isArray(value)) return value.map((one) => scrub(one, secrets));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, scrub(one, secrets)]));
}
