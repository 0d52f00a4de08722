// Loads the configuration: defaults < files < environment < flags, one line per problem (15 §1).
import fs from 'node:fs';
import path from 'node:path';
import { z } from 'zod';
import { findNearestKey } from '#core/policy/parsing/known-keys.ts';
import { describeIssues } from '#core/policy/parsing/plain-issue.ts';
import { OWN_FILE } from '#core/policy/parsing/text-limits.ts';
import { isMapping, readYaml } from '#core/policy/parsing/yaml.ts';
import { findCreationFaults } from '#core/policy/workers/write-definition.ts';
import { isLoopback } from '#http/access.ts';
import { type Config, ConfigSchema, defaultConfig } from '#protocol/config.ts';
import { err, ok, type Result } from '#protocol/result.ts';
import { isForeignVariable, warnOfForeignVariables } from './foreign-variables.ts';
import { RENAMED_KEYS, renameValue } from './renamed-keys.ts';

/** Every key in schema order, e.g. `server.port`, with the schema of its value. */
export const CONFIG_KEYS: ReadonlyMap<string, z.ZodType> = collectKeys(ConfigSchema, '');

/** The prefixes that hold keys and are none themselves: `server`, `tools.shell`, ... */
const CONFIG_SECTIONS: ReadonlySet<string> = new Set(
  [...CONFIG_KEYS.keys()].flatMap((key) => {
    const parts = key.split('.');
    return parts.slice(1).map((_, i) => parts.slice(0, i + 1).join('.'));
  }),
);

function collectKeys(schema: z.ZodObject, prefix: string): Map<string, z.ZodType> {
  const found = new Map<string, z.ZodType>();
  for (const [name, child] of Object.entries(schema.shape)) {
    if (child instanceof z.ZodObject) for (const [k, v] of collectKeys(child, `${prefix}${name}.`)) found.set(k, v);
    else found.set(`${prefix}${name}`, child as z.ZodType);
  }
  return found;
}

/**
 * What a key that is none was probably meant to be, as the end of a sentence; '' when nothing is near. Either a name is
 * misspelt, or what stands before it is missing: `server.prt`, `port`.
 */
function suggestKey(key: string): string {
  const names = key.split('.');
  const known = [...CONFIG_KEYS.keys(), ...CONFIG_SECTIONS];
  const right = names.findIndex((_, i) => !known.includes(names.slice(0, i + 1).join('.')));
  const prefix = names
    .slice(0, right)
    .map((name) => `${name}.`)
    .join('');
  const siblings = known.filter((one) => one.startsWith(prefix)).map((one) => one.slice(prefix.length).split('.')[0]!);
  const near = right < 0 ? null : findNearestKey(names[right]!, siblings);
  if (near !== null) {
    const rest = names
      .slice(right + 1)
      .map((name) => `.${name}`)
      .join('');
    const whole = `${prefix}${near}${rest}`;
    return formatSuggestion(known.includes(whole) ? whole : `${prefix}${near}`);
  }
  const ends = known.filter((one) => one.endsWith(`.${key}`));
  return formatSuggestion(ends.length === 1 ? ends[0]! : null);
}

/** The same for the name of an environment variable. */
function suggestVariable(name: string): string {
  const cut = 'METIS_'.length;
  const names = [...CONFIG_KEYS.keys()].map((key) => toEnvironmentName(key).slice(cut));
  const near = findNearestKey(name.slice(cut), names);
  return formatSuggestion(near === null ? null : `METIS_${near}`);
}

function formatSuggestion(meant: string | null): string {
  if (meant === null) return '';
  return `; did you mean "${meant}"?`;
}

/** `delegation.max_depth` -> `METIS_DELEGATION_MAX_DEPTH`. */
export function toEnvironmentName(key: string): string {
  return `METIS_${key.toUpperCase().replaceAll('.', '_')}`;
}

/**
 * Reads a value from the environment or the command line: scalars as text, lists and maps as JSON, `null` as null.
 * What does not parse is returned as the text it is, for the schema to refuse.
 */
export function parseValue(schema: z.ZodType, text: string): unknown {
  if (schema instanceof z.ZodNullable) {
    if (text === 'null' || text === '') return null;
    return parseValue(schema.unwrap() as z.ZodType, text);
  }
  if (schema instanceof z.ZodNumber) {
    if (/^-?\d+(\.\d+)?$/.test(text)) return Number(text);
    return text;
  }
  if (schema instanceof z.ZodBoolean) {
    if (text === 'true') return true;
    if (text === 'false') return false;
    return text;
  }
  if (schema instanceof z.ZodArray || schema instanceof z.ZodRecord) {
    try {
      return JSON.parse(text);
    } catch {
      return text;
    }
  }
  return text;
}

