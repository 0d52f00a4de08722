// Money is reserved before a call leaves and settled when its usage is known, so that parallel calls cannot overshoot (14).

import type { CanonicalRequest } from '../../domain/model-request.ts';
import type { Pusd } from '../../kernel/money.ts';
import type { Engine } from '../state/engine.ts';
import type { Budget, BudgetRefusal } from '../state/reservations.ts';
import type { TurnRun } from '../state/turn-run.ts';
import { ceiling } from './ceiling.ts';
import type { Limit } from './limits.ts';
import { limitsOf, refusal, reservedOf } from './limits.ts';
export type Reservation =
  | { readonly ok: true; readonly limited: boolean; release(): void }
  | { readonly ok: false; readonly refusal: BudgetRefusal };

const NOTHING: Reservation = { ok: true, limited: false, release: () => {} };

/** Takes the money of one call from every limit that covers it, or from none. */
export async function reserve(engine: Engine, run: TurnRun, request: CanonicalRequest): Promise<Reservation> {
  const { budget } = engine;
  let price: Pusd | null = null;
  for (;;) {
    // Again in each round: the day may have changed.
    const limits = await limitsOf(engine, run.session, run.caps);
    if (limits.length === 0) return NOTHING;
    price ??= ceiling(engine, run.model, request);
    const needed = price;
    const seen = budget.settlements;
    const spent = await Promise.all(limits.map((limit) => limit.spent()));
    // A call that settled meanwhile is in neither sum: its reservation is gone, its cost came after the read.
    if (seen !== budget.settlements) continue;
    // From here to the last line nothing is awaited: no two calls pass on the same money.
    for (const [i, limit] of limits.entries()) {
      const reserved = reservedOf(engine, limit.pool);
      const held = limit.scope === 'session' && budget.paused.has(run.session.root_session_id);
      if (!held && spent[i]! + reserved + needed <= limit.limit) continue;
      return { ok: false, refusal: refusal(engine, limit, spent[i]!, needed) };
    }
    for (const { pool } of limits) budget.reserved.set(pool, (reservedOf(engine, pool) + needed) as Pusd);
    return { ok: true, limited: true, release: () => release(budget, limits, needed) };
  }
}

function release(budget: Budget, limits: readonly Limit[], amount: Pusd): void {
  budget.settlements += 1;
  for (const { pool } of limits) {
    const left = (budget.reserved.get(pool) ?? 0n) - amount;
    if (left > 0n) budget.reserved.set(pool, left as Pusd);
    else budget.reserved.delete(pool);
  }
}
