// Publishes `budget.warning` and `budget.exceeded` on the session that met the limit and on its root (14 §4).
import type { Write } from '#core/ports/journal-writer.ts';
import { draft, type EventDraft } from '#protocol/event.ts';
import type { EventId, TurnId } from '#protocol/ids.ts';
import { fromPusd, ZERO_PUSD } from '#protocol/money.ts';
import type { SessionRecord } from '#protocol/session.ts';
import type { Budgets, Runtime, Storage } from '../state/engine.ts';
import type { BudgetAmounts, BudgetRefusal, DelegationCap } from '../state/memory.ts';
import type { ServingModel, TurnPlan, TurnProgress, TurnRun } from '../state/turn-run.ts';
import {
  computeLeft,
  DAY_REACHED,
  formatDayMark,
  type Limit,
  listLimits,
  readReserved,
  toSpender,
  toWireAmounts,
} from './budget-limits.ts';

type Amounts = BudgetAmounts & Pick<BudgetRefusal, 'scope'>;

/** The session whose call met a limit. */
interface BudgetPlace {
  readonly session: SessionRecord;
  /** Id of the token that submitted the turn. */
  readonly submitted_by: string | null;
  readonly turn_id: TurnId | null;
  readonly model: string;
  readonly caps: readonly DelegationCap[];
}

function toBudgetPlace(run: TurnPlan & ServingModel): BudgetPlace {
  const { submitted_by } = run.turn;
  return { session: run.session, submitted_by, turn_id: run.turn.id, model: run.model.id, caps: run.caps };
}

export function draftBudgetEvents(
  { session, turn_id, model }: BudgetPlace,
  type: 'budget.warning' | 'budget.exceeded',
  amounts: Amounts,
  parent: EventId,
): EventDraft[] {
  const payload = {
    scope: amounts.scope,
    ...toWireAmounts(amounts),
    model,
    root_session_id: session.root_session_id,
  };
  const own = draft({ type, session_id: session.id, turn_id, parent, payload });
  if (session.id === session.root_session_id) return [own];
  return [own, draft({ type, session_id: session.root_session_id, turn_id: null, parent, payload })];
}

/** Stores `budget.exceeded`. A day's limit that ended a planner's turn is also stored in `meta`, so that no turn starts; a tree's refusal is read from its newest turn. */
export async function reportExceeded(
  engine: Pick<Storage, 'journal'>,
  run: TurnRun,
  refusal: BudgetRefusal,
): Promise<void> {
  const writes: Write[] = [];
  // What a dead node holds, and what others hold and do not spend, can still be spent today.
  if (refusal.scope === 'day' && !run.session.is_worker && !refusal.is_held_elsewhere) {
    const mark = formatDayMark(refusal);
    writes.push({ kind: 'meta.set', key: DAY_REACHED, value: mark });
  }
  await engine.journal.commit({
    writes,
    emit: draftBudgetEvents(toBudgetPlace(run), 'budget.exceeded', refusal, run.cause),
  });
}

/**
 * Called after a settlement. Stores one warning per limit and value when its share is used up. Never rejects: the answer
 * is stored and paid for. A warning that could not be stored is tried again after the next settlement.
 */
export async function warnIfNear(engine: Runtime & Storage & Budgets, run: TurnRun): Promise<void> {
  if (await warnOfLimits(engine, toBudgetPlace(run), run.call_event_id ?? run.cause)) run.budget_warned = true;
}

/** The warning for any call; true when one was published. `parent` is the warning's parent event. */
export async function warnOfLimits(
  engine: Runtime & Storage & Budgets,
  place: BudgetPlace,
  parent: EventId,
): Promise<boolean> {
  let warned = false;
  try {
    for (const limit of await listLimits(engine, toSpender({ session: place.session, turn: place }), place.caps))
      if (await storeWarning(engine, place, limit, parent)) warned = true;
  } catch (err) {
    engine.log.error({ err, session_id: place.session.id }, 'a budget warning could not be stored');
  }
  return warned;
}

