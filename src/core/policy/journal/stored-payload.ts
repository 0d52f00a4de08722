// Payloads and metadata of messages as they are stored: a reader adds what follows from their schema, place or row (02 §5).

import { z } from 'zod';
import { CATALOG, type EventType, type PayloadOf } from '#protocol/event.ts';
import { type MessageMetadata, MessageMetadataSchema, RoutingDecisionRecordSchema } from '#protocol/message.ts';
import { getProvider } from '#protocol/model.ts';
import { type PolicyEvaluation, PolicyEvaluationSchema, SLOTS } from '#protocol/route.ts';
import { UsageSchema } from '#protocol/usage.ts';
import { notEvaluated } from '../routing/candidate.ts';

// Objects as they are stored: without the values that a reader takes a missing field for (01 §1).

type JsonObject = Readonly<Record<string, unknown>>;

/** Every field of a schema in its order, with the value of a missing one; undefined for a required field. */
type Defaults = JsonObject;

/** Null for what may be null, else `false`, `0` and the empty list. */
export function readDefaults(schema: z.ZodObject): Defaults {
  return Object.fromEntries(Object.entries(schema.shape).map(([name, field]) => [name, readDefault(field)]));
}

function readDefault(field: unknown): unknown {
  if (field instanceof z.ZodNullable) return null;
  if (field instanceof z.ZodBoolean) return false;
  if (field instanceof z.ZodNumber) return 0;
  return field instanceof z.ZodArray ? EMPTY : undefined;
}
const EMPTY: readonly unknown[] = Object.freeze([]);

/** What has to be stored of an object. */
export function sparse(defaults: Defaults, object: JsonObject): Record<string, unknown> {
  const kept: Record<string, unknown> = {};
  for (const name in object) {
    const value = object[name];
    const missing = defaults[name];
    if (value !== missing && !(missing === EMPTY && (value as readonly unknown[]).length === 0)) kept[name] = value;
  }
  return kept;
}

/** The object again, its fields in the order of the schema; one that was stored whole stays as it is. */
export function whole(defaults: Defaults, stored: JsonObject): Record<string, unknown> {
  return { ...defaults, ...stored };
}

type Values = Readonly<Record<string, unknown>>;
type Route = PayloadOf<'route.decided'>;
type Eval = PayloadOf<'eval.completed'>;
/** Of the event: what its payload repeats of it is not stored. */
interface Place {
  readonly session_id: string;
  readonly turn_id: string | null;
}

/**
 * The usual values of further fields by event type; such a field has no other meaning when it is missing. Stored events are
 * read by it, so it is never changed: a new rubric is simply stored.
 */
const USUAL: { readonly [T in EventType]?: Partial<PayloadOf<T>> } = {
  'llm.call_started': { call_index: 1, purpose: 'turn' },
  'llm.call_completed': { stop_reason: 'end_turn', purpose: 'turn' },
  'turn.completed': { stop_reason: 'end_turn' },
  'eval.completed': { subject_kind: 'turn', rubric_id: 'turn-heuristic-v1', rubric_version: '1.2.0' },
};
/** Likewise, of a turn in which nothing went wrong. */
const CLEAN: Eval['signals'] = {
  flags: [
    'stop_reason_clean',
    'no_llm_failure',
    'no_tool_failure',
    'no_tool_exit_failure',
    'no_max_tokens_hit',
    'tool_cycle_count_reasonable',
  ],
  flags_negative: [],
};
const CLEAN_TEXT = JSON.stringify(CLEAN);

/** Their provider is a part of the model's id; of a failed call a report reads it in SQL. */
const NAMED_BY_MODEL: ReadonlySet<string> = new Set<EventType>(['llm.call_started', 'llm.call_completed']);

const DEFAULTS: ReadonlyMap<string, Values> = new Map(
  Object.entries(CATALOG).map(([type, { payload }]) => [
    type,
    { ...readDefaults(payload), ...USUAL[type as EventType] },
  ]),
);
const EVALUATION = readDefaults(PolicyEvaluationSchema);

/**
 * The text that a payload is stored as: 0.8 kB instead of 2.1 for the five events of a plain turn. It leaves out default
 * values, fields that repeat the event's place, and the parts of a routing decision that follow from its winner.
 */
export function storedPayload(type: EventType, payload: Values, place: Place): string {
  const kept = sparse(DEFAULTS.get(type)!, payload);
  if (kept.root_session_id === place.session_id) kept.root_session_id = undefined;
  if (NAMED_BY_MODEL.has(type) && kept.provider === getProvider(kept.model as string)) kept.provider = undefined;
  if (type === 'route.decided') storeRoute(kept, payload as Route);
  if (type === 'eval.completed') storeEval(kept, payload as Eval, place);
  return JSON.stringify(kept);
}

