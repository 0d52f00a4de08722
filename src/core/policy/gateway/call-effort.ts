// The effort of a gateway call: the client's own, or that of the decision, and where it goes in the body (22 §1).
import type { ClientWire } from '#protocol/client-wire.ts';
import type { ModelEntry } from '#protocol/model.ts';
import { type Effort, EffortSchema } from '#protocol/scalars.ts';
import { CLIENT_BODY } from '../parsing/text-limits.ts';
import { toMapping } from '../parsing/yaml.ts';
import type { AdapterConfig } from '../registry/adapter-config.ts';
import { fitEffort, listEfforts, omitDefaultEffort } from '../registry/model-efforts.ts';
import { findObjectMembers, type Member, type Splice } from './json-members.ts';

/** What a body states of effort. */
export interface StatedEffort {
  /** Object and key of the statement, or the key alone. */
  readonly path: readonly string[];
  /** Null for a word that is no effort here. */
  readonly effort: Effort | null;
}

const PATHS: Readonly<Record<ClientWire, readonly (readonly string[])[]>> = {
  messages: [['output_config', 'effort']],
  chat: [['reasoning_effort'], ['reasoning', 'effort']],
  responses: [['reasoning', 'effort']],
};

/** Null where the body names none. */
export function readStatedEffort(wire: ClientWire, body: Readonly<Record<string, unknown>>): StatedEffort | null {
  for (const path of PATHS[wire]) {
    const [outer, inner] = path;
    const value = inner === undefined ? body[outer!] : toMapping(body[outer!])[inner];
    if (typeof value !== 'string') continue;
    const parsed = EffortSchema.safeParse(value);
    return { path, effort: parsed.success ? parsed.data : null };
  }
  return null;
}

interface Decided {
  readonly model: ModelEntry;
  /** Of the decision, whatever the client's body states. */
  readonly effort: Effort | null;
}

interface CallEffort {
  /** Stored with the call; null = none is known. */
  readonly effort: Effort | null;
  /** Replaces what the body states; undefined = the body stays as it is. */
  readonly sent: Effort | null | undefined;
}

/**
 * The client's own effort, fitted only where another model won than the one it asked for; the decision's where it
 * names none.
 * @param asked id of the model that the client asked for; null = it left the choice to the server
 */
export function resolveCallEffort(
  stated: StatedEffort | null,
  wire: ClientWire,
  asked: string | null,
  { model, effort }: Decided,
): CallEffort {
  if (stated === null) return { effort, sent: omitDefaultEffort(model, effort) ?? undefined };
  if (asked === model.id) return { effort: stated.effort, sent: undefined };
  const listed = listEfforts(model, wire);
  const fitted = stated.effort === null ? (listed[0] ?? null) : fitEffort(stated.effort, listed);
  if (fitted !== null && fitted === stated.effort) return { effort: fitted, sent: undefined };
  return { effort: fitted, sent: fitted };
}

/** Where an effort goes: over the value that is there, into the object that is there, or in front of all members. */
export interface EffortPlace {
  readonly splice: Splice | null;
  /** A member for the front of the body. */
  readonly inserted: string;
}

/** @param members of the body */
export function placeEffort(
  bytes: Buffer,
  members: ReadonlyMap<string, Member>,
  { wire, stated, type }: { wire: ClientWire; stated: StatedEffort | null; type: AdapterConfig['type'] },
  effort: Effort | null,
): EffortPlace {
  const value = JSON.stringify(effort);
  const [outer, inner] = stated?.path ?? selectPath(wire, type);
  const place = members.get(outer!);
  if (inner === undefined) {
    if (place === undefined) return { splice: null, inserted: `${JSON.stringify(outer)}:${value},` };
    return { splice: { from: place.from, to: place.to, text: value }, inserted: '' };
  }
  const text = `{${JSON.stringify(inner)}:${value}}`;
  if (place === undefined) return { splice: null, inserted: `${JSON.stringify(outer)}:${text},` };
  const found = findObjectMembers(bytes, CLIENT_BODY, place);
  if (!found.ok) return { splice: { from: place.from, to: place.to, text }, inserted: '' };
  const given = found.value.find(({ key }) => key === inner);
  if (given !== undefined) return { splice: { from: given.from, to: given.to, text: value }, inserted: '' };
  const at = place.from + 1;
  const comma = found.value.length === 0 ? '' : ',';
  return { splice: { from: at, to: at, text: `${JSON.stringify(inner)}:${value}${comma}` }, inserted: '' };
}

function selectPath(wire: ClientWire, type: AdapterConfig['type']): readonly string[] {
  if (wire === 'chat' && type === 'openrouter') return ['reasoning', 'effort'];
  return PATHS[wire][0]!;
}
