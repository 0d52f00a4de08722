// The models this server knows: `registry.yaml` parsed, and the look-ups on it (03 §2).
import { dirname } from 'node:path';
import { z } from 'zod';
import {
  CapabilitiesSchema,
  getProvider,
  MODEL_ID_PATTERN,
  type ModelEntry,
  TokenizerNameSchema,
} from '#protocol/model.ts';
import { err, ok, type Result } from '#protocol/result.ts';
import { type Effort, EffortSchema, type Tier, TierSchema } from '#protocol/scalars.ts';
import { isSimulated, SIMULATED_PROVIDER } from '#protocol/text/simulated.ts';
import { issueLines } from '../parsing/plain-issue.ts';
import { OWN_FILE } from '../parsing/text-limits.ts';
import { isMapping, readYaml, toMapping } from '../parsing/yaml.ts';
import { ADAPTER_ID_PATTERN, type AdapterConfig, knownAdapter, readAdapterConfig } from './adapter-config.ts';
import { EffortsSchema, findEffortKeys, listEfforts, toEffortsByWire } from './model-efforts.ts';

export interface RegistryFile {
  /** In file order. */
  readonly models: readonly ModelEntry[];
  readonly adapters: ReadonlyMap<string, AdapterConfig>;
}

export interface ModelRegistry extends RegistryFile {
  get(id: string): ModelEntry | null;
  /**
   * The canonical reference for a registered id or alias (case-sensitive), else null: the id, and behind a colon the
   * effort that the name ends in.
   */
  resolveAlias(name: string): string | null;
  /** Model and effort of a reference; null = not registered. */
  findReference(name: string): ModelReference | null;
  /** Registered, and its adapter can be used. */
  isConfigured(id: string): boolean;
  /** The first configured model of the tier, in file order. */
  modelForTier(tier: Tier): string | null;
}

/** A model, and the effort that is asked of it (22 §1). */
export interface ModelReference {
  readonly id: string;
  /** Null = the reference names none. */
  readonly effort: Effort | null;
}

/** The registry of a server, whose models may be replaced while it runs (22 §5). */
export interface LiveRegistry extends ModelRegistry {
  replace(next: ModelRegistry): void;
}

export function createLiveRegistry(first: ModelRegistry): LiveRegistry {
  let current = first;
  return {
    get models() {
      return current.models;
    },
    get adapters() {
      return current.adapters;
    },
    get: (id) => current.get(id),
    resolveAlias: (name) => current.resolveAlias(name),
    findReference: (name) => current.findReference(name),
    isConfigured: (id) => current.isConfigured(id),
    modelForTier: (tier) => current.modelForTier(tier),
    replace(next) {
      current = next;
    },
  };
}

/** Models of the shipped registry by id: what an entry without capabilities takes its own from. */
export type KnownModels = () => ReadonlyMap<string, ModelEntry>;

const TOP_KEYS: ReadonlySet<string> = new Set(['updated_on', 'adapters', 'models']);
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
  efforts: EffortsSchema.nullable().default(null),
  default_effort: EffortSchema.nullable().default(null),
  superseded_by: z.string().regex(MODEL_ID_PATTERN, 'must be a model id <provider>:<name>').nullable().default(null),
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
    .filter((key) => !TOP_KEYS.has(key))
    .map((key) => `${key}: unknown key`);
  const updatedOn = root.updated_on ?? null;
  if (updatedOn !== null && !(typeof updatedOn === 'string' && /^\d{4}-\d\d-\d\d$/.test(updatedOn)))
    errors.push('updated_on: must be a date such as "2026-11-23"');
  const adapters = new Map<string, AdapterConfig>();
  for (const [id, value] of readSection(root, 'adapters', errors)) {
    if (!ADAPTER_ID_PATTERN.test(id)) errors.push(`adapters.${id}: an adapter id matches ${ADAPTER_ID_PATTERN.source}`);
    const config = readAdapterConfig(value, `adapters.${id}`, dirname(path), errors);
    if (config) adapters.set(id, config);
    if (id === SIMULATED_PROVIDER && isReal(config))
      errors.push(`adapters.${id}.type: must be scripted, as the models of ${id} count as simulated`);
  }
  const declared = new Set(Object.keys(toMapping(root.adapters)));
  const models: ModelEntry[] = [];
  if (root.models == null) errors.push('models: is required');
  for (const [id, value] of readSection(root, 'models', errors)) {
    const entry = readModel(id, value ?? {}, known, errors);
    if (entry === null) continue;
    models.push(entry);
    if (isSimulated(id) && isReal(adapters.get(entry.adapter) ?? knownAdapter(entry.adapter)))
      errors.push(`models.${id}: is the name of a simulated model, whose adapter must be of type scripted`);
    if (declared.has(entry.adapter)) continue;
    const adapter = knownAdapter(entry.adapter);
    if (adapter !== null) adapters.set(entry.adapter, adapter);
    else
      errors.push(`models.${id}.adapter: unknown adapter ${JSON.stringify(entry.adapter)}; declare it under adapters`);
  }
  errors.push(...aliasClashes(models));
  if (errors.length > 0) return failWith(errors);
  return ok({ models, adapters });
}