/** A stored payload with every field that it has on the wire; of a type unknown to this version as it is. */
export function wholePayload(type: string, stored: Values, place: Place): Values {
  const defaults = DEFAULTS.get(type);
  if (defaults === undefined) return stored;
  const payload = whole(defaults, stored);
  if ('root_session_id' in defaults) payload.root_session_id ??= place.session_id;
  if (NAMED_BY_MODEL.has(type)) payload.provider ??= getProvider(payload.model as string);
  if (type === 'route.decided') wholeRoute(payload, stored);
  if (type === 'eval.completed') {
    payload.subject_id ??= findSubject(payload.subject_kind as Eval['subject_kind'], place);
    payload.signals ??= CLEAN;
  }
  return payload;
}

function storeEval(kept: Record<string, unknown>, { subject_kind, subject_id, signals }: Eval, place: Place): void {
  if (subject_id === findSubject(subject_kind, place)) kept.subject_id = undefined;
  if (JSON.stringify(signals) === CLEAN_TEXT) kept.signals = undefined;
}

function findSubject(kind: Eval['subject_kind'], { session_id, turn_id }: Place): string | null {
  return kind === 'turn' ? turn_id : session_id;
}

function storeRoute(kept: Record<string, unknown>, { chosen_model, winner_index, chain }: Route): void {
  kept.chain = storedChain(chain);
  if (chain[winner_index]?.candidate_model === chosen_model) kept.chosen_model = undefined;
}

function wholeRoute(payload: Record<string, unknown>, { chain, fallback_dearer }: Values): void {
  // The field's name until 0.2; events of that time keep it.
  if (fallback_dearer !== undefined) payload.fallback_costlier = fallback_dearer;
  delete payload.fallback_dearer;
  const entries = wholeChain(chain as StoredChain);
  payload.chain = entries;
  payload.chosen_model ??= entries[payload.winner_index as number]?.candidate_model;
}

type StoredChain = readonly Partial<PolicyEvaluation>[];

/** A slot is known by its index, and no slot after the winner was evaluated. */
function storedChain(chain: Route['chain']): StoredChain {
  const end = chain.findIndex((entry) => entry.verdict === 'chose') + 1 || chain.length;
  const winner = chain[end - 1]?.policy;
  const tail = chain.slice(end);
  const follows = tail.every(({ verdict, reason }) => verdict === 'not_evaluated' && reason === `decided by ${winner}`);
  return (follows ? chain.slice(0, end) : chain).map((entry, at) => {
    const kept = sparse(EVALUATION, entry);
    if (kept.policy === SLOTS[at]) kept.policy = undefined;
    return kept;
  });
}

function wholeChain(stored: StoredChain = []): Route['chain'] {
  const evaluated = stored.map((entry, at) => whole(EVALUATION, { policy: SLOTS[at], ...entry }) as PolicyEvaluation);
  const last = evaluated.at(-1);
  if (last?.verdict !== 'chose') return evaluated;
  return [...evaluated, ...SLOTS.slice(evaluated.length).map((policy) => notEvaluated(policy, last.policy))];
}

const METADATA = readDefaults(MessageMetadataSchema);
const ROUTING = readDefaults(RoutingDecisionRecordSchema);
const USAGE = readDefaults(UsageSchema);

/** What a message's metadata is stored as; its status is a column of its row. */
export function storedMetadata({ status: _, routing, usage, ...metadata }: MessageMetadata): string {
  return JSON.stringify({
    ...sparse(METADATA, metadata),
    ...(routing !== null && {
      routing: {
        ...sparse(ROUTING, routing),
        ...(routing.chosen_model === metadata.model && { chosen_model: undefined }),
      },
    }),
    ...(usage !== null && { usage: sparse(USAGE, usage) }),
  });
}

/** Stored metadata with every field; that of an older version is whole already. */
export function wholeMetadata(stored: Values, status: string): MessageMetadata {
  const metadata = { ...whole(METADATA, stored), status };
  const { model, routing, usage } = metadata as unknown as MessageMetadata;
  return {
    ...metadata,
    routing: routing && whole(ROUTING, { chosen_model: model, ...(routing as Partial<typeof routing>) }),
    usage: usage && whole(USAGE, usage),
  } as MessageMetadata;
}
