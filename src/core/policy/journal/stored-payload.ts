// Packs event payloads and message metadata for storage; readers restore what follows from schema, position or row (02 §5).

import { z } from 'zod';
import { CATALOG, type EventType, type PayloadOf } from '#protocol/event.ts';
import { type MessageMetadata, MessageMetadataSchema, RoutingDecisionRecordSchema } from '#protocol/message.ts';
import { getProvider } from '#protocol/model.ts';
import {
  type PolicyEvaluation,
  PolicyEvaluationSchema,
  type RouteFacts,
  RouteFactsSchema,
  SLOTS,
  type SlotName,
} from '#protocol/route.ts';
import { type Usage, UsageSchema } from '#protocol/usage.ts';
import { createNotEvaluated } from '../routing/candidate.ts';

// Stored objects omit fields that have the default value of a missing field (01 §1).

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
  if (field instanceof z.ZodArray) return EMPTY;
  return undefined;
}
const EMPTY: readonly unknown[] = Object.freeze([]);

/** The fields of an object that have to be stored. */
export function omitDefaults(defaults: Defaults, object: JsonObject): Record<string, unknown> {
  const kept: Record<string, unknown> = {};
  for (const name in object) {
    const value = object[name];
    const missing = defaults[name];
    if (value !== missing && !(missing === EMPTY && (value as readonly unknown[]).length === 0)) kept[name] = value;
  }
  return kept;
}

/** The object again, its fields in the order of the schema; one that was stored whole stays as it is. */
export function restoreDefaults(defaults: Defaults, stored: JsonObject): Record<string, unknown> {
  return { ...defaults, ...stored };
}

type Values = Readonly<Record<string, unknown>>;
type Route = PayloadOf<'route.decided'>;
type Eval = PayloadOf<'eval.completed'>;
/** Fields of the event; a payload's copy of them is not stored. */
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
  'tool.confirmation_requested': { kind: 'tool' },
  'eval.completed': { subject_kind: 'turn', rubric_id: 'turn-heuristic-v1', rubric_version: '1.2.0' },
};
/** The same for a turn without negative flags. */
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
 * The text that a payload is stored as: 0.8 kB instead of 2.2 for the five events of a plain turn. It leaves out default
 * values, fields that repeat the event's place, and the parts of a routing decision that follow from its winner.
 */
export function packPayload(type: EventType, payload: Values, place: Place): string {
  const kept = omitDefaults(DEFAULTS.get(type)!, payload);
  if (kept.root_session_id === place.session_id) kept.root_session_id = undefined;
  if (NAMED_BY_MODEL.has(type) && kept.provider === getProvider(kept.model as string)) kept.provider = undefined;
  if (type === 'route.decided') packRoute(kept, payload as Route);
  if (type === 'llm.call_completed') packBreakdown(kept);
  if (type === 'eval.completed') packEval(kept, payload as Eval, place);
  return JSON.stringify(kept);
}

/** A stored payload with every field that it has on the wire; of a type unknown to this version as it is. */
export function unpackPayload(type: string, stored: Values, place: Place): Values {
  const defaults = DEFAULTS.get(type);
  if (defaults === undefined) return stored;
  const payload = restoreDefaults(defaults, stored);
  if ('root_session_id' in defaults) payload.root_session_id ??= place.session_id;
  if (NAMED_BY_MODEL.has(type)) payload.provider ??= getProvider(payload.model as string);
  if (type === 'route.decided') unpackRoute(payload, stored);
  if (type === 'llm.call_completed') unpackBreakdown(payload);
  if (type === 'eval.completed') {
    payload.subject_id ??= findSubject(payload.subject_kind as Eval['subject_kind'], place);
    payload.signals ??= CLEAN;
  }
  return payload;
}

/** A call that is billed for its tokens alone costs what they cost. */
function packBreakdown(kept: Record<string, unknown>): void {
  const { fees, surcharge } = kept.cost_breakdown as Usage['cost_breakdown'];
  if (fees === '0' && surcharge === '0') kept.cost_breakdown = undefined;
}

function unpackBreakdown(payload: Record<string, unknown>): void {
  payload.cost_breakdown ??= { tokens: payload.cost_usd, fees: '0', surcharge: '0' };
}

function packEval(kept: Record<string, unknown>, { subject_kind, subject_id, signals }: Eval, place: Place): void {
  if (subject_id === findSubject(subject_kind, place)) kept.subject_id = undefined;
  if (JSON.stringify(signals) === CLEAN_TEXT) kept.signals = undefined;
}

function findSubject(kind: Eval['subject_kind'], { session_id, turn_id }: Place): string | null {
  if (kind === 'turn') return turn_id;
  return session_id;
}

function packRoute(kept: Record<string, unknown>, { chosen_model, winner_index, chain, facts }: Route): void {
  kept.chain = packChain(chain);
  if (facts !== null) kept.facts = packFacts(facts);
  if (chain[winner_index]?.candidate_model === chosen_model) kept.chosen_model = undefined;
}

