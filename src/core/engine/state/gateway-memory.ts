// What the gateway keeps in memory: calls that are open, decisions that stand, who waits for money. Empty after a restart.

import type { MeterReading } from '#core/ports/gateway-relay.ts';
import type { EventId, SessionId } from '#protocol/ids.ts';
import type { ModelEntry } from '#protocol/model.ts';
import type { ErrorClass } from '#protocol/scalars.ts';

/** How a call ended. */
export interface Outcome {
  /** Null where no answer came. */
  readonly reading: MeterReading | null;
  /** Null = the answer came whole. */
  readonly error_class: ErrorClass | null;
  /** 11.7. */
  readonly error_detail: string | null;
  /** What is written of a failure; never a provider's own words, which may quote the client's. */
  readonly message: string;
  /** It counts against the provider, and not only against the client. */
  readonly counts: boolean;
}

/** A call of the gateway that is under way. */
export interface GatewayCall {
  readonly session_id: SessionId;
  readonly root_session_id: SessionId;
  /** Aborted with a `Cancelled`. */
  readonly scope: AbortController;
  /** Resolves when its outcome is stored. Never rejects. */
  readonly done: Promise<void>;
  /** Its answer is made in the background: nothing runs here. */
  readonly background: boolean;
}

/** An answer that a provider made or makes in the background. */
export interface BackgroundAnswer {
  /** Name of the key that came with its call. */
  readonly caller: string;
  readonly adapter: string;
  readonly model: string;
  readonly session_id: SessionId;
  /** Aborts when its call is ended from elsewhere. */
  readonly signal: AbortSignal;
  /** Stores the outcome of its call; a second one is ignored. Never rejects. */
  finish(outcome: Outcome): Promise<void>;
}

/** A decision for one session and one name: prompt cache and signatures belong to one model (19 §2.4). */
export interface StandingDecision {
  readonly root_session_id: SessionId;
  readonly model: ModelEntry;
  /** The model name in the body in place of the client's; null = the name as it came. */
  readonly sent: string | null;
  /** Its `route.decided`. */
  readonly event_id: EventId;
}

/** A call that waits for money; `pool` is the one that refused it. */
export interface MoneyWaiter {
  readonly pool: string;
}

export interface GatewayMemory {
  readonly calls: Set<GatewayCall>;
  /** Calls from the head of their request until nothing of them is left to read or to send. */
  arrived: number;
  /** By session, then by the name asked for; what was used last at the end. */
  readonly decisions: Map<SessionId, Map<string, StandingDecision>>;
  /** By the provider's id, the newest at the end. */
  readonly answers: Map<string, BackgroundAnswer>;
  /** Calls that each session has begun. */
  readonly counts: Map<SessionId, number>;
  /** Opening a session of this name: one at a time. */
  readonly openings: Map<string, Promise<void>>;
  /** In the order in which they came. */
  readonly waiting: MoneyWaiter[];
}

/** Sessions beyond it decide anew, and are counted anew from the store. */
const MAX_SESSIONS = 4096;
/** Names that one session has asked for. */
const MAX_NAMES = 64;

export function createGatewayMemory(): GatewayMemory {
  return {
    calls: new Set(),
    arrived: 0,
    decisions: new Map(),
    answers: new Map(),
    counts: new Map(),
    openings: new Map(),
    waiting: [],
  };
}

/** The decision that stands, which counts as used now; null where none does. */
export function readDecision(memory: GatewayMemory, session: SessionId, name: string): StandingDecision | null {
  const decision = memory.decisions.get(session)?.get(name) ?? null;
  if (decision !== null) keepDecision(memory, session, name, decision);
  return decision;
}

/** Keeps the decision as the one used last; beyond the bounds the one goes that was used longest ago. */
export function keepDecision(
  memory: GatewayMemory,
  session: SessionId,
  name: string,
  decision: StandingDecision,
): void {
  const names = memory.decisions.get(session) ?? new Map<string, StandingDecision>();
  putLast(names, name, decision, MAX_NAMES);
  putLast(memory.decisions, session, names, MAX_SESSIONS);
}

function putLast<K, V>(map: Map<K, V>, key: K, value: V, most: number): void {
  map.delete(key);
  map.set(key, value);
  if (map.size > most) map.delete(map.keys().next().value!);
}

/** Of every session of the tree: they decide anew. */
export function dropDecisions(memory: GatewayMemory, root: SessionId): void {
  for (const [session, names] of memory.decisions)
    if ([...names.values()].some((decision) => decision.root_session_id === root)) memory.decisions.delete(session);
}

export function keepCount(memory: GatewayMemory, session: SessionId, count: number): void {
  putLast(memory.counts, session, count, MAX_SESSIONS);
}

/** Calls of these sessions' trees. */
export function listCallsInTree(memory: GatewayMemory, root: SessionId): readonly GatewayCall[] {
  return [...memory.calls].filter((call) => call.root_session_id === root);
}

export function hasCalls(memory: GatewayMemory, root: SessionId): boolean {
  for (const call of memory.calls) if (call.root_session_id === root) return true;
  return false;
}

/** Sessions with an open call. */
export function listCallingSessions(memory: GatewayMemory): readonly SessionId[] {
  return [...new Set([...memory.calls].map((call) => call.session_id))];
}
