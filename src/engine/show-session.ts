// A session as people see it: with what its calls hold at this moment (14 §4).

import type { Session } from '../domain/session.ts';
import { fromPusd, toPusd, ZERO_PUSD } from '../kernel/money.ts';
import { leftOf, reservedOf } from './money/limits.ts';
import type { Engine } from './state/engine.ts';
/** The session as people see it, with what its calls hold at this moment. */
export function withReserved(engine: Engine, session: Session): Session {
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
