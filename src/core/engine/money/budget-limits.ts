// The limits that cover a call, and the remainder of each: the only lookup of limits (14 §1).
import type { SharedLimit } from '#core/ports/shared-limit.ts';
import { type Awaitable, continueWith } from '#protocol/async/awaitable.ts';
import { AppError } from '#protocol/errors.ts';
import type { AnyEvent } from '#protocol/event.ts';
import type { SessionId, ToolUseId, TurnId } from '#protocol/ids.ts';
import { fromPusd, limitFor, type Pusd, toPusd, type Usd, ZERO_PUSD } from '#protocol/money.ts';
import type { OnReached } from '#protocol/scalars.ts';
import type { SessionRecord } from '#protocol/session.ts';
import type { TurnRecord } from '#protocol/turn.ts';
import type { Budgets, Runtime, Storage } from '../state/engine.ts';
import type { BudgetAmounts, BudgetRefusal, BudgetScope, DelegationCap } from '../state/memory.ts';

/** A limit that covers a call. */
export interface Limit {
  readonly scope: BudgetScope;
  /** Identity of the limit in memory: each day has its own. */
  readonly key: string;
  /** Limits of one pool share reservations. All days share a pool: a call is charged to the day in which it ends. */
  readonly pool: string;
  readonly limit: Pusd;
  readonly on_reached: OnReached;
  /** Set where other nodes of a cluster spend from it too; null = this node alone (16 §8). */
  readonly shared: Omit<SharedLimit, 'pool' | 'limit'> | null;
  readSpent(): Promise<Pusd>;
}

/** Money of a pool that other nodes hold, where known. */
export type Elsewhere = ReadonlyMap<string, Pusd>;

/** The session whose calls are covered. */
export type Spender = Pick<SessionRecord, 'root_session_id' | 'caller' | 'owner'> & {
  /** Id of the token that submitted the turn, whose limits cover it too; absent = the owner's alone. */
  readonly submitted_by?: string | null;
  /** Root of a tree that is not stored yet. */
  readonly new_root?: Pick<SessionRecord, 'max_cost_pusd' | 'on_reached' | 'experiment'> | null;
};

const OF_ALL = { since: 0, caller: null, owner: null, experiment: null };

/** The limits that cover a call of this session, the widest last. Empty when no limit is set. */
export function listLimits(
  engine: Runtime & Storage,
  session: Spender,
  caps: readonly DelegationCap[],
): Awaitable<readonly Limit[]> {
  return continueWith(engine.store.sessions.limit(session.root_session_id), (tree) =>
    continueWith(listOwnerLimits(engine, session), (ofOwners) => [
      ...caps.map((cap) => makeCapLimit(engine, cap)),
      ...listTreeLimits(engine, session.root_session_id, tree ?? session.new_root ?? null),
      ...ofOwners,
      ...listDailyLimits(engine, session),
    ]),
  );
}

function makeCapLimit({ store }: Storage, cap: DelegationCap): Limit {
  return {
    scope: 'delegation',
    key: `delegation:${cap.tool_use_id}`,
    pool: `delegation:${cap.tool_use_id}`,
    limit: cap.limit,
    on_reached: 'stop',
    shared: null,
    readSpent: () => store.spend.sumSubtree(cap.session_id),
  };
}

/** The limits of a tree and of the experiment that it belongs to. */
function listTreeLimits({ store }: Storage, root: SessionId, tree: NonNullable<Spender['new_root']> | null): Limit[] {
  const limits: Limit[] = [];
  if (tree !== null && tree.max_cost_pusd !== null)
    limits.push({
      scope: 'session',
      key: `session:${root}`,
      pool: `session:${root}`,
      limit: tree.max_cost_pusd,
      on_reached: tree.on_reached,
      shared: null,
      readSpent: () => store.spend.sumTree(root),
    });
  const experiment = tree?.experiment ?? null;
  if (experiment !== null)
    limits.push({
      scope: 'experiment',
      key: `experiment:${experiment.id}`,
      pool: `experiment:${experiment.id}`,
      limit: toPusd(experiment.max_cost_usd),
      on_reached: 'stop',
      shared: { ...OF_ALL, experiment: experiment.id },
      readSpent: () => store.spend.sumExperiment(experiment.id),
    });
  return limits;
}

