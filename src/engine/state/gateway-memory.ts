// What the gateway keeps in memory: calls that are open, decisions that stand, who waits for money. Empty after a restart.
import type { ModelEntry } from '../../domain/model.ts';
import type { EventId, SessionId } from '../../kernel/ids.ts';

/** A call of the gateway that is under way. */
export interface GatewayCall {
  readonly session_id: SessionId;
  readonly root_session_id: SessionId;
  /** Aborted with a `Cancelled`. */
  readonly scope: AbortController;
  /** Resolves when its outcome is stored. Never rejects. */
  readonly done: Promise<void>;
}

/** A decision for one session and one name: prompt cache and signatures belong to one model (19 §2.4). */
export interface StandingDecision {
  readonly root_session_id: SessionId;
  readonly model: ModelEntry;
  /** What stands in the body in place of the name; null = the name as it came. */
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
  /** By session, then by the name asked for; the session used last at the end. */
  readonly decisions: Map<SessionId, Map<string, StandingDecision>>;
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
  return { calls: new Set(), arrived: 0, decisions: new Map(), counts: new Map(), openings: new Map(), waiting: [] };
}

export function keepDecision(
  memory: GatewayMemory,
  session: SessionId,
  name: string,
  decision: StandingDecision,
): void {
  const names = memory.decisions.get(session) ?? new Map<string, StandingDecision>();
  memory.decisions.delete(session);
  memory.decisions.set(session, names);
  names.set(name, decision);
  if (names.size > MAX_NAMES) names.delete(names.keys().next().value!);
  if (memory.decisions.size > MAX_SESSIONS) memory.decisions.delete(memory.decisions.keys().next().value!);
}

/** Of every session of the tree: they decide anew. */
export function dropDecisions(memory: GatewayMemory, root: SessionId): void {
  for (const [session, names] of memory.decisions)
    if ([...names.values()].some((decision) => decision.root_session_id === root)) memory.decisions.delete(session);
}

export function keepCount(memory: GatewayMemory, session: SessionId, count: number): void {
  memory.counts.delete(session);
  memory.counts.set(session, count);
  if (memory.counts.size > MAX_SESSIONS) memory.counts.delete(memory.counts.keys().next().value!);
}

/** Calls of these sessions' trees. */
export function callsOfTree(memory: GatewayMemory, root: SessionId): readonly GatewayCall[] {
  return [...memory.calls].filter((call) => call.root_session_id === root);
}

/** Sessions with an open call. */
export function callingSessions(memory: GatewayMemory): readonly SessionId[] {
  return [...new Set([...memory.calls].map((call) => call.session_id))];
}
