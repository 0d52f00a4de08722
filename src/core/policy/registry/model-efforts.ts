// The efforts of models: what an entry lists, what a wire takes, and what is used in place of one it lacks (22 §1).
import { z } from 'zod';
import { type ClientWire, ClientWireSchema } from '#protocol/client-wire.ts';
import type { EffortsByWire, ModelEntry } from '#protocol/model.ts';
import { type Effort, EffortSchema } from '#protocol/scalars.ts';
import type { AdapterConfig } from './adapter-config.ts';

const SCALE = EffortSchema.options;
const WIRES = ClientWireSchema.options;

const EXPECTED = `must be a list of ${SCALE.join(', ')} in this order, each once, or such lists by wire (${WIRES.join(', ')})`;
const EffortListSchema = z.array(EffortSchema).min(1).refine(isAscending, EXPECTED);
const ByWireSchema = z.strictObject({
  messages: EffortListSchema.optional(),
  chat: EffortListSchema.optional(),
  responses: EffortListSchema.optional(),
});
/** `efforts` of an entry: one list for every wire, or a list by wire. */
export const EffortsSchema = z.union([EffortListSchema, ByWireSchema], { error: EXPECTED });

export function toEffortsByWire(given: z.infer<typeof EffortsSchema>): EffortsByWire {
  if (Array.isArray(given)) return { messages: given, chat: given, responses: given };
  return { messages: given.messages ?? [], chat: given.chat ?? [], responses: given.responses ?? [] };
}

/** @param wire null = the efforts of all wires together */
export function listEfforts({ efforts }: Pick<ModelEntry, 'efforts'>, wire: ClientWire | null): readonly Effort[] {
  if (efforts === null) return [];
  if (wire !== null) return efforts[wire];
  return SCALE.filter((effort) => WIRES.some((one) => efforts[one].includes(effort)));
}

/** The wanted effort where it is listed, else the nearest lower one, else the lowest; null = none is listed. */
export function fitEffort(wanted: Effort, listed: readonly Effort[]): Effort | null {
  if (listed.includes(wanted)) return wanted;
  const lower = listed.filter((effort) => SCALE.indexOf(effort) < SCALE.indexOf(wanted));
  return lower.at(-1) ?? listed[0] ?? null;
}

/** The effort of a reference that names none: the provider's default where the wire takes it. */
export function resolveDefaultEffort(model: ModelEntry, wire: ClientWire | null): Effort | null {
  if (model.default_effort === null) return null;
  return fitEffort(model.default_effort, listEfforts(model, wire));
}

/** What a request states: nothing where its provider assumes the same. */
export function omitDefaultEffort({ default_effort }: ModelEntry, effort: Effort | null): Effort | null {
  if (effort === default_effort) return null;
  return effort;
}

/** The wire of this server's own calls; null = it has no efforts of its own. */
export function findOwnWire(
  adapters: ReadonlyMap<string, AdapterConfig>,
  { adapter }: Pick<ModelEntry, 'adapter'>,
): ClientWire | null {
  const config = adapters.get(adapter);
  switch (config?.type) {
    case 'anthropic':
      return 'messages';
    case 'openai':
      return config.wire;
    case 'openrouter':
      return 'chat';
    default:
      return null;
  }
}

/** The keys of an extra body that state an effort, as paths. */
export function findEffortKeys(body: ModelEntry['extra_body']): readonly string[] {
  if (body === null) return [];
  const keys = 'reasoning_effort' in body ? ['reasoning_effort'] : [];
  for (const name of ['reasoning', 'output_config']) {
    const value = body[name];
    if (typeof value === 'object' && value !== null && 'effort' in value) keys.push(`${name}.effort`);
  }
  return keys;
}

function isAscending(efforts: readonly Effort[]): boolean {
  return efforts.every((effort, at) => at === 0 || SCALE.indexOf(efforts[at - 1]!) < SCALE.indexOf(effort));
}
