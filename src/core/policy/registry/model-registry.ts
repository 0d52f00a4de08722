// The models this server knows: `registry.yaml` parsed, and the look-ups on it (03 §2).
import { dirname } from 'node:path';
import { z } from 'zod';
import { AppError } from '#protocol/errors.ts';
import {
  CapabilitiesSchema,
  getProvider,
  MODEL_ID_PATTERN,
  type ModelEntry,
  TokenizerNameSchema,
} from '#protocol/model.ts';
import { err, ok, type Result } from '#protocol/result.ts';
import { type Tier, TierSchema } from '#protocol/scalars.ts';
import { shownName } from '../cut.ts';
import { issueLines } from '../parsing/plain-issue.ts';
import { OWN_FILE } from '../parsing/text-limits.ts';
import { isMapping, readYaml } from '../parsing/yaml.ts';
import { ADAPTER_ID_PATTERN, type AdapterConfig, knownAdapter, readAdapterConfig } from './adapter-config.ts';

export interface RegistryFile {
  /** In file order. */
  readonly models: readonly ModelEntry[];
  readonly adapters: ReadonlyMap<string, AdapterConfig>;
}

export interface ModelRegistry extends RegistryFile {
  get(id: string): ModelEntry | null;
  /** The canonical id for a registered id or alias (case-sensitive), else null. */
  resolveAlias(name: string): string | null;
  /** Registered, and its adapter can be used. */
  isConfigured(id: string): boolean;
  /** The first configured model of the tier, in file order. */
  modelForTier(tier: Tier): string | null;
}

/** Models of the shipped registry by id: what an entry without capabilities takes its own from. */
export type KnownModels = () => ReadonlyMap<string, ModelEntry>;

const MappingSchema = z.record(z.string(), z.unknown());
const EntrySchema = z.strictObject({
  tier: TierSchema.nullable().default(null),
  can_delegate: z.boolean().optional(),
  aliases: z
    .array(z.string().regex(/^[A-Za-z0-9._-]+$/, 'may hold letters, digits, ".", "_" and "-" only'))
    .default([]),
  adapter: z.string().min(1).optional(),
  wire_name: z.string().min(1).optional(),
  pricing_id: z.string().min(1).optional(),
  tokenizer: TokenizerNameSchema.nullable().default(null),
  /** Absent = those of the known model. */
  capabilities: CapabilitiesSchema.optional(),
  thinking: MappingSchema.nullable().default(null),
  extra_body: MappingSchema.nullable().default(null),
});

/**
 * Parses and checks a registry file. Errors: every fault found, each `<file>: <key path>: <problem>`.
 * @param path of the file, for the messages and for paths inside it
 * @param known is called when the first model without capabilities is read
 */
export function parseRegistry(
  text: string,
  path: string,
  known: KnownModels = () => new Map(),
): Result<RegistryFile, string[]> {
  const failWith = (errors: readonly string[]) => err(errors.map((line) => `${path}: ${line}`));
  const yaml = readYaml(text, OWN_FILE);
  if (!yaml.ok) return failWith([yaml.error]);
  const root = yaml.value;
  if (!isMapping(root))
    return failWith(['must be a mapping with the key models, and adapters where they are not only known providers']);

  const errors = Object.keys(root)
    .filter((key) => key !== 'models' && key !== 'adapters')
    .map((key) => `${key}: unknown key`);
  const adapters = new Map<string, AdapterConfig>();
  for (const [id, value] of root.adapters == null ? [] : section(root, 'adapters', errors)) {
    if (!ADAPTER_ID_PATTERN.test(id)) errors.push(`adapters.${id}: an adapter id matches ${ADAPTER_ID_PATTERN.source}`);
    const config = readAdapterConfig(value, `adapters.${id}`, dirname(path), errors);
    if (config) adapters.set(id, config);
  }
  const declared = new Set(isMapping(root.adapters) ? Object.keys(root.adapters) : []);
  const models: ModelEntry[] = [];
  for (const [id, value] of section(root, 'models', errors)) {
    const entry = readModel(id, value ?? {}, known, errors);
    if (entry === null) continue;
    models.push(entry);
    if (declared.has(entry.adapter)) continue;
    const adapter = knownAdapter(entry.adapter);
    if (adapter !== null) adapters.set(entry.adapter, adapter);
    else
      errors.push(`models.${id}.adapter: unknown adapter ${JSON.stringify(entry.adapter)}; declare it under adapters`);
  }
  errors.push(...aliasClashes(models));
  return errors.length > 0 ? failWith(errors) : ok({ models, adapters });
}

