// Sessions and turns as callers see them: with what is not stored with them (14 §4, 13 §6.6).

import type { SessionId } from '#protocol/ids.ts';
import { fromPusd, toPusd, ZERO_PUSD } from '#protocol/money.ts';
import type { Session } from '#protocol/session.ts';
import type { Turn } from '#protocol/turn.ts';
import { readStructured } from '../policy/delegation/schema-repair.ts';
import { leftOf, reservedOf } from './money/budget-limits.ts';
import type { Engine } from './state/engine.ts';
import { callingSessions as calling } from './state/gateway-memory.ts';

/** The session as people see it, with what its calls hold at this moment. */
export function withReserved(engine: Engine, stored: Session): Session {
  const session = whileCalling(engine, stored);
  const { budget } = session;
  if (budget === null) return session;
  const key = session.is_worker ? `delegation:${session.parent_tool_use_id}` : `session:${session.id}`;
  const reserved = reservedOf(engine, key);
  if (reserved === ZERO_PUSD) return session;
  const limit = budget.max_cost_usd === null ? ZERO_PUSD : toPusd(budget.max_cost_usd);
  const left = leftOf(limit, toPusd(budget.spent_usd), reserved);
  return {
    ...session,
    budget: { ...budget, reserved_usd: fromPusd(reserved), remaining_usd: fromPusd(left) },
  };
}

/** Sessions that run without a turn: clients' with an open call, and those with a delegation asked for from outside. */
export function callingSessions({ gateway, outside }: Pick<Engine, 'gateway' | 'outside'>): readonly SessionId[] {
  return [...calling(gateway), ...outside.sessions()];
}

/** A client's session runs while a call of it is open, and is active above it. */
function whileCalling({ gateway, outside }: Engine, session: Session): Session {
  const open = callingSessions({ gateway, outside });
  if (open.length === 0) return session;
  const below = [...gateway.calls].filter(
    (call) => call.root_session_id === session.id && call.session_id !== session.id,
  );
  const active = new Set(below.map((call) => call.session_id)).size;
  const runs = session.status === 'idle' && open.includes(session.id);
  if (!runs && active === 0) return session;
  return {
    ...session,
    status: runs ? 'running' : session.status,
    active_worker_count: session.active_worker_count + active,
  };
}

/** What is going on in the whole server, clients of the gateway included. */
export interface ServerCounts {
  readonly active_sessions: number;
  readonly active_workers: number;
  readonly active_turns: number;
}

export async function serverCounts({ store, gateway }: Engine): Promise<ServerCounts> {
  const counts = await store.sessions.counts();
  const open = [...gateway.calls];
  const sessions = (calls: typeof open) => new Set(calls.map((call) => call.session_id)).size;
  return {
    ...counts,
    active_sessions: counts.active_sessions + sessions(open.filter((call) => call.session_id === call.root_session_id)),
    active_workers: counts.active_workers + sessions(open.filter((call) => call.session_id !== call.root_session_id)),
  };
}

/**
 * The answer of a session that owes an object is that object (13 §6.6, 01 §8). At depth 0 there is no repair: one that is
 * not valid stays the text it is.
 */
export async function withCheckedOutput(engine: Engine, turn: Turn): Promise<Turn> {
  if (typeof turn.output !== 'string') return turn;
  const session = await engine.store.sessions.record(turn.session_id);
  const schema = session?.is_worker === false ? (session.worker_definition?.output_schema ?? null) : null;
  if (schema === null) return turn;
  const compiled = engine.schemas.compile(schema);
  const read = compiled.ok ? readStructured(turn.output, compiled.validate) : null;
  return read?.ok ? { ...turn, output: read.value } : turn;
}
