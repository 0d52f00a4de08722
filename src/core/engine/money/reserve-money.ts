// Checks every limit before a model call is sent: reserves its maximum cost, so that parallel calls cannot exceed a limit (14).

import { findAffordableOutput } from '#core/policy/gateway/largest-bill.ts';
import type { DayLimit, Share } from '#core/ports/shared-limit.ts';
import { orAbort } from '#protocol/abort.ts';
import { type Awaitable, continueWith } from '#protocol/async/awaitable.ts';
import type { CanonicalRequest } from '#protocol/model-call.ts';
import { type Pusd, ZERO_PUSD } from '#protocol/money.ts';
import type { Budgets, MoneyEngine, Runtime, Storage } from '../state/engine.ts';
import type { MoneyWaiter } from '../state/gateway-memory.ts';
import type { Budget, BudgetRefusal, DelegationCap } from '../state/memory.ts';
import type { ServingModel, TurnPlan } from '../state/turn-run.ts';
import {
  buildRefusal,
  computeLeft,
  type Elsewhere,
  type Limit,
  listLimits,
  readReserved,
  type Spender,
  toSpender,
} from './budget-limits.ts';
import { type BoundPrompt, computeCeiling } from './call-price.ts';

type Reservation =
  | { readonly ok: true; readonly limited: boolean; release(): void }
  | { readonly ok: false; readonly refusal: BudgetRefusal };

/**
 * Takes the money of one call from every limit that covers it, or from none.
 * @returns `prompt`: the prompt that was reserved for; null where no limit covers the call
 */
export function reserveMoney(
  engine: MoneyEngine,
  run: TurnPlan & ServingModel,
  request: CanonicalRequest,
): Awaitable<{ readonly reservation: Reservation; readonly prompt: BoundPrompt | null }> {
  let prompt: BoundPrompt | null = null;
  const covered = { session: toSpender(run), caps: run.caps };
  const taken = takeMoney(engine, covered, async () => {
    const most = await computeCeiling(engine, run.session.id, run.model, request);
    prompt = most.prompt;
    return () => ({ needed: most.price, take: most.price });
  });
  return continueWith(taken, (reservation) => ({ reservation, prompt }));
}

/**
 * Takes what an attempt of a call has spent, beside the money that is held for the next attempt of it.
 * @returns null where a limit refuses
 */
export async function reserveSpent(
  engine: MoneyEngine,
  run: TurnPlan & ServingModel,
  spent: Pusd,
): Promise<Extract<Reservation, { ok: true }> | null> {
  const covered = { session: toSpender(run), caps: run.caps };
  const taken = await takeMoney(engine, covered, async () => () => ({ needed: spent, take: spent }));
  if (taken.ok) return taken;
  return null;
}

/** The session of the call, and the limits of its delegations. */
interface Covered {
  readonly session: Spender;
  readonly caps: readonly DelegationCap[];
}

/** The remaining money of the limits that cover a call, at one moment. */
interface Room {
  /** Remainder of the tightest limit. */
  readonly left: Pusd;
  /** Pool of the tightest limit. */
  readonly pool: string;
  /** Whether other calls hold money of the pool. */
  readonly busy: boolean;
}

/** Needed amount, and the amount to take from this remainder; a call that takes more than the remainder is refused. */
type AmountRequest = (room: Room) => { readonly needed: Pusd; readonly take: Pusd };

/**
 * Plans an amount and takes it in one step; where other nodes hold too much of a limit, plans again.
 * @param prepare called once, and only where a limit covers the call
 */
function takeMoney(
  engine: Runtime & Storage & Budgets,
  covered: Covered,
  prepare: () => Promise<AmountRequest>,
): Awaitable<Reservation> {
  return continueWith(listLimits(engine, covered.session, covered.caps), ({ length }) =>
    length === 0 ? NOTHING : takeFromLimits(engine, covered, prepare),
  );
}

async function takeFromLimits(
  engine: Runtime & Storage & Budgets,
  covered: Covered,
  prepare: () => Promise<AmountRequest>,
): Promise<Reservation> {
  let prepared: Promise<AmountRequest> | null = null;
  const prepareOnce = () => (prepared ??= prepare());
  /** Money of a limit that other nodes held when it refused. */
  const elsewhere = new Map<string, Pusd>();
  for (;;) {
    const taken = await takeOnThisNode(engine, covered, prepareOnce, elsewhere);
    if (!taken.ok || engine.dayLimit === null) return taken;
    const shares = await takeShares(engine.dayLimit, taken, elsewhere);
    if (shares !== null) return { ...taken, release: () => releaseAll(taken, shares) };
  }
}

