// `budget.warning` and `budget.exceeded`: on the session that met the limit and once more on its root (14 §4).

import { draft, type EventDraft } from '../../domain/event.ts';
import type { EventId } from '../../kernel/ids.ts';
import { fromPusd, toPusd } from '../../kernel/money.ts';
import type { Write } from '../../ports/journal.ts';
import type { Engine } from '../state/engine.ts';
import type { BudgetRefusal } from '../state/reservations.ts';
import type { TurnRun } from '../state/turn-run.ts';
import { dayMark, type Limit, limitsOf, reservedOf } from './limits.ts';
import { DAY_REACHED } from './require-budget.ts';

type Amounts = Pick<BudgetRefusal, 'scope' | 'limit_usd' | 'spent_usd' | 'reserved_usd' | 'needed_usd'>;

function budgetEvents(
  run: TurnRun,
  type: 'budget.warning' | 'budget.exceeded',
  amounts: Amounts,
  parent: EventId,
): EventDraft[] {
  const { session, turn } = run;
  const payload = {
    scope: amounts.scope,
    limit_usd: amounts.limit_usd,
    spent_usd: amounts.spent_usd,
    reserved_usd: amounts.reserved_usd,
    needed_usd: amounts.needed_usd,
    model: run.model.id,
    root_session_id: session.root_session_id,
  };
  const own = draft({ type, session_id: session.id, turn_id: turn.id, parent, payload });
  if (session.id === session.root_session_id) return [own];
  return [own, draft({ type, session_id: session.root_session_id, turn_id: null, parent, payload })];
}

/** A day's limit that ends a planner's turn lets none begin from now on; a tree's is read from its newest turn. */
export async function reportExceeded(engine: Engine, run: TurnRun, refusal: BudgetRefusal): Promise<void> {
  const writes: Write[] = [];
  if (refusal.scope === 'day' && !run.session.is_worker) {
    const mark = dayMark({ key: refusal.key, limit: toPusd(refusal.limit_usd) });
    writes.push({ kind: 'meta.set', key: DAY_REACHED, value: mark });
  }
  await engine.journal.commit({ writes, emit: budgetEvents(run, 'budget.exceeded', refusal, run.cause) });
}

/**
 * After a settlement: one warning per limit and value, when its share is used up. Never rejects: the answer it follows
 * is stored and paid for. What could not be stored is tried again after the next settlement.
 */
export async function warnIfNear(engine: Engine, run: TurnRun): Promise<void> {
  try {
    for (const limit of await limitsOf(engine, run.session, run.caps)) await warn(engine, run, limit);
  } catch (err) {
    engine.log.error({ err, session_id: run.session.id }, 'a budget warning could not be stored');
  }
}

async function warn(engine: Engine, run: TurnRun, limit: Limit): Promise<void> {
  const { warned } = engine.budget;
  const spent = await limit.spent();
  if (!near(engine, limit, spent) || warned.get(limit.key) === limit.limit) return;
  // Marked before the next await, so that parallel calls warn once.
  if (limit.scope === 'day') for (const key of warned.keys()) if (key.startsWith('day:')) warned.delete(key);
  warned.set(limit.key, limit.limit);
  try {
    if (await warnedBefore(engine, run, limit)) return;
    const writes: Write[] = [];
    if (limit.scope === 'session')
      writes.push({
        kind: 'session.warned',
        session_id: run.session.root_session_id,
        limit_usd: fromPusd(limit.limit),
      });
    if (limit.scope === 'day') writes.push({ kind: 'meta.set', key: DAY_WARNED, value: dayMark(limit) });
    const amounts = {
      scope: limit.scope,
      limit_usd: fromPusd(limit.limit),
      spent_usd: fromPusd(spent),
      reserved_usd: fromPusd(reservedOf(engine, limit.pool)),
      needed_usd: '0',
    };
    await engine.journal.commit({
      writes,
      emit: budgetEvents(run, 'budget.warning', amounts, run.call_event_id ?? run.cause),
    });
    run.budget_warned = true;
  } catch (thrown) {
    warned.delete(limit.key);
    throw thrown;
  }
}

const DAY_WARNED = 'budget_day_warned';

function near(engine: Engine, limit: Limit, spent: bigint): boolean {
  // The ratio has at most a few decimals; a millionth is finer than anybody asks for.
  const millionths = BigInt(Math.round(engine.config.budgets.warn_ratio * 1_000_000));
  return spent * 1_000_000n >= limit.limit * millionths;
}

/** By this process or one before it: a limit of a delegation lives as long as its worker, and in memory only. */
async function warnedBefore(engine: Engine, run: TurnRun, limit: Limit): Promise<boolean> {
  if (limit.scope === 'day') return (await engine.store.meta(DAY_WARNED)) === dayMark(limit);
  if (limit.scope === 'delegation') return false;
  const stored = (await engine.store.sessions.limit(run.session.root_session_id))?.warned_usd ?? null;
  return stored !== null && toPusd(stored) === limit.limit;
}
