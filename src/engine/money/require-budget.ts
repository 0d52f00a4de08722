// Whether a limit lets anything further begin, asked of what is stored (14 §3).

import type { SessionRecord } from '../../domain/session.ts';
import type { TurnRecord } from '../../domain/turn.ts';
import { AppError } from '../../kernel/errors.ts';
import type { SessionId, TurnId } from '../../kernel/ids.ts';
import type { Pusd, Usd } from '../../kernel/money.ts';
import { toPusd, ZERO_PUSD } from '../../kernel/money.ts';
import type { Engine } from '../state/engine.ts';
import type { BudgetRefusal } from '../state/reservations.ts';
import type { Limit } from './limits.ts';
import { dayMark, limitsOf, refusal } from './limits.ts';

/** A limit that lets no further turn begin: used up, or it ended or paused a turn and was not raised since (14 §3). */
async function exhaustedLimit(
  engine: Engine,
  session: { readonly root_session_id: SessionId },
): Promise<BudgetRefusal | null> {
  for (const limit of await limitsOf(engine, session, [])) {
    const spent = await limit.spent();
    if (spent >= limit.limit || (await hasRefused(engine, session.root_session_id, limit)))
      return refusal(engine, limit, spent, ZERO_PUSD);
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
async function limitMet(engine: Engine, turnId: TurnId): Promise<Pusd | null> {
  const events = await engine.store.events.ofTurn(turnId, ['budget.exceeded']);
  const last = events.findLast((event) => event.payload.scope === 'session');
  return last ? toPusd(last.payload.limit_usd as Usd) : null;
}

/** `meta` key of the day's limit that ended a planner's turn, as `dayMark` writes it. */
export const DAY_REACHED = 'budget_day_reached';

/** Throws `budget_exceeded` with the four amounts when a limit lets nothing further begin (14 §3). */
export async function requireBudget(engine: Engine, session: SessionRecord): Promise<void> {
  const exhausted = await exhaustedLimit(engine, session);
  if (!exhausted) return;
  const { scope, limit_usd, spent_usd, reserved_usd } = exhausted;
  throw new AppError(
    'budget_exceeded',
    `the ${scope} limit of ${limit_usd} USD is reached (${spent_usd} USD spent); raise it to go on`,
    { scope, limit_usd, spent_usd, reserved_usd },
  );
}

/** The tree waits for a higher limit from now on. False when it waited already. */
export function pauseTree(engine: Engine, { root_session_id }: Pick<SessionRecord, 'root_session_id'>): boolean {
  const { paused } = engine.budget;
  if (paused.has(root_session_id)) return false;
  paused.add(root_session_id);
  return true;
}

/**
 * Trees of which a part waited for a higher limit: the rest of them waits with it, and nothing begins beside it (14 §3).
 * One whose limit was raised while it still came to its stop waits no more.
 */
export async function pauseWaitingTrees(engine: Engine, open: readonly TurnRecord[]): Promise<void> {
  const paid = new Set<SessionId>();
  for (const turn of open) {
    if (turn.interrupted_reason !== 'budget') continue;
    const session = await engine.store.sessions.record(turn.session_id);
    if (!session) continue;
    const root = session.root_session_id;
    const limit = (await engine.store.sessions.limit(root))?.max_cost_usd ?? null;
    const met = await limitMet(engine, turn.id);
    if (limit === null || (met !== null && toPusd(limit) > met)) paid.add(root);
    engine.budget.paused.add(root);
  }
  for (const root of paid) engine.budget.paused.delete(root);
}