/** How a list or a map is written as text, for an error message; '' for every other schema. */
function describeTextForm(schema: z.ZodType): string {
  if (schema instanceof z.ZodNullable) return describeTextForm(schema.unwrap() as z.ZodType);
  if (schema instanceof z.ZodArray) return `; a list is written as JSON, like '["one", "two"]'`;
  if (schema instanceof z.ZodRecord) return `; a map is written as JSON, like '{"name": "value"}'`;
  return '';
}

export interface ConfigFlags {
  readonly host?: string;
  readonly port?: string;
  /** Replaces `~/.metis`. */
  readonly data?: string;
  /** Replaces the shipped and the personal file. */
  readonly config?: string;
  /** `key=value` each. */
  readonly set?: readonly string[];
}

export interface ConfigInput {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly flags: ConfigFlags;
  readonly cwd: string;
  readonly home: string;
  /** Where the package's own `config/` stands. */
  readonly packageDir: string;
}

export interface LoadedConfig {
  readonly config: Config;
  readonly dataDir: string;
  /** The configuration files that were read, in order. */
  readonly files: readonly string[];
  /** Keys that a source sets, with the last such source: a file's path, a variable, a flag. All others have their default. */
  readonly given: ReadonlyMap<string, string>;
  /** One line for each key that a source gives by its earlier name. */
  readonly warnings: readonly string[];
}

/** One value as a source gave it. */
interface Setting {
  readonly key: string;
  /** The earlier name of the key, where the source uses it. */
  readonly oldKey?: string;
  readonly value: unknown;
  /** Where the value is set: a file's path, a variable, a flag. */
  readonly source: string;
  /** What relative paths are relative to. */
  readonly base: string;
  /** It was written where there is only text: in the environment or a flag. */
  readonly asText?: boolean;
}

const PATH_KEYS = new Set([
  'storage.db_path',
  'registry.path',
  'routing.global_path',
  'skills.global_dir',
  'workers.generated_dir',
  'providers.record',
  'providers.replay',
  'gateway.record',
  'pricing.tables',
  'server.workspace_roots',
  'cluster.shared_roots',
  'cluster.worktree_root',
]);
/** Maps whose entries are added to the default entries instead of replacing them (09 §5). */
const KEYS_MERGED_WITH_DEFAULT = new Set(['tool_confirmation.per_tool']);
const REMOTE_RATE_LIMIT = 600;

/** The data folder: `--data`, else `~/.metis`. Absolute. */
export function resolveDataDirectory(input: Pick<ConfigInput, 'flags' | 'cwd' | 'home'>): string {
  const { data } = input.flags;
  if (data === undefined) return path.join(input.home, '.metis');
  return resolvePath(data, input.cwd, input.home);
}

/**
 * Reads every source and merges them key by key. Errors: one line per problem, naming source, key and reason.
 * `registry.path` comes back as the file to read: the shipped registry where the default one does not exist.
 */
