// Resolves the name that a client requests to a model of this server (19 §2.4).
import { AUTO_NAMES, type ClientWire, WIRE_PATHS } from '#protocol/client-wire.ts';
import type { ModelEntry } from '#protocol/model.ts';
import type { Effort } from '#protocol/scalars.ts';
import { shownName } from '../cut.ts';
import { listWires } from '../registry/adapter-config.ts';
import type { ModelRegistry } from '../registry/model-registry.ts';

/** The part of the registry that the gateway uses. */
export type GatewayRegistry = Pick<ModelRegistry, 'adapters' | 'models' | 'get' | 'findReference' | 'isConfigured'>;

export interface NamedModel {
  readonly model: ModelEntry;
  /** The name that replaces the client's in the body; null = the client's name is sent. */
  readonly sent: string | null;
  /** That the name ends in; null = none. */
  readonly effort: Effort | null;
}

/** Capabilities of a model that is not listed: large enough for any model. */
const UNLISTED = {
  max_context_tokens: 1_000_000,
  max_output_tokens: 128_000,
  max_image_tokens: 16_384,
  supports_tools: true,
  supports_system_prompt: true,
  supports_images: true,
  supports_structured_output: true,
  supports_thinking: true,
  supports_prompt_caching: true,
  accepted_image_media_types: [],
  accepted_document_media_types: ['application/pdf'],
} as const;

/** Whether the model's adapter supports the wire. */
export function canSpeak(registry: GatewayRegistry, model: ModelEntry, wire: ClientWire): boolean {
  const adapter = registry.adapters.get(model.adapter);
  return adapter !== undefined && listWires(adapter).includes(wire);
}

/**
 * The model of a name: by id or alias, else by wire name, else by wire name without a window or a date at its end,
 * else the unchanged name on the first usable adapter of the wire. `auto` requests a routing decision; null = no
 * adapter of the wire can be used.
 * @param usable ids of the adapters that can be used for this call
 */
export function resolveModelName(
  registry: GatewayRegistry,
  wire: ClientWire,
  name: string,
  usable: ReadonlySet<string>,
): NamedModel | 'auto' | null {
  if (AUTO_NAMES.includes(name)) return 'auto';
  const reference = registry.findReference(name);
  const known = registry.get(reference?.id ?? '');
  const effort = reference?.effort ?? null;
  if (known?.wire_name === name) return { model: known, sent: null, effort };
  if (known !== null) return { model: known, sent: known.wire_name, effort };
  for (const wireName of wireNames(name)) {
    const ofWire = registry.models.filter((model) => model.wire_name === wireName && canSpeak(registry, model, wire));
    const model = ofWire.find(({ adapter }) => usable.has(adapter)) ?? ofWire[0];
    if (model !== undefined) return { model, sent: null, effort: null };
  }
  for (const [adapter, config] of registry.adapters)
    if (usable.has(adapter) && listWires(config).includes(wire))
      return { model: createUnlisted(adapter, name), sent: null, effort: null };
  return null;
}

/** The received name, then the name without suffixes that clients add. */
function wireNames(name: string): ReadonlySet<string> {
  const undated = name.replace(/\[1m\]$/, '');
  return new Set([name, undated, undated.replace(/-\d{8}$/, '')]);
}

/** The model that a provider means by a name. @param asked the model of the call, whose adapter uses the name */
export function findEntryByName(
  { models }: Pick<GatewayRegistry, 'models'>,
  asked: ModelEntry,
  name: string,
): ModelEntry {
  const { adapter } = asked;
  if (wireNames(name).has(asked.wire_name)) return asked;
  for (const wireName of wireNames(name)) {
    const model = models.find((entry) => entry.adapter === adapter && entry.wire_name === wireName);
    if (model !== undefined) return model;
  }
  return createUnlisted(adapter, name);
}

/** The error for a name that the registry does not list for this wire: why it has no price, and which names work. */
export function describeUnlisted({ models, adapters }: GatewayRegistry, name: string): string {
  const names = wireNames(name);
  const wires = models.flatMap(({ wire_name, adapter }) => {
    const config = adapters.get(adapter);
    if (config !== undefined && names.has(wire_name)) return listWires(config);
    return [];
  });
  const paths = [...new Set(wires)].map((wire) => WIRE_PATHS[wire]);
  if (paths.length > 0) return `${shownName(name)} is served at ${paths.join(' and ')}`;
  const unpriced = `the registry does not list ${shownName(name)}, and no limit can hold what has no price`;
  return `${unpriced}; a file of pricing.tables may price it`;
}

/** Maximum names in an error. */
const MAX_LISTED = 12;

/** The models that a client of the wire may ask for under a limit, for the end of an error. */
export function listPriced(registry: GatewayRegistry, wire: ClientWire, isPriced: (id: string) => boolean): string {
  const usable = new Set(registry.models.filter(({ id }) => registry.isConfigured(id)).map(({ adapter }) => adapter));
  const priced = listOfferedModels(registry, usable, wire).filter(({ model }) => isPriced(model.id));
  if (priced.length === 0) return `no model of ${wire} has a price here`;
  const names = priced.slice(0, MAX_LISTED).map(({ name }) => name);
  const list = `models of ${wire} with a price: ${names.join(', ')}`;
  if (priced.length === names.length) return list;
  return `${list} and others (GET /v1/models)`;
}

export function createUnlisted(adapter: string, name: string): ModelEntry {
  const id = `${adapter}:${name}`;
  return {
    id,
    tier: null,
    can_delegate: false,
    aliases: [],
    adapter,
    wire_name: name,
    pricing_id: id,
    tokenizer: null,
    capabilities: { ...UNLISTED, accepted_image_media_types: [], accepted_document_media_types: ['application/pdf'] },
    thinking: null,
    extra_body: null,
    efforts: null,
    default_effort: null,
    superseded_by: null,
  };
}

/** Names of the models that a wire reaches, as a client may ask for them: the wire name, or the id where two share it. */
export function listOfferedModels(
  registry: GatewayRegistry,
  usable: ReadonlySet<string>,
  wire: ClientWire | null,
): readonly { readonly name: string; readonly model: ModelEntry }[] {
  const offered = registry.models.filter(({ adapter, ...rest }) => {
    const config = registry.adapters.get(adapter);
    if (config === undefined || !usable.has(adapter)) return false;
    if (wire === null) return listWires(config).length > 0;
    return canSpeak(registry, { adapter, ...rest }, wire);
  });
  const count = new Map<string, number>();
  for (const { wire_name } of offered) count.set(wire_name, (count.get(wire_name) ?? 0) + 1);
  return offered.map((model) => ({ name: count.get(model.wire_name) === 1 ? model.wire_name : model.id, model }));
}