/** The limits of a day: of the key of a gateway's client, and of the whole server. */
function listDailyLimits({ clock, config, store }: Runtime & Storage, { caller }: Spender): Limit[] {
  const limits: Limit[] = [];
  const ofKey = caller === '' ? null : (config.gateway.keys[caller]?.daily_usd ?? null);
  const daily = config.budgets.daily_usd;
  if (ofKey === null && daily === null) return limits;
  const today = new Date(clock.now()).setUTCHours(0, 0, 0, 0);
  if (ofKey !== null)
    limits.push({
      scope: 'key',
      key: `key:${caller}:${today}`,
      pool: `key:${caller}`,
      limit: toPusd(ofKey),
      on_reached: 'stop',
      shared: { ...OF_ALL, since: today, caller },
      readSpent: () => store.spend.sumCaller(caller, today),
    });
  if (daily !== null)
    limits.push({
      scope: 'day',
      key: `day:${today}`,
      pool: 'day',
      limit: toPusd(daily),
      on_reached: 'stop',
      shared: { ...OF_ALL, since: today },
      readSpent: () => store.spend.since(today),
    });
  return limits;
}

/** The limits of the session's owner, who may have changed since its turn began, and of who submitted the turn (23 §3). */
function listOwnerLimits(engine: Runtime & Storage, session: Spender): Awaitable<readonly Limit[]> {
  if (!engine.people.isRequired()) return [];
  return continueWith(engine.store.sessions.record(session.root_session_id), (stored) =>
    listLimitsOfPeople(engine, [stored === null ? session.owner : stored.owner, session.submitted_by ?? null]),
  );
}

function listLimitsOfPeople({ people, clock, store }: Runtime & Storage, ids: readonly (string | null)[]): Limit[] {
  const now = new Date(clock.now());
  const today = new Date(now).setUTCHours(0, 0, 0, 0);
  const month = Date.UTC(now.getUTCFullYear(), now.getUTCMonth(), 1);
  const build = (id: string, period: string, since: number, usd: string | null | undefined): readonly Limit[] => {
    if (usd == null) return [];
    const pool = `owner:${id}:${period}`;
    const shared = { ...OF_ALL, since, owner: id };
    const readSpent = () => store.spend.sumOwner(id, since);
    return [
      { scope: 'owner', key: `${pool}:${since}`, pool, limit: toPusd(usd), on_reached: 'stop', shared, readSpent },
    ];
  };
  return [...new Set(ids)].flatMap((id) => {
    const token = id === null ? null : people.find(id);
    if (token === null) return [];
    const { daily_usd, monthly_usd } = token;
    return [...build(token.id, 'day', today, daily_usd), ...build(token.id, 'month', month, monthly_usd)];
  });
}

/** Whose money a call of this turn is. */
export function toSpender({
  session,
  turn,
}: {
  readonly session: SessionRecord;
  readonly turn: Pick<TurnRecord, 'submitted_by'>;
}): Spender {
  const { root_session_id, caller, owner } = session;
  return { root_session_id, caller, owner, submitted_by: turn.submitted_by };
}

/** The remainder of a limit; never negative. */
export function computeLeft({ limit, spent, reserved }: Omit<BudgetAmounts, 'needed'>): Pusd {
  const left = limit - spent - reserved;
  if (left <= 0n) return ZERO_PUSD;
  return left as Pusd;
}

/** Money of a pool that running calls hold. */
export function readReserved(engine: Pick<Budgets, 'budget'>, pool: string): Pusd {
  return engine.budget.reserved.get(pool) ?? ZERO_PUSD;
}

/** Why a limit refuses `needed`, with its current amounts. */
export function buildRefusal(
  { scope, key, on_reached, limit }: Limit,
  amounts: Omit<BudgetAmounts, 'limit'>,
  is_held_elsewhere = false,
): BudgetRefusal {
  return { scope, key, on_reached, limit, ...amounts, is_held_elsewhere };
}

