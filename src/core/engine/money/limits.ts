// The limits that cover a call, and what is left of each: looked up nowhere else (14 §1).

import type { SharedLimit } from '#core/ports/day-limit.ts';
import type { SessionId, ToolUseId } from '#protocol/ids.ts';
import { fromPusd, type Pusd, toPusd, ZERO_PUSD } from '#protocol/money.ts';
import type { OnReached } from '#protocol/scalars.ts';
import type { SessionRecord } from '#protocol/session.ts';
import type { Engine } from '../state/engine.ts';
import type { BudgetRefusal, BudgetScope, DelegationCap } from '../state/reservations.ts';

/** A limit that covers a call. */
export interface Limit {
  readonly scope: BudgetScope;
  /** The limit itself, for what is remembered of it: each day has its own. */
  readonly key: string;
  /** Limits of one pool share reservations. Days do: a call is charged to the day in which it ends. */
  readonly pool: string;
  readonly limit: Pusd;
  readonly on_reached: OnReached;
  /** Other nodes of a cluster spend of it too; null = this node alone (16 §8). */
  readonly shared: Pick<SharedLimit, 'since' | 'caller'> | null;
  spent(): Promise<Pusd>;
}

/** What other nodes hold of a pool, where that is known. */
export type Elsewhere = ReadonlyMap<string, Pusd>;

/** Whose calls are covered. */
export type Spender = Pick<SessionRecord, 'root_session_id' | 'caller'> & {
  /** Of a tree that is not stored yet. */
  readonly new_root?: Pick<SessionRecord, 'max_cost_usd' | 'on_reached'> | null;
};

/** The limits that cover a call of this session, the widest last. Empty when none is set. */
export async function limitsOf(
  engine: Engine,
  session: Spender,
  caps: readonly DelegationCap[],
): Promise<readonly Limit[]> {
  const { spend, sessions } = engine.store;
  const limits: Limit[] = caps.map((cap) => ({
    scope: 'delegation',
    key: `delegation:${cap.tool_use_id}`,
    pool: `delegation:${cap.tool_use_id}`,
    limit: cap.limit,
    on_reached: 'stop',
    shared: null,
    spent: () => spend.ofSubtree(cap.session_id),
  }));
  const root = session.root_session_id;
  const tree = (await sessions.limit(root)) ?? session.new_root ?? null;
  if (tree !== null && tree.max_cost_usd !== null)
    limits.push({
      scope: 'session',
      key: `session:${root}`,
      pool: `session:${root}`,
      limit: toPusd(tree.max_cost_usd),
      on_reached: tree.on_reached,
      shared: null,
      spent: () => spend.ofTree(root),
    });
  const today = new Date(engine.clock.now()).setUTCHours(0, 0, 0, 0);
  const { caller } = session;
  const ofKey = caller === '' ? null : (engine.config.gateway.keys[caller]?.daily_usd ?? null);
  if (ofKey !== null)
    limits.push({
      scope: 'key',
      key: `key:${caller}:${today}`,
      pool: `key:${caller}`,
      limit: toPusd(ofKey),
      on_reached: 'stop',
      shared: { since: today, caller },
      spent: () => spend.ofCaller(caller, today),
    });
  const daily = engine.config.budgets.daily_usd;
  if (daily !== null)
    limits.push({
      scope: 'day',
      key: `day:${today}`,
      pool: 'day',
      limit: toPusd(daily),
      on_reached: 'stop',
      shared: { since: today, caller: null },
      spent: () => spend.since(today),
    });
  return limits;
}

/** What is left of a limit; never negative. */
export function leftOf(limit: Pusd, spent: Pusd, reserved: Pusd): Pusd {
  const left = limit - spent - reserved;
  return left > 0n ? (left as Pusd) : ZERO_PUSD;
}

/** What running calls hold of a pool. */
export function reservedOf(engine: Engine, pool: string): Pusd {
  return engine.budget.reserved.get(pool) ?? ZERO_PUSD;
}

/** Why a limit refuses `needed`, with its amounts at this moment. */
export function refusal(
  limit: Limit,
  { spent, reserved, needed }: { readonly spent: Pusd; readonly reserved: Pusd; readonly needed: Pusd },
): BudgetRefusal {
  return {
    scope: limit.scope,
    key: limit.key,
    on_reached: limit.on_reached,
    limit_usd: fromPusd(limit.limit),
    spent_usd: fromPusd(spent),
    reserved_usd: fromPusd(reserved),
    needed_usd: fromPusd(needed),
    left_usd: fromPusd(leftOf(limit.limit, spent, reserved)),
  };
}

/** A day and its limit as one value of the `meta` table. */
export function dayMark(limit: { readonly key: string; readonly limit: Pusd }): string {
  return `${limit.key} ${fromPusd(limit.limit)}`;
}

/** Nothing is remembered of a tree or a delegation that has ended. */
export function forget(engine: Engine, scope: 'session' | 'delegation', id: SessionId | ToolUseId): void {
  const { warned, paused } = engine.budget;
  warned.delete(`${scope}:${id}`);
  if (scope === 'session') paused.delete(id as SessionId);
}
