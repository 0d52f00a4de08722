// Money is reserved before a call leaves and settled when its usage is known, so that parallel calls cannot overshoot (14).
import type { ModelEntry } from '../../domain/model.ts';
import type { CanonicalRequest } from '../../domain/model-request.ts';
import type { OnReached } from '../../domain/scalars.ts';
import type { Session } from '../../domain/session.ts';
import { NO_TOKENS } from '../../domain/usage.ts';
import type { SessionId, ToolUseId, TurnId } from '../../kernel/ids.ts';
import { fromPusd, type Pusd, toPusd, type Usd, ZERO_PUSD } from '../../kernel/money.ts';
import { boundRequest, type SentParts } from '../../policy/context/estimate.ts';
import { pricingId } from '../routing/route-environment.ts';
import type { Engine } from '../state/engine.ts';
import type { TurnRun } from '../state/turn-run.ts';

export type BudgetScope = 'session' | 'delegation' | 'day';

/** A cap on one delegation: its worker and everything below it. */
export interface DelegationCap {
  readonly tool_use_id: ToolUseId;
  readonly session_id: SessionId;
  readonly limit: Pusd;
}

/** A limit that covers a call. */
export interface Limit {
  readonly scope: BudgetScope;
  /** The limit itself, for what is remembered of it: each day has its own. */
  readonly key: string;
  /** Limits of one pool share reservations. Days do: a call is charged to the day in which it ends. */
  readonly pool: string;
  readonly limit: Pusd;
  readonly on_reached: OnReached;
  spent(): Promise<Pusd>;
}

/** Why a call was refused; all amounts as they were at that moment. */
export interface BudgetRefusal {
  readonly scope: BudgetScope;
  readonly key: string;
  readonly on_reached: OnReached;
  readonly limit_usd: Usd;
  readonly spent_usd: Usd;
  readonly reserved_usd: Usd;
  readonly needed_usd: Usd;
  /** Limit less what is spent and reserved; never negative. */
  readonly left_usd: Usd;
}

export type Reservation =
  | { readonly ok: true; readonly limited: boolean; release(): void }
  | { readonly ok: false; readonly refusal: BudgetRefusal };

/** Reservations live in memory only: after a crash every open call is closed before anything runs. */
export interface Budget {
  /** By pool. */
  readonly reserved: Map<string, Pusd>;
  /** Counts settlements: a check whose sums were read before one is made again. */
  settlements: number;
  /** Trees that wait for a higher limit; after a restart made again from their turns (14 §3). */
  readonly paused: Set<SessionId>;
  /** Limits that were warned about, by key, with their amount then. */
  readonly warned: Map<string, Pusd>;
}

export function createBudget(): Budget {
  return { reserved: new Map(), settlements: 0, paused: new Set(), warned: new Map() };
}

const NOTHING: Reservation = { ok: true, limited: false, release: () => {} };

/** The limits that cover a call of this session, the widest last. Empty when none is set. */
export async function limitsOf(
  engine: Engine,
  session: { readonly root_session_id: SessionId },
  caps: readonly DelegationCap[],
): Promise<readonly Limit[]> {
  const { spend, sessions } = engine.store;
  const limits: Limit[] = caps.map((cap) => ({
    scope: 'delegation',
    key: `delegation:${cap.tool_use_id}`,
    pool: `delegation:${cap.tool_use_id}`,
    limit: cap.limit,
    on_reached: 'stop',
    spent: () => spend.ofSubtree(cap.session_id),
  }));
  const root = session.root_session_id;
  const tree = await sessions.limit(root);
  if (tree !== null && tree.max_cost_usd !== null)
    limits.push({
      scope: 'session',
      key: `session:${root}`,
      pool: `session:${root}`,
      limit: toPusd(tree.max_cost_usd),
      on_reached: tree.on_reached,
      spent: () => spend.ofTree(root),
    });
  const daily = engine.config.budgets.daily_usd;
  if (daily !== null) {
    const today = new Date(engine.clock.now()).setUTCHours(0, 0, 0, 0);
    limits.push({
      scope: 'day',
      key: `day:${today}`,
      pool: 'day',
      limit: toPusd(daily),
      on_reached: 'stop',
      spent: () => spend.since(today),
    });
  }
  return limits;
}

/** The most a call can cost: its request at the byte bound, its answer at the cap, no cache (14 §2). */
export function ceiling(
  engine: Engine,
  model: ModelEntry,
  request: SentParts & { readonly max_output_tokens: number },
): Pusd {
  return engine.prices.cost(pricingId(engine, model.id), {
    ...NO_TOKENS,
    // A provider refuses what does not fit its model, and bills nothing for it.
    input_tokens: Math.min(boundRequest(request), model.capabilities.max_context_tokens),
    output_tokens: request.max_output_tokens,
  }).cost_pusd;
}

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
      const reserved = budget.reserved.get(limit.pool) ?? ZERO_PUSD;
      const held = limit.scope === 'session' && budget.paused.has(run.session.root_session_id);
      if (!held && spent[i]! + reserved + needed <= limit.limit) continue;
      return { ok: false, refusal: refusal(limit, spent[i]!, reserved, needed) };
    }
    for (const { pool } of limits) budget.reserved.set(pool, ((budget.reserved.get(pool) ?? 0n) + needed) as Pusd);
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

function refusal(limit: Limit, spent: Pusd, reserved: Pusd, needed: Pusd): BudgetRefusal {
  const left = limit.limit - spent - reserved;
  return {
    scope: limit.scope,
    key: limit.key,
    on_reached: limit.on_reached,
    limit_usd: fromPusd(limit.limit),
    spent_usd: fromPusd(spent),
    reserved_usd: fromPusd(reserved),
    needed_usd: fromPusd(needed),
    left_usd: fromPusd(left > 0n ? left : 0n),
  };
}

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

/** A day and its limit as one value of the `meta` table. */
export function dayMark(limit: { readonly key: string; readonly limit: Pusd }): string {
  return `${limit.key} ${fromPusd(limit.limit)}`;
}

/** The session as people see it, with what its calls hold at this moment. */
export function withReserved(engine: Engine, session: Session): Session {
  const { budget } = session;
  if (budget === null) return session;
  const key = session.is_worker ? `delegation:${session.parent_tool_use_id}` : `session:${session.id}`;
  const reserved = engine.budget.reserved.get(key) ?? ZERO_PUSD;
  if (reserved === ZERO_PUSD) return session;
  const left = budget.max_cost_usd === null ? 0n : toPusd(budget.max_cost_usd) - toPusd(budget.spent_usd) - reserved;
  return {
    ...session,
    budget: { ...budget, reserved_usd: fromPusd(reserved), remaining_usd: fromPusd(left > 0n ? left : 0n) },
  };
}

/** Nothing is remembered of a tree or a delegation that has ended. */
export function forget(engine: Engine, scope: 'session' | 'delegation', id: SessionId | ToolUseId): void {
  const { warned, paused } = engine.budget;
  warned.delete(`${scope}:${id}`);
  if (scope === 'session') paused.delete(id as SessionId);
}