/** The amounts as events and errors have them. */
export function toWireAmounts({ limit, spent, reserved, needed }: BudgetAmounts) {
  return {
    limit_usd: fromPusd(limit),
    spent_usd: fromPusd(spent),
    reserved_usd: fromPusd(reserved),
    needed_usd: fromPusd(needed),
  };
}

/** A day and its limit as one value of the `meta` table. */
export function formatDayMark(limit: { readonly key: string; readonly limit: Pusd }): string {
  return `${limit.key} ${fromPusd(limit.limit)}`;
}

/** Drops the memory of a tree or a delegation that has ended. */
export function forgetLimit(
  engine: Pick<Budgets, 'budget'>,
  scope: 'session' | 'delegation',
  id: SessionId | ToolUseId,
): void {
  const { warned, paused } = engine.budget;
  warned.delete(`${scope}:${id}`);
  if (scope === 'session') paused.delete(id as SessionId);
}

// Checks before a turn starts whether a limit allows more work, from the store (14 §3).

/** A limit that prevents a new turn: used up, or it ended or paused a turn and was not raised since (14 §3). */
async function findExhaustedLimit(
  engine: Runtime & Storage & Budgets,
  session: Spender,
  limits: readonly Limit[],
): Promise<BudgetRefusal | null> {
  for (const limit of limits) {
    const spent = await limit.readSpent();
    const refused = await findRefusalInForce(engine, session.root_session_id, limit);
    if (spent < limit.limit && refused === null) continue;
    return buildRefusal(limit, {
      spent,
      reserved: readReserved(engine, limit.pool),
      needed: refused?.needed ?? ZERO_PUSD,
    });
  }
  return null;
}

/** The amount that the refused call needed; zero where only the refusal is known. */
interface Refused {
  readonly needed: Pusd;
}

/** The last refusal by this limit, unless the limit was raised since. Read from the store, so that a restart loses nothing. */
async function findRefusalInForce(engine: Storage & Budgets, root: SessionId, limit: Limit): Promise<Refused | null> {
  const { turns, meta } = engine.store;
  const unknown: Refused = { needed: ZERO_PUSD };
  if (limit.scope === 'day') {
    if ((await meta(DAY_REACHED)) === formatDayMark(limit)) return unknown;
    return null;
  }
  // Gateway calls have no turn; the limits of an owner and of an experiment are read from the ledger alone.
  if (limit.scope === 'key' || limit.scope === 'owner' || limit.scope === 'experiment') return null;
  const newest = await turns.newest(root);
  const met = newest && (await findRefusingLimit(engine, newest.id));
  if (met !== null && limit.limit <= met.limit) return met;
  if (engine.budget.paused.has(root) && (await turns.open(root)) !== null) return unknown;
  return null;
}

/** A limit that refused a call, and the id of the event that records the refusal. */
interface RefusingLimit {
  readonly at: string;
  readonly limit: Pusd;
}

/** The tree's limit when it last refused a call of this turn; null when it refused none. */
async function findRefusingLimit(
  engine: Pick<Storage, 'store'>,
  turnId: TurnId,
): Promise<(Refused & RefusingLimit) | null> {
  return findLastRefusal(await engine.store.events.listOfTurn(turnId, ['budget.exceeded']));
}

/** The tree's limit when it last refused a call of any of its sessions. */
async function findTreeRefusal(engine: Pick<Storage, 'store'>, root: SessionId): Promise<RefusingLimit | null> {
  const query = { session_id: root, include_workers: false, types: ['budget.exceeded'], after: null, until: null };
  return findLastRefusal((await engine.store.events.list({ ...query, limit: 10_000 })).rows);
}

function findLastRefusal(events: readonly AnyEvent[]): (Refused & RefusingLimit) | null {
  const last = events.findLast(({ payload }) => payload.scope === 'session');
  if (last === undefined) return null;
  const { limit_usd, needed_usd } = last.payload;
  return { at: last.id, limit: toPusd(limit_usd as Usd), needed: toPusd(needed_usd as Usd) };
}