/** The node's own money is released last, because that wakes waiting calls at once. */
function releaseAll(taken: Taken, shares: readonly GrantedShare[]): void {
  for (const share of shares) share.release();
  taken.release();
}

type GrantedShare = Extract<Share, { ok: true }>;

interface Taken {
  readonly ok: true;
  readonly limited: boolean;
  readonly limits: readonly Limit[];
  readonly amount: Pusd;
  release(): void;
}
const NOTHING: Taken = { ok: true, limited: false, limits: [], amount: ZERO_PUSD, release: () => {} };

/** Takes the money on this node alone. */
async function takeOnThisNode(
  engine: Runtime & Storage & Budgets,
  { session, caps }: Covered,
  prepare: () => Promise<AmountRequest>,
  elsewhere: Elsewhere,
): Promise<Taken | Extract<Reservation, { ok: false }>> {
  const { budget } = engine;
  for (;;) {
    const seen = budget.settlements;
    // Listed again in each round: the day may have changed.
    const limits = await listLimits(engine, session, caps);
    if (limits.length === 0) return NOTHING;
    const computeAmount = await prepare();
    const spent = await Promise.all(limits.map((limit) => limit.readSpent()));
    // A call that settled meanwhile is in neither sum: its reservation is gone, its cost came after the read. A limit
    // that was changed meanwhile is not the one that was read.
    if (seen !== budget.settlements) continue;
    // No await from here to the last line: two calls must not take the same money.
    const sums = limits.map((limit, i): Sums => {
      const own = readReserved(engine, limit.pool);
      return { limit, spent: spent[i]!, own, reserved: (own + (elsewhere.get(limit.pool) ?? 0n)) as Pusd };
    });
    const { needed, take } = computeAmount(findTightestRoom(sums));
    for (const { limit, spent, own, reserved } of sums) {
      const held = limit.scope === 'session' && budget.paused.has(session.root_session_id);
      if (!held && spent + reserved + take <= limit.limit) continue;
      const isHeldElsewhere = reserved > own && spent + own + take <= limit.limit;
      return { ok: false, refusal: buildRefusal(limit, { spent, reserved, needed }, isHeldElsewhere) };
    }
    for (const { limit, own } of sums) budget.reserved.set(limit.pool, (own + take) as Pusd);
    return { ok: true, limited: true, limits, amount: take, release: () => releaseMoney(budget, limits, take) };
  }
}

/** Takes from the limits that all nodes share. Null = one refused, and the rest was returned. */
async function takeShares(
  dayLimit: DayLimit,
  taken: Taken,
  elsewhere: Map<string, Pusd>,
): Promise<readonly GrantedShare[] | null> {
  const shares: GrantedShare[] = [];
  try {
    for (const { pool, limit, shared } of taken.limits) {
      if (shared === null) continue;
      const share = await dayLimit.take({ pool, limit, ...shared }, taken.amount);
      if (!share.ok) {
        elsewhere.set(pool, share.elsewhere);
        releaseAll(taken, shares);
        return null;
      }
      shares.push(share);
    }
    return shares;
  } catch (error) {
    releaseAll(taken, shares);
    throw error;
  }
}

/** One limit at one moment. */
interface Sums {
  readonly limit: Limit;
  readonly spent: Pusd;
  /** Money that calls of this node hold. */
  readonly own: Pusd;
  /** Money that all calls hold, as far as known. */
  readonly reserved: Pusd;
}

function findTightestRoom(sums: readonly Sums[]): Room {
  const rooms = sums.map(
    ({ limit: { limit, pool }, spent, own, reserved }): Room => ({
      left: computeLeft({ limit, spent, reserved }),
      pool,
      busy: own > 0n,
    }),
  );
  return rooms.reduce((least, room) => (room.left < least.left ? room : least));
}

/** Calls that wait for money, and checks that are reading, look again: money was released, or a limit was changed. */
export function wakeWaiters(budget: Budget): void {
  budget.settlements += 1;
  for (const wakeWaiter of [...budget.waiters]) wakeWaiter();
}