/** @param configuredAdapters ids of the adapters that can serve calls */
export function createModelRegistry(file: RegistryFile, configuredAdapters: ReadonlySet<string>): ModelRegistry {
  const byId = new Map(file.models.map((model) => [model.id, model]));
  const idOf = new Map(file.models.flatMap((model) => [model.id, ...model.aliases].map((name) => [name, model.id])));
  const isConfigured = (id: string) => {
    const model = byId.get(id);
    return model !== undefined && configuredAdapters.has(model.adapter);
  };
  return {
    ...file,
    get: (id) => byId.get(id) ?? null,
    resolveAlias: (name) => idOf.get(name) ?? null,
    isConfigured,
    modelForTier: (tier) => file.models.find((model) => model.tier === tier && isConfigured(model.id))?.id ?? null,
  };
}

/** A model as a caller names it, by id or alias. Error: `model_not_configured` (400). */
export function modelInput(registry: ModelRegistry, name: string): Result<string, AppError> {
  const id = registry.resolveAlias(name);
  return id === null ? err(new AppError('model_not_configured', unknownModel(name))) : ok(id);
}

/** The error text for the name of a model that is not registered. */
export function unknownModel(name: string): string {
  return `${shownName(name)} is neither a model id nor an alias of this server; GET /models lists both`;
}

function section(root: Readonly<Record<string, unknown>>, key: string, errors: string[]): [string, unknown][] {
  const value = root[key];
  if (isMapping(value)) return Object.entries(value);
  errors.push(`${key}: ${value == null ? 'is required' : 'must be a mapping'}`);
  return [];
}

function readModel(id: string, value: unknown, known: KnownModels, errors: string[]): ModelEntry | null {
  const at = `models.${id}`;
  if (!MODEL_ID_PATTERN.test(id)) {
    errors.push(`${at}: a model id is <provider>:<name> and matches ${MODEL_ID_PATTERN.source}`);
    return null;
  }
  const parsed = EntrySchema.safeParse(value);
  if (!parsed.success) {
    errors.push(...issueLines(parsed.error, at));
    return null;
  }
  const { tier, can_delegate, aliases, adapter = getProvider(id), wire_name, pricing_id } = parsed.data;
  const like = parsed.data.capabilities === undefined ? (known().get(id) ?? null) : null;
  const capabilities = parsed.data.capabilities ?? like?.capabilities;
  if (capabilities === undefined) {
    errors.push(`${at}.capabilities: is required, as the shipped registry has no model of this id`);
    return null;
  }
  return {
    id,
    tier,
    can_delegate: can_delegate ?? (tier === 'balanced' || tier === 'deep'),
    adapter,
    wire_name: wire_name ?? like?.wire_name ?? id.slice(id.indexOf(':') + 1),
    pricing_id: pricing_id ?? like?.pricing_id ?? id,
    aliases,
    tokenizer: parsed.data.tokenizer ?? like?.tokenizer ?? null,
    capabilities,
    // Without them its provider may refuse what its capabilities promise.
    thinking: parsed.data.thinking ?? like?.thinking ?? null,
    extra_body: parsed.data.extra_body ?? like?.extra_body ?? null,
  };
}

// An alias holds no colon, so it can never be some model's id.
function aliasClashes(models: readonly ModelEntry[]): string[] {
  const ownerOf = new Map<string, string>();
  const clashes: string[] = [];
  for (const { id, aliases } of models) {
    for (const alias of aliases) {
      const owner = ownerOf.get(alias);
      if (owner !== undefined) clashes.push(`models.${id}.aliases: ${alias} is already an alias of ${owner}`);
      else ownerOf.set(alias, id);
    }
  }
  return clashes;
}
