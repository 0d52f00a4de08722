// Money for a call of the gateway: it waits for others, then makes do with less, and only then is refused (19 §2.5).

import { affordableOutput } from '#core/policy/gateway/bound.ts';
import { orAbort } from '#protocol/abort.ts';
import type { Pusd } from '#protocol/money.ts';
import type { Engine } from '../state/engine.ts';
import type { MoneyWaiter } from '../state/gateway-memory.ts';
import type { BudgetRefusal } from '../state/reservations.ts';
import { type Covered, type Room, takeMoney } from './reserve.ts';

export interface Wanted {
  readonly covered: Covered;
  /** Tokens of the answer that the client asked for, or its model's maximum. */
  readonly asked: number;
  /** Fewer would be of no use. */
  readonly floor: number;
  /** Resolves to the most the call can cost with so many tokens; asked only where a limit covers the call. */
  price(): Promise<(outputTokens: number) => Pusd>;
}

export type Granted =
  | { readonly kind: 'granted'; readonly output_tokens: number; readonly limited: boolean; release(): void }
  | { readonly kind: 'refused'; readonly refusal: BudgetRefusal }
  /** Others hold what it needs. */
  | { readonly kind: 'wait'; readonly pool: string; readonly seen: number };

/** One try. @param mayWait false = it takes what there is */
export async function tryMoney(
  engine: Engine,
  wanted: Wanted,
  how: { readonly mayWait: boolean; readonly own: MoneyWaiter | null },
): Promise<Granted> {
  const { budget, gateway } = engine;
  let output = wanted.asked;
  let wait: Extract<Granted, { kind: 'wait' }> | null = null;
  const ask = (price: (outputTokens: number) => Pusd) => (room: Room) => {
    output = wanted.asked;
    wait = null;
    const full = price(wanted.asked);
    const ahead = gateway.waiting.slice(0, how.own === null ? undefined : gateway.waiting.indexOf(how.own));
    const queued = ahead.some(({ pool }) => pool === room.pool);
    if (full <= room.left && !queued) return { needed: full, take: full };
    if (how.mayWait && (room.busy || queued)) {
      wait = { kind: 'wait', pool: room.pool, seen: budget.settlements };
      // More than anybody has: nothing is taken.
      return { needed: full, take: (room.left + 1n) as Pusd };
    }
    const lowest = price(Math.min(wanted.floor, wanted.asked));
    const fits = affordableOutput(price, {
      floor: Math.min(wanted.floor, wanted.asked),
      asked: wanted.asked,
      left: room.left,
    });
    if (fits === null) return { needed: lowest, take: lowest };
    output = fits;
    return { needed: full, take: price(fits) };
  };
  const taken = await takeMoney(engine, wanted.covered, async () => ask(await wanted.price()));
  if (taken.ok) return { kind: 'granted', output_tokens: output, limited: taken.limited, release: taken.release };
  return wait ?? { kind: 'refused', refusal: taken.refusal };
}

/** Waits in the order of arrival, at most `gateway.wait_seconds`. Rejects with the signal's reason. */
export async function awaitMoney(
  engine: Engine,
  wanted: Wanted,
  pool: string,
  signal: AbortSignal,
): Promise<Exclude<Granted, { kind: 'wait' }>> {
  const { budget, gateway, clock, config } = engine;
  const own: MoneyWaiter = { pool };
  gateway.waiting.push(own);
  let late = false;
  let wake = () => {};
  const timer = clock.after(config.gateway.wait_seconds * 1000, () => {
    late = true;
    wake();
  });
  try {
    for (;;) {
      const granted = await tryMoney(engine, wanted, { mayWait: !late, own });
      if (granted.kind !== 'wait') return granted;
      const changed = new Promise<void>((resolve) => {
        wake = resolve;
      });
      budget.settled.add(wake);
      const listening = wake;
      try {
        // What was settled since the look at it wakes nobody.
        if (!late && budget.settlements === granted.seen) await orAbort(changed, signal);
      } finally {
        budget.settled.delete(listening);
      }
      signal.throwIfAborted();
    }
  } finally {
    timer.cancel();
    gateway.waiting.splice(gateway.waiting.indexOf(own), 1);
    // Who stood behind it may go on; who looks at this moment looks again.
    budget.settlements += 1;
    for (const next of [...budget.settled]) next();
  }
}