/** @param configuredAdapters ids of the adapters that can serve calls */
export function createModelRegistry(file: RegistryFile, configuredAdapters: ReadonlySet<string>): ModelRegistry {
  const byId = new Map(file.models.map((model) => [model.id, model]));
  const references = mapReferences(file.models);
  const isConfigured = (id: string) => {
    const model = byId.get(id);
    return model !== undefined && configuredAdapters.has(model.adapter);
  };
  return {
    ...file,
    get: (id) => byId.get(id) ?? null,
    resolveAlias: (name) => references.get(name)?.canonical ?? null,
    findReference: (name) => references.get(name) ?? null,
    isConfigured,
    modelForTier: (tier) => file.models.find((model) => model.tier === tier && isConfigured(model.id))?.id ?? null,
  };
}

interface KnownReference extends ModelReference {
  readonly canonical: string;
}

/** Every name of a model, alone and with each of its efforts. An id keeps its meaning, whatever it ends in. */
function mapReferences(models: readonly ModelEntry[]): ReadonlyMap<string, KnownReference> {
  const ids = new Set(models.map(({ id }) => id));
  const found = new Map<string, KnownReference>();
  for (const model of models) {
    const { id } = model;
    const efforts = listEfforts(model, null).filter((effort) => !ids.has(`${id}:${effort}`));
    for (const name of [id, ...model.aliases]) {
      found.set(name, { id, effort: null, canonical: id });
      for (const effort of efforts) found.set(`${name}:${effort}`, { id, effort, canonical: `${id}:${effort}` });
    }
  }
  return found;
}

/** What a real model costs must never count as simulated (08 §5). */
function isReal(adapter: AdapterConfig | null): boolean {
  return adapter !== null && adapter.type !== 'scripted';
}

function readSection(root: Readonly<Record<string, unknown>>, key: string, errors: string[]): [string, unknown][] {
  const value = root[key] ?? {};
  if (isMapping(value)) return Object.entries(value);
  errors.push(`${key}: must be a mapping`);
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
  const body = readEffortParts(parsed.data, like);
  for (const key of body.efforts === null ? [] : findEffortKeys(body.extra_body))
    errors.push(`${at}.extra_body.${key}: the entry has efforts; name one where the model is named, as in ${id}:low`);
  const { default_effort } = body;
  if (default_effort !== null && !listEfforts(body, null).includes(default_effort))
    errors.push(`${at}.default_effort: ${default_effort} is not among its efforts`);
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
    ...body,
    superseded_by: parsed.data.superseded_by ?? like?.superseded_by ?? null,
  };
}

type EffortParts = Pick<ModelEntry, 'extra_body' | 'efforts' | 'default_effort'>;

/** An entry that sets its own effort, in either way, takes nothing of the other way from the known model. */
function readEffortParts(entry: z.infer<typeof EntrySchema>, like: ModelEntry | null): EffortParts {
  const setsBody = findEffortKeys(entry.extra_body).length > 0;
  const own = entry.efforts === null ? null : toEffortsByWire(entry.efforts);
  const extra_body = entry.extra_body ?? (own === null ? (like?.extra_body ?? null) : null);
  const efforts = own ?? (setsBody ? null : (like?.efforts ?? null));
  const inherited = efforts === like?.efforts ? (like?.default_effort ?? null) : null;
  return { extra_body, efforts, default_effort: entry.default_effort ?? inherited };
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
