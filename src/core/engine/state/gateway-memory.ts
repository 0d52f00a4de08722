// The gateway's state in memory: open calls, kept decisions, calls that wait for money. Empty after a restart.

import type { MeterReading } from '#core/ports/gateway-relay.ts';
import type { EventId, SessionId } from '#protocol/ids.ts';
import type { ModelEntry } from '#protocol/model.ts';
import type { Effort, ErrorClass } from '#protocol/scalars.ts';

/** How a call ended. */
export interface Outcome {
  /** Null without an answer. */
  readonly reading: MeterReading | null;
  /** Null = the answer is complete. */
  readonly error_class: ErrorClass | null;
  /** 11.7. */
  readonly error_detail: string | null;
  /** Recorded message of a failure; never a provider's own text, which may quote the client's. */
  readonly message: string;
  /** Whether a failure counts against the provider's availability. */
  readonly counts: boolean;
}

/** A gateway call in progress. */
export interface GatewayCall {
  readonly session_id: SessionId;
  readonly root_session_id: SessionId;
  /** Aborted with a `Cancelled`. */
  readonly scope: AbortController;
  /** Resolves when its outcome is stored. Never rejects. */
  readonly done: Promise<void>;
  /** The provider makes its answer in the background: nothing runs here. */
  readonly background: boolean;
}

/** An answer that a provider made or makes in the background. */
export interface BackgroundAnswer {
  /** Name of the API key of its call. */
  readonly caller: string;
  readonly adapter: string;
  readonly model: string;
  readonly session_id: SessionId;
  /** Aborts when its call is ended, e.g. with its session. */
  readonly signal: AbortSignal;
  /** Stores the outcome of its call; a second one is ignored. Never rejects. */
  finish(outcome: Outcome): Promise<void>;
}

/** A decision for one session and one name: prompt cache and signatures belong to one model (19 §2.4). */
export interface StandingDecision {
  readonly root_session_id: SessionId;
  readonly model: ModelEntry;
  /** Of the decision, for requests that name none themselves. */
  readonly effort: Effort | null;
  /** The model name in the body in place of the client's; null = the client's name. */
  readonly sent: string | null;
  /** Its `route.decided`. */
  readonly event_id: EventId;
}

/** A call that waits for money; `pool` is the pool that refused it. */
export interface MoneyWaiter {
  readonly pool: string;
}

export interface GatewayMemory {
  readonly calls: Set<GatewayCall>;
  /** Calls from the head of their request until their last byte is read and sent. */
  arrived: number;
  /** Decisions by session and requested name, in order of use. */
  readonly decisions: Map<SessionId, Map<string, StandingDecision>>;
  /** Background answers by the provider's id, the newest at the end. */
  readonly answers: Map<string, BackgroundAnswer>;
  /** Number of calls that each session has begun. */
  readonly counts: Map<SessionId, number>;
  /** Openings of sessions by name: one at a time. */
  readonly openings: Map<string, Promise<void>>;
  /** In the order of arrival. */
  readonly waiting: MoneyWaiter[];
}

/** Sessions beyond it decide anew, and read their call count from the store again. */
const MAX_SESSIONS = 4096;
/** Names per session. */
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

/** The kept decision, which now counts as used; null where none is kept. */
export function readDecision(memory: GatewayMemory, session: SessionId, name: string): StandingDecision | null {
  const decision = memory.decisions.get(session)?.get(name) ?? null;
  if (decision !== null) keepDecision(memory, session, name, decision);
  return decision;
}

/** Keeps the decision as the one used last. Beyond the bounds the least recently used decision is dropped. */
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

/** Drops the decisions of every session of the tree: they decide anew. */
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