function releaseMoney(budget: Budget, limits: readonly Limit[], amount: Pusd): void {
  for (const { pool } of limits) {
    const left = (budget.reserved.get(pool) ?? 0n) - amount;
    if (left > 0n) budget.reserved.set(pool, left as Pusd);
    else budget.reserved.delete(pool);
  }
  wakeWaiters(budget);
}

// Money for a gateway call: it waits for other calls, then takes less, and only then is refused (19 §2.5).

export interface WantedMoney {
  readonly covered: Covered;
  /** Tokens of the answer that the client requested, or its model's maximum. */
  readonly asked: number;
  /** An answer with fewer tokens would be useless. */
  readonly floor: number;
  /** Resolves to the most that the call can cost with this many tokens; called only where a limit covers the call. */
  price(): Promise<(outputTokens: number) => Pusd>;
}

export type MoneyGrant =
  | { readonly kind: 'granted'; readonly output_tokens: number; readonly limited: boolean; release(): void }
  | { readonly kind: 'refused'; readonly refusal: BudgetRefusal }
  /** Other calls hold the needed money. */
  | { readonly kind: 'wait'; readonly pool: string; readonly seen: number };

/** Tries to reserve once. @param mayWait false = takes the remaining money, even if less was requested */
export async function tryToReserve(
  engine: MoneyEngine,
  wanted: WantedMoney,
  how: { readonly mayWait: boolean; readonly own: MoneyWaiter | null },
): Promise<MoneyGrant> {
  const { budget, gateway } = engine;
  let output = wanted.asked;
  let wait: Extract<MoneyGrant, { kind: 'wait' }> | null = null;
  const planAmount = (price: (outputTokens: number) => Pusd) => (room: Room) => {
    output = wanted.asked;
    wait = null;
    const full = price(wanted.asked);
    const ahead = gateway.waiting.slice(0, how.own === null ? undefined : gateway.waiting.indexOf(how.own));
    const queued = ahead.some(({ pool }) => pool === room.pool);
    if (full <= room.left && !queued) return { needed: full, take: full };
    if (how.mayWait && (room.busy || queued)) {
      wait = { kind: 'wait', pool: room.pool, seen: budget.settlements };
      // More than the whole limit: nothing is taken.
      return { needed: full, take: (room.left + 1n) as Pusd };
    }
    const lowest = price(Math.min(wanted.floor, wanted.asked));
    const fits = findAffordableOutput(price, {
      floor: Math.min(wanted.floor, wanted.asked),
      asked: wanted.asked,
      left: room.left,
    });
    if (fits === null) return { needed: lowest, take: lowest };
    output = fits;
    return { needed: full, take: price(fits) };
  };
  const taken = await takeMoney(engine, wanted.covered, async () => planAmount(await wanted.price()));
  if (taken.ok) return { kind: 'granted', output_tokens: output, limited: taken.limited, release: taken.release };
  return wait ?? { kind: 'refused', refusal: taken.refusal };
}

/** Waits in the order of arrival, at most `gateway.wait_seconds`. Rejects with the signal's reason. */
export async function awaitReservation(
  engine: MoneyEngine,
  wanted: WantedMoney,
  pool: string,
  signal: AbortSignal,
): Promise<Exclude<MoneyGrant, { kind: 'wait' }>> {
  const { budget, gateway, clock, config } = engine;
  const own: MoneyWaiter = { pool };
  gateway.waiting.push(own);
  let late = false;
  let notifyWaiter = () => {};
  const timer = clock.after(config.gateway.wait_seconds * 1000, () => {
    late = true;
    notifyWaiter();
  });
  try {
    for (;;) {
      const granted = await tryToReserve(engine, wanted, { mayWait: !late, own });
      if (granted.kind !== 'wait') return granted;
      const changed = new Promise<void>((resolve) => {
        notifyWaiter = resolve;
      });
      budget.waiters.add(notifyWaiter);
      const listening = notifyWaiter;
      try {
        // A settlement since that read did not notify this waiter, so it must not sleep.
        if (!late && budget.settlements === granted.seen) await orAbort(changed, signal);
      } finally {
        budget.waiters.delete(listening);
      }
      signal.throwIfAborted();
    }
  } finally {
    timer.cancel();
    gateway.waiting.splice(gateway.waiting.indexOf(own), 1);
    // The next waiter may go on; a waiter that reads right now reads again.
    wakeWaiters(budget);
  }
}