export function loadConfig(input: ConfigInput): Result<LoadedConfig, string[]> {
  const problems: string[] = [];
  const dataDir = resolveDataDirectory(input);
  const files = listConfigFiles(input, dataDir);
  const settings = [
    ...files.flatMap((file) => orderRenamedFirst(readFileSettings(file, problems))),
    ...orderRenamedFirst(readEnvironmentSettings(input.env, input.cwd, problems)),
    ...orderRenamedFirst(readFlagSettings(input.flags, input.cwd, problems)),
  ];

  const defaults = defaultConfig(dataDir);
  const merged = defaultConfig(dataDir);
  const origin = new Map<string, string>();
  for (const setting of settings) {
    const parsed = CONFIG_KEYS.get(setting.key)?.safeParse(setting.value);
    if (!parsed?.success) {
      for (const issue of parsed === undefined ? [] : describeIssues(parsed.error, CONFIG_KEYS.get(setting.key))) {
        const where = [setting.key, ...issue.path.map(String)].join('.');
        const form = setting.asText && issue.path.length === 0 ? describeTextForm(CONFIG_KEYS.get(setting.key)!) : '';
        problems.push(`${setting.source}: ${where}: ${issue.message}${form}`);
      }
      continue;
    }
    const value = PATH_KEYS.has(setting.key) ? withAbsolutePaths(parsed.data, setting.base, input.home) : parsed.data;
    const isMerged = KEYS_MERGED_WITH_DEFAULT.has(setting.key);
    if (isMerged)
      assignKey(merged, setting.key, { ...(readKey(defaults, setting.key) as object), ...(value as object) });
    else assignKey(merged, setting.key, value);
    origin.set(setting.key, setting.source);
  }
  if (problems.length > 0) return err(problems);

  const whole = ConfigSchema.safeParse(merged);
  if (!whole.success) {
    return err(
      describeIssues(whole.error).map((issue) => {
        const key = issue.path.join('.');
        return `${origin.get(key) ?? 'default'}: ${key}: ${issue.message}`;
      }),
    );
  }
  const config = whole.data;
  if (!origin.has('server.rate_limit_rpm') && !isLoopback(config.server.host)) {
    config.server.rate_limit_rpm = REMOTE_RATE_LIMIT;
  }
  if (!origin.has('registry.path') && !fs.existsSync(config.registry.path)) {
    config.registry.path = path.join(input.packageDir, 'config', 'registry.yaml');
  }
  const conflicts = checkAcrossKeys(config, (key) => origin.get(key) ?? 'default');
  if (conflicts.length > 0) return err(conflicts);
  const warnings = [...warnOfRenamedKeys(settings), ...warnOfForeignVariables(input.env)];
  return ok({ config, dataDir, files, given: origin, warnings });
}

/** Within one source the current name of a key wins over its earlier one. */
function orderRenamedFirst(settings: readonly Setting[]): readonly Setting[] {
  return [...settings].sort((a, b) => Number(a.oldKey === undefined) - Number(b.oldKey === undefined));
}

function warnOfRenamedKeys(settings: readonly Setting[]): string[] {
  const byOldKey = new Map<string, Setting>();
  for (const setting of settings) if (setting.oldKey !== undefined) byOldKey.set(setting.oldKey, setting);
  return [...byOldKey].map(([oldKey, { key, source }]) => `${source}: ${oldKey} is now ${key}; use the new name`);
}

/** Rules that concern several keys. */
function checkAcrossKeys(config: Config, source: (key: string) => string): string[] {
  const problems: string[] = [];
  const { host, auth_tokens, tokens, workspace_roots } = config.server;
  if (!isLoopback(host) && workspace_roots.length === 0) {
    // A token may be in the database, which the start reads.
    const isBare = auth_tokens.length === 0 && Object.keys(tokens).length === 0;
    problems.push(
      `${source('server.host')}: server.host: "${host}" can be reached from other machines; set ${isBare ? 'server.auth_tokens and ' : ''}server.workspace_roots first, or bind to 127.0.0.1`,
    );
  }
  if (config.providers.record !== null && config.providers.replay !== null) {
    problems.push(
      `${source('providers.replay')}: providers.replay: cannot be set together with providers.record; remove one`,
    );
  }
  for (const name of Object.keys(tokens).filter((one) => Object.hasOwn(config.gateway.keys, one)))
    problems.push(`${source('server.tokens')}: server.tokens.${name}: gateway.keys has the name too; rename one`);
  for (const { path, message } of findCreationFaults(config.workers.creation)) {
    const [key, ...rest] = path.map(String);
    const where = `workers.creation.${key}`;
    problems.push(`${source(where)}: ${[where, ...rest].join('.')}: ${message}`);
  }
  return problems;
}

function listConfigFiles(input: ConfigInput, dataDir: string): string[] {
  if (input.flags.config !== undefined) return [resolvePath(input.flags.config, input.cwd, input.home)];
  return [path.join(input.packageDir, 'config', 'server.yaml'), path.join(dataDir, 'server.yaml')].filter((file) =>
    fs.existsSync(file),
  );
}