/** `meta` key of the day's limit that ended a planner's turn, as `formatDayMark` writes it. */
export const DAY_REACHED = 'budget_day_reached';

/** The smallest limit that covers spent, held and needed money. */
export function minimumLimitUsd({ spent, reserved, needed }: BudgetAmounts): Usd {
  return limitFor(spent + reserved + needed);
}

/** Throws `budget_exceeded` with the amounts when a limit lets no more work start (14 §3). */
export function requireBudget(engine: Runtime & Storage & Budgets, session: Spender): Awaitable<void> {
  return continueWith(listLimits(engine, session, []), (limits) => {
    if (limits.length > 0) return requireMoney(engine, session, limits);
  });
}

async function requireMoney(
  engine: Runtime & Storage & Budgets,
  session: Spender,
  limits: readonly Limit[],
): Promise<void> {
  const exhausted = await findExhaustedLimit(engine, session, limits);
  if (!exhausted) return;
  const { scope, needed } = exhausted;
  const { limit_usd, spent_usd, reserved_usd, needed_usd } = toWireAmounts(exhausted);
  const sufficient = needed > ZERO_PUSD ? minimumLimitUsd(exhausted) : null;
  let message = `the ${scope} limit of ${limit_usd} USD is reached (${spent_usd} USD spent); raise it to go on`;
  if (sufficient !== null)
    message = `the ${scope} limit of ${limit_usd} USD does not cover the next call, which may cost up to ${needed_usd} USD (${spent_usd} USD spent); raise it to ${sufficient} USD or more to go on`;
  const details = {
    scope,
    limit_usd,
    spent_usd,
    reserved_usd,
    needed_usd: sufficient === null ? null : needed_usd,
    sufficient_limit_usd: sufficient,
  };
  throw new AppError('budget_exceeded', message, details);
}

/** The tree now waits for a higher limit than the one that refused. False when it waited already. */
export function pauseTree(
  engine: Pick<Budgets, 'budget'>,
  { root_session_id }: Pick<SessionRecord, 'root_session_id'>,
  { limit }: BudgetRefusal,
): boolean {
  const { paused } = engine.budget;
  if (paused.has(root_session_id)) return false;
  paused.set(root_session_id, limit);
  return true;
}

/** Whether the tree has to keep waiting. Reads the stored limit, so the order of change and refusal does not matter. */
export async function isWaitingForMoney(engine: Storage & Budgets, root: SessionId): Promise<boolean> {
  const { paused } = engine.budget;
  const met = paused.get(root);
  if (met === undefined) return false;
  if (!isRaised(await readTreeLimit(engine, root), met)) return true;
  paused.delete(root);
  return false;
}

async function readTreeLimit(engine: Pick<Storage, 'store'>, root: SessionId): Promise<Pusd | null> {
  return (await engine.store.sessions.limit(root))?.max_cost_pusd ?? null;
}

function isRaised(limit: Pusd | null, met: Pusd): boolean {
  return limit === null || limit > met;
}

/**
 * Pauses trees with an interrupted turn that waited for a higher limit: the whole tree waits, and nothing new starts (14 §3).
 * A tree whose limit was raised meanwhile is not paused.
 */
export async function pauseWaitingTrees(engine: Storage & Budgets, open: readonly TurnRecord[]): Promise<void> {
  const refusals = new Map<SessionId, RefusingLimit>();
  for (const turn of open) {
    if (turn.interrupted_reason !== 'budget') continue;
    const session = await engine.store.sessions.record(turn.session_id);
    if (!session) continue;
    const root = session.root_session_id;
    const limit = await readTreeLimit(engine, root);
    // A turn that waits because of another one was not refused itself, and that one may have been cancelled since.
    const met =
      (await findRefusingLimit(engine, turn.id)) ??
      (await findTreeRefusal(engine, root)) ??
      (limit && { at: '', limit });
    if (met && met.at >= (refusals.get(root)?.at ?? '')) refusals.set(root, met);
  }
  for (const [root, { limit }] of refusals) {
    engine.budget.paused.set(root, limit);
    await isWaitingForMoney(engine, root);
  }
}
