// Money is reserved before a call leaves and settled when its usage is known, so that parallel calls cannot overshoot (14).

import type { CanonicalRequest } from '../../domain/model-request.ts';
import type { Pusd } from '../../kernel/money.ts';
import type { Engine } from '../state/engine.ts';
import type { Budget, BudgetRefusal, DelegationCap } from '../state/reservations.ts';
import type { TurnRun } from '../state/turn-run.ts';
import { ceiling } from './ceiling.ts';
import type { Limit, Spender } from './limits.ts';
import { leftOf, limitsOf, refusal, reservedOf } from './limits.ts';
export type Reservation =
  | { readonly ok: true; readonly limited: boolean; release(): void }
  | { readonly ok: false; readonly refusal: BudgetRefusal };

const NOTHING: Reservation = { ok: true, limited: false, release: () => {} };

/** Takes the money of one call from every limit that covers it, or from none. */
export async function reserve(engine: Engine, run: TurnRun, request: CanonicalRequest): Promise<Reservation> {
  let price: Pusd | null = null;
  const covered = { session: run.session, caps: run.caps };
  return takeMoney(engine, covered, () => {
    price ??= ceiling(engine, run.model, request);
    return { needed: price, take: price };
  });
}

/** Who spends, and under whose caps. */
export interface Covered {
  readonly session: Spender;
  readonly caps: readonly DelegationCap[];
}

/** What a call sees of the limits that cover it, all at one moment. */
export interface Room {
  /** Of the limit with the least left. */
  readonly left: Pusd;
  /** That limit's pool. */
  readonly pool: string;
  /** Others hold money of it. */
  readonly busy: boolean;
}

/**
 * Asks how much is to be taken and takes it in one step.
 * @param ask what the call needs, and what it takes in this room; more than is left is refused
 */
export async function takeMoney(
  engine: Engine,
  { session, caps }: Covered,
  ask: (room: Room) => { readonly needed: Pusd; readonly take: Pusd },
): Promise<Reservation> {
  const { budget } = engine;
  for (;;) {
    // Again in each round: the day may have changed.
    const limits = await limitsOf(engine, session, caps);
    if (limits.length === 0) return NOTHING;
    const seen = budget.settlements;
    const spent = await Promise.all(limits.map((limit) => limit.spent()));
    // A call that settled meanwhile is in neither sum: its reservation is gone, its cost came after the read.
    if (seen !== budget.settlements) continue;
    // From here to the last line nothing is awaited: no two calls pass on the same money.
    const { needed, take } = ask(roomOf(engine, limits, spent));
    for (const [i, limit] of limits.entries()) {
      const reserved = reservedOf(engine, limit.pool);
      const held = limit.scope === 'session' && budget.paused.has(session.root_session_id);
      if (!held && spent[i]! + reserved + take <= limit.limit) continue;
      return { ok: false, refusal: refusal(engine, limit, spent[i]!, needed) };
    }
    for (const { pool } of limits) budget.reserved.set(pool, (reservedOf(engine, pool) + take) as Pusd);
    return { ok: true, limited: true, release: () => release(budget, limits, take) };
  }
}

function roomOf(engine: Engine, limits: readonly Limit[], spent: readonly Pusd[]): Room {
  const rooms = limits.map(({ limit, pool }, i): Room => {
    const reserved = reservedOf(engine, pool);
    return { left: leftOf(limit, spent[i]!, reserved), pool, busy: reserved > 0n };
  });
  return rooms.reduce((least, room) => (room.left < least.left ? room : least));
}

function release(budget: Budget, limits: readonly Limit[], amount: Pusd): void {
  budget.settlements += 1;
  for (const { pool } of limits) {
    const left = (budget.reserved.get(pool) ?? 0n) - amount;
    if (left > 0n) budget.reserved.set(pool, left as Pusd);
    else budget.reserved.delete(pool);
  }
  for (const wake of [...budget.settled]) wake();
}