function readFileSettings(file: string, problems: string[]): Setting[] {
  let text: string;
  try {
    text = fs.readFileSync(file, 'utf8');
  } catch (cause) {
    problems.push(`${file}: cannot be read: ${(cause as NodeJS.ErrnoException).code ?? 'unknown error'}`);
    return [];
  }
  const yaml = readYaml(text, OWN_FILE);
  if (!yaml.ok) {
    problems.push(`${file}: ${yaml.error}`);
    return [];
  }
  const root = yaml.value;
  if (root === null) return [];
  if (!isMapping(root)) {
    problems.push(`${file}: must be a map of configuration keys`);
    return [];
  }
  const settings: Setting[] = [];
  collect(root, '');
  return settings;

  function collect(map: Readonly<Record<string, unknown>>, prefix: string): void {
    for (const [name, value] of Object.entries(map)) {
      const key = `${prefix}${name}`;
      const current = RENAMED_KEYS.get(key);
      if (CONFIG_KEYS.has(key)) settings.push({ key, value, source: file, base: path.dirname(file) });
      else if (current !== undefined)
        settings.push({
          key: current,
          oldKey: key,
          value: renameValue(key, value),
          source: file,
          base: path.dirname(file),
        });
      else if (!CONFIG_SECTIONS.has(key)) problems.push(`${file}: ${key}: unknown key${suggestKey(key)}`);
      else if (isMapping(value)) collect(value, `${key}.`);
      else if (value !== null) problems.push(`${file}: ${key}: must be a map of keys`);
    }
  }
}

function readEnvironmentSettings(env: ConfigInput['env'], cwd: string, problems: string[]): Setting[] {
  const keyByName = new Map(
    [...CONFIG_KEYS.keys(), ...RENAMED_KEYS.keys()].map((key) => [toEnvironmentName(key), key]),
  );
  const settings: Setting[] = [];
  const add = (name: string, key: string, text: string) =>
    settings.push(parseTextSetting({ key, text, source: `environment ${name}`, base: cwd }));
  // The general names first: the product's own say more.
  if (env.HOST) add('HOST', 'server.host', env.HOST);
  if (env.PORT) add('PORT', 'server.port', env.PORT);
  for (const name of Object.keys(env).sort()) {
    const text = env[name];
    if (!name.startsWith('METIS_') || isForeignVariable(name) || text === undefined) continue;
    const key = keyByName.get(name);
    if (key === undefined)
      problems.push(`environment ${name}: no configuration key has this name${suggestVariable(name)}`);
    else add(name, key, text);
  }
  return settings;
}

function readFlagSettings(flags: ConfigFlags, cwd: string, problems: string[]): Setting[] {
  const pairs: [source: string, key: string, text: string][] = [];
  for (const pair of flags.set ?? []) {
    const cut = pair.indexOf('=');
    if (cut <= 0) problems.push(`--set ${pair}: must have the form key=value`);
    else if (!CONFIG_KEYS.has(pair.slice(0, cut)) && !RENAMED_KEYS.has(pair.slice(0, cut)))
      problems.push(`--set: ${pair.slice(0, cut)}: unknown key${suggestKey(pair.slice(0, cut))}`);
    else pairs.push(['--set', pair.slice(0, cut), pair.slice(cut + 1)]);
  }
  if (flags.host !== undefined) pairs.push(['--host', 'server.host', flags.host]);
  if (flags.port !== undefined) pairs.push(['--port', 'server.port', flags.port]);
  return pairs.map(([source, key, text]) => parseTextSetting({ source, key, text, base: cwd }));
}

/** A setting that was written where there is only text; `key` may be an earlier name. */
function parseTextSetting(given: { key: string; text: string; source: string; base: string }): Setting {
  const { text, source, base } = given;
  const current = RENAMED_KEYS.get(given.key);
  const key = current ?? given.key;
  const value = renameValue(given.key, parseValue(CONFIG_KEYS.get(key)!, text));
  return { key, value, source, base, asText: true, ...(current !== undefined && { oldKey: given.key }) };
}

export function readKey(config: Config, key: string): unknown {
  return key.split('.').reduce<unknown>((at, part) => (at as Record<string, unknown>)[part], config);
}

function assignKey(config: Config, key: string, value: unknown): void {
  const parts = key.split('.');
  let at = config as unknown as Record<string, unknown>;
  for (const part of parts.slice(0, -1)) at = at[part] as Record<string, unknown>;
  at[parts.at(-1)!] = value;
}

function withAbsolutePaths(value: unknown, base: string, home: string): unknown {
  if (Array.isArray(value)) return value.map((item) => withAbsolutePaths(item, base, home));
  // The one table that is no file.
  if (typeof value === 'string' && value !== 'builtin') return resolvePath(value, base, home);
  return value;
}

function resolvePath(given: string, base: string, home: string): string {
  if (given === '~') return home;
  if (given.startsWith('~/')) return path.join(home, given.slice(2));
  return path.resolve(base, given);
}
