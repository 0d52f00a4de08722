// Whether a limit lets anything further begin, asked of what is stored (14 §3).

import type { SessionRecord } from '../../domain/session.ts';
import { AppError } from '../../kernel/errors.ts';
import type { SessionId, TurnId } from '../../kernel/ids.ts';
import type { Pusd, Usd } from '../../kernel/money.ts';
import { toPusd, ZERO_PUSD } from '../../kernel/money.ts';
import type { Engine } from '../state/engine.ts';
import type { BudgetRefusal } from '../state/reservations.ts';
import type { Limit } from './limits.ts';
import { dayMark, limitsOf } from './limits.ts';
import { refusal } from './reserve.ts';
/** A limit that lets no further turn begin: used up, or it ended or paused a turn and was not raised since (14 §3). */
export async function exhaustedLimit(
  engine: Engine,
  session: { readonly root_session_id: SessionId },
): Promise<BudgetRefusal | null> {
  for (const limit of await limitsOf(engine, session, [])) {
    const spent = await limit.spent();
    const reserved = engine.budget.reserved.get(limit.pool) ?? ZERO_PUSD;
    if (spent >= limit.limit || (await hasRefused(engine, session.root_session_id, limit)))
      return refusal(limit, spent, reserved, ZERO_PUSD);
  }
  return null;
}

/** Asked of what is stored, so that a restart forgets nothing. */
async function hasRefused(engine: Engine, root: SessionId, limit: Limit): Promise<boolean> {
  const { turns, meta } = engine.store;
  if (limit.scope === 'day') return (await meta(DAY_REACHED)) === dayMark(limit);
  if (engine.budget.paused.has(root) && (await turns.open(root)) !== null) return true;
  const newest = await turns.newest(root);
  const met = newest && (await limitMet(engine, newest.id));
  return met !== null && limit.limit <= met;
}

/** The tree's limit as it was when it refused a call of this turn; null when it did not. */
export async function limitMet(engine: Engine, turnId: TurnId): Promise<Pusd | null> {
  const told = await engine.store.events.ofTurn(turnId, ['budget.exceeded']);
  const last = told.findLast((event) => event.payload.scope === 'session');
  return last ? toPusd(last.payload.limit_usd as Usd) : null;
}

/** `meta` key of the day's limit that ended a planner's turn, as `dayMark` writes it. */
export const DAY_REACHED = 'budget_day_reached';

/** Throws `budget_exceeded` with the four amounts when a limit lets nothing further begin (14 §3). */
export async function requireBudget(engine: Engine, session: SessionRecord): Promise<void> {
  const refusal = await exhaustedLimit(engine, session);
  if (!refusal) return;
  const { scope, limit_usd, spent_usd, reserved_usd } = refusal;
  throw new AppError(
    'budget_exceeded',
    `the ${scope} limit of ${limit_usd} USD is reached (${spent_usd} USD spent); raise it to go on`,
    { scope, limit_usd, spent_usd, reserved_usd },
  );
}