function unpackRoute(payload: Record<string, unknown>, { chain, fallback_dearer, facts }: Values): void {
  // The field's name until 0.2; events of that time keep it.
  if (fallback_dearer !== undefined) payload.fallback_costlier = fallback_dearer;
  delete payload.fallback_dearer;
  const entries = unpackChain(chain as StoredChain);
  payload.chain = entries;
  payload.chosen_model ??= entries[payload.winner_index as number]?.candidate_model;
  if (facts != null) payload.facts = unpackFacts(facts as Partial<RouteFacts>);
}

const FACTS = readDefaults(RouteFactsSchema);
/** What nearly every turn needs of its model. */
const USUAL_NEEDS: RouteFacts['needs'] = ['tools', 'system_prompt'];

/** 38 bytes of a plain turn. */
function packFacts(facts: RouteFacts): Values {
  const { needs, ...rest } = facts;
  const kept = omitDefaults(FACTS, rest);
  if (needs.join() !== USUAL_NEEDS.join()) kept.needs = needs;
  return kept;
}

function unpackFacts(stored: Partial<RouteFacts>): RouteFacts {
  return { ...restoreDefaults(FACTS, stored), needs: stored.needs ?? USUAL_NEEDS } as RouteFacts;
}

type StoredChain = readonly Partial<PolicyEvaluation>[];

/** Why a slot had no candidate in nearly every turn. Stored events are read by it, so it is never changed. */
const USUAL_REASONS: { readonly [S in SlotName]?: string } = {
  per_message_override: 'no @model in message',
  delegate_request: 'not in delegation re-entry',
};

/**
 * Up to the winner a slot is known by its position. Behind it only slots that state another reason than that the winner
 * decided are stored, with their names: 0.2 kB of a plain turn in place of 0.55.
 */
function packChain(chain: Route['chain']): StoredChain {
  const winner = chain.find((entry) => entry.verdict === 'chose');
  const end = winner === undefined ? chain.length : chain.indexOf(winner) + 1;
  const kept: Partial<PolicyEvaluation>[] = [];
  for (const [at, entry] of chain.entries()) {
    const { verdict, reason, policy } = entry;
    if (at >= end && verdict === 'not_evaluated' && reason === `decided by ${winner?.policy}`) continue;
    const { policy: _, ...packed } = omitDefaults(EVALUATION, entry);
    if (verdict === 'not_applicable' && reason === USUAL_REASONS[policy]) {
      delete packed.verdict;
      delete packed.reason;
    }
    kept.push(at < end && policy === SLOTS[at] ? packed : { policy, ...packed });
  }
  return kept;
}

/** Also reads chains of earlier versions: whole ones, and those that end with their winner. */
function unpackChain(stored: StoredChain = []): Route['chain'] {
  const evaluated = stored.map((entry, at) => {
    const policy = entry.policy ?? SLOTS[at]!;
    // Rules that were stored before efforts existed have none.
    const tried_rules =
      entry.tried_rules?.map((rule) => ({ ...rule, candidate_effort: rule.candidate_effort ?? null })) ?? null;
    const usual = { policy, verdict: 'not_applicable', reason: USUAL_REASONS[policy] };
    return restoreDefaults(EVALUATION, { ...usual, ...entry, tried_rules }) as PolicyEvaluation;
  });
  const winner = evaluated.find((entry) => entry.verdict === 'chose');
  if (winner === undefined || evaluated.length >= SLOTS.length) return evaluated;
  const end = evaluated.indexOf(winner) + 1;
  const stated = new Map(evaluated.slice(end).map((entry) => [entry.policy, entry]));
  const behind = SLOTS.slice(end).map((policy) => stated.get(policy) ?? createNotEvaluated(policy, winner.policy));
  return [...evaluated.slice(0, end), ...behind];
}

const METADATA = readDefaults(MessageMetadataSchema);
const ROUTING = readDefaults(RoutingDecisionRecordSchema);
const USAGE = readDefaults(UsageSchema);

/** The stored form of a message's metadata; its status is a column of the row. */
export function packMetadata({ status: _, routing, usage, ...metadata }: MessageMetadata): string {
  return JSON.stringify({
    ...omitDefaults(METADATA, metadata),
    ...(routing !== null && {
      routing: {
        ...omitDefaults(ROUTING, routing),
        ...(routing.chosen_model === metadata.model && { chosen_model: undefined }),
      },
    }),
    ...(usage !== null && { usage: packUsage(usage) }),
  });
}

/** Stored metadata with every field; that of an older version is whole already. */
export function unpackMetadata(stored: Values, status: string): MessageMetadata {
  const metadata = { ...restoreDefaults(METADATA, stored), status };
  const { model, routing, usage } = metadata as unknown as MessageMetadata;
  return {
    ...metadata,
    routing: routing && restoreDefaults(ROUTING, { chosen_model: model, ...(routing as Partial<typeof routing>) }),
    usage: usage && unpackUsage(usage),
  } as MessageMetadata;
}

function packUsage(usage: Usage): Values {
  const kept = omitDefaults(USAGE, usage);
  packBreakdown(kept);
  return kept;
}

function unpackUsage(stored: Values): Values {
  const usage = restoreDefaults(USAGE, stored);
  unpackBreakdown(usage);
  return usage;
}
