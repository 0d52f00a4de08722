// Money is reserved before a call leaves and settled when its usage is known, so that parallel calls cannot overshoot (14).

import type { DayLimit, Share } from '#core/ports/day-limit.ts';
import type { CanonicalRequest } from '#protocol/model-request.ts';
import { type Pusd, ZERO_PUSD } from '#protocol/money.ts';
import type { Engine } from '../state/engine.ts';
import type { Budget, BudgetRefusal, DelegationCap } from '../state/reservations.ts';
import type { TurnRun } from '../state/turn-run.ts';
import { ceiling } from './ceiling.ts';
import type { Elsewhere, Limit, Spender } from './limits.ts';
import { leftOf, limitsOf, refusal, reservedOf } from './limits.ts';
import type { BoundPrompt } from './prompt-bound.ts';

export type Reservation =
  | { readonly ok: true; readonly limited: boolean; release(): void }
  | { readonly ok: false; readonly refusal: BudgetRefusal };

/**
 * Takes the money of one call from every limit that covers it, or from none.
 * @returns `prompt`: what was reserved for; null where no limit covers the call
 */
export async function reserve(
  engine: Engine,
  run: TurnRun,
  request: CanonicalRequest,
): Promise<{ readonly reservation: Reservation; readonly prompt: BoundPrompt | null }> {
  let prompt: BoundPrompt | null = null;
  const covered = { session: run.session, caps: run.caps };
  const reservation = await takeMoney(engine, covered, async () => {
    const most = await ceiling(engine, run.session.id, run.model, request);
    prompt = most.prompt;
    return () => ({ needed: most.price, take: most.price });
  });
  return { reservation, prompt };
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

/** What a call needs, and what it takes in this room; more than is left is refused. */
type Ask = (room: Room) => { readonly needed: Pusd; readonly take: Pusd };

/**
 * Asks how much is to be taken and takes it in one step; where other nodes hold too much of a limit, asks again.
 * @param prepare called once, and only where a limit covers the call
 */
export async function takeMoney(engine: Engine, covered: Covered, prepare: () => Promise<Ask>): Promise<Reservation> {
  let prepared: Promise<Ask> | null = null;
  const ask = () => (prepared ??= prepare());
  /** What other nodes hold of a limit that refused there. */
  const elsewhere = new Map<string, Pusd>();
  for (;;) {
    const taken = await takeHere(engine, covered, ask, elsewhere);
    if (!taken.ok || engine.dayLimit === null) return taken;
    const shares = await sharesOf(engine.dayLimit, taken, elsewhere);
    if (shares !== null) return { ...taken, release: () => giveBack(taken, shares) };
  }
}

/** What is held here last: who waits for it looks at once. */
function giveBack(taken: Taken, shares: readonly Granted[]): void {
  for (const share of shares) share.release();
  taken.release();
}

type Granted = Extract<Share, { ok: true }>;

interface Taken {
  readonly ok: true;
  readonly limited: boolean;
  readonly limits: readonly Limit[];
  readonly amount: Pusd;
  release(): void;
}
const NOTHING: Taken = { ok: true, limited: false, limits: [], amount: ZERO_PUSD, release: () => {} };

/** Of the money of this node. */
async function takeHere(
  engine: Engine,
  { session, caps }: Covered,
  prepare: () => Promise<Ask>,
  elsewhere: Elsewhere,
): Promise<Taken | Extract<Reservation, { ok: false }>> {
  const { budget } = engine;
  for (;;) {
    // Again in each round: the day may have changed.
    const limits = await limitsOf(engine, session, caps);
    if (limits.length === 0) return NOTHING;
    const ask = await prepare();
    const seen = budget.settlements;
    const spent = await Promise.all(limits.map((limit) => limit.spent()));
    // A call that settled meanwhile is in neither sum: its reservation is gone, its cost came after the read.
    if (seen !== budget.settlements) continue;
    // From here to the last line nothing is awaited: no two calls pass on the same money.
    const sums = limits.map((limit, i): Sums => {
      const own = reservedOf(engine, limit.pool);
      return { limit, spent: spent[i]!, own, reserved: (own + (elsewhere.get(limit.pool) ?? 0n)) as Pusd };
    });
    const { needed, take } = ask(roomOf(sums));
    for (const { limit, spent, reserved } of sums) {
      const held = limit.scope === 'session' && budget.paused.has(session.root_session_id);
      if (!held && spent + reserved + take <= limit.limit) continue;
      return { ok: false, refusal: refusal(limit, { spent, reserved, needed }) };
    }
    for (const { limit, own } of sums) budget.reserved.set(limit.pool, (own + take) as Pusd);
    return { ok: true, limited: true, limits, amount: take, release: () => release(budget, limits, take) };
  }
}

/** What was taken here, of the limits that all nodes share. Null = one refused, and what was taken is given back. */
async function sharesOf(
  dayLimit: DayLimit,
  taken: Taken,
  elsewhere: Map<string, Pusd>,
): Promise<readonly Granted[] | null> {
  const shares: Granted[] = [];
  try {
    for (const { pool, limit, shared } of taken.limits) {
      if (shared === null) continue;
      const share = await dayLimit.take({ pool, limit, ...shared }, taken.amount);
      if (!share.ok) {
        elsewhere.set(pool, share.elsewhere);
        giveBack(taken, shares);
        return null;
      }
      shares.push(share);
    }
    return shares;
  } catch (error) {
    giveBack(taken, shares);
    throw error;
  }
}

/** Of one limit, at one moment. */
interface Sums {
  readonly limit: Limit;
  readonly spent: Pusd;
  /** What calls of this node hold. */
  readonly own: Pusd;
  /** What all calls hold, as far as it is known. */
  readonly reserved: Pusd;
}

function roomOf(sums: readonly Sums[]): Room {
  const rooms = sums.map(
    ({ limit: { limit, pool }, spent, own, reserved }): Room => ({
      left: leftOf(limit, spent, reserved),
      pool,
      busy: own > 0n,
    }),
  );
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