async function storeWarning(
  engine: Runtime & Storage & Budgets,
  place: BudgetPlace,
  limit: Limit,
  parent: EventId,
): Promise<boolean> {
  const { warned } = engine.budget;
  const spent = await limit.readSpent();
  if (!isNear(engine, limit, spent) || warned.get(limit.key) === limit.limit) return false;
  // Marked before the next await, so that parallel calls warn once.
  if (limit.scope === 'day') for (const key of warned.keys()) if (key.startsWith('day:')) warned.delete(key);
  warned.set(limit.key, limit.limit);
  try {
    if (await hasWarnedBefore(engine, place, limit)) return false;
    const writes: Write[] = [];
    if (limit.scope === 'session')
      writes.push({
        kind: 'session.warned',
        session_id: place.session.root_session_id,
        limit_pusd: limit.limit,
      });
    if (limit.scope === 'day') writes.push({ kind: 'meta.set', key: DAY_WARNED, value: formatDayMark(limit) });
    const reserved = readReserved(engine, limit.pool);
    const amounts = { scope: limit.scope, limit: limit.limit, spent, reserved, needed: ZERO_PUSD };
    await engine.journal.commit({
      writes,
      emit: draftBudgetEvents(place, 'budget.warning', amounts, parent),
    });
    return true;
  } catch (thrown) {
    warned.delete(limit.key);
    throw thrown;
  }
}

const DAY_WARNED = 'budget_day_warned';

function isNear(engine: Pick<Runtime, 'config'>, limit: Limit, spent: bigint): boolean {
  // The ratio has at most a few decimals; a millionth is fine enough.
  const millionths = BigInt(Math.round(engine.config.budgets.warn_ratio * 1_000_000));
  return spent * 1_000_000n >= limit.limit * millionths;
}

/** Whether a warning was published, by this process or an earlier one. For a delegation, an owner and an API key only memory knows. */
async function hasWarnedBefore(
  engine: Pick<Storage, 'store'>,
  { session }: BudgetPlace,
  limit: Limit,
): Promise<boolean> {
  if (limit.scope === 'day') return (await engine.store.meta(DAY_WARNED)) === formatDayMark(limit);
  if (limit.scope === 'delegation' || limit.scope === 'key' || limit.scope === 'owner') return false;
  const stored = await engine.store.sessions.limit(session.root_session_id);
  return stored?.warned_pusd === limit.limit;
}

// The remaining money, for the model, as lines at the end of tool results (20 §5).

/** The budget lines of a result: a warning published since the last result, and behind a delegation the tightest limit's remainder. */
export async function readBudgetLines(
  engine: Runtime & Storage & Budgets,
  run: TurnPlan & TurnProgress,
  delegated: boolean,
): Promise<readonly string[]> {
  if (!engine.config.budgets.show_to_model) return [];
  // Taken before the next await, so that one of several parallel results contains it.
  const warned = run.budget_warned;
  run.budget_warned = false;
  if (!warned && !delegated) return [];
  const left = await formatTightestLimit(engine, run);
  if (left === null) return [];
  const lines: string[] = [];
  if (warned) lines.push(`[budget warning: ${left}]`);
  if (delegated) lines.push(`[budget: ${left}]`);
  return lines;
}

/** `$0.42 of $2 left` of the limit with the smallest remainder right now; null where no limit covers the turn. */
async function formatTightestLimit(engine: Runtime & Storage & Budgets, run: TurnPlan): Promise<string | null> {
  for (;;) {
    const limits = await listLimits(engine, toSpender(run), run.caps);
    const seen = engine.budget.settlements;
    const spent = await Promise.all(limits.map((limit) => limit.readSpent()));
    // A call that settled meanwhile is in neither sum.
    if (seen !== engine.budget.settlements) continue;
    const rest = limits.map(({ limit, pool }, i) => ({
      limit,
      left: computeLeft({ limit, spent: spent[i]!, reserved: readReserved(engine, pool) }),
    }));
    const [first, ...others] = rest;
    if (first === undefined) return null;
    const least = others.reduce((a, b) => (b.left < a.left ? b : a), first);
    return `$${fromPusd(least.left)} of $${fromPusd(least.limit)} left`;
  }
}
