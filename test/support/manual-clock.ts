// A clock that stands still until a test moves it: exact times in event logs, and parallel work ordered by its delays.
import type { Clock } from '#protocol/clock.ts';

export interface ManualClock extends Clock {
  /** Moves the time, firing what falls due in order. */
  advance(ms: number): void;
  /** Moves the time to the next timer that is at most `within` ms away and fires it; false when there is none. */
  next(within?: number): boolean;
  /** Timers that wait, at most `within` ms away. */
  pending(within?: number): number;
}

export const START = Date.parse('2026-05-08T14:23:11.123Z');

export function manualClock(start = START): ManualClock {
  let time = start;
  let order = 0;
  const timers = new Map<number, { at: number; fn: () => void }>();

  function earliest(limit: number): [number, { at: number; fn: () => void }] | null {
    let found: [number, { at: number; fn: () => void }] | null = null;
    for (const entry of timers) if (entry[1].at <= limit && (!found || entry[1].at < found[1].at)) found = entry;
    return found;
  }
  function fireUntil(limit: number, once: boolean): boolean {
    for (let due = earliest(limit); due; due = earliest(limit)) {
      timers.delete(due[0]);
      time = Math.max(time, due[1].at);
      due[1].fn();
      if (once) return true;
    }
    return false;
  }
  return {
    now: () => time,
    monotonic: () => time - start,
    after(ms, fn) {
      const key = order++;
      timers.set(key, { at: time + ms, fn });
      return { cancel: () => void timers.delete(key) };
    },
    advance(ms) {
      const target = time + ms;
      fireUntil(target, false);
      time = target;
    },
    next: (within = Number.POSITIVE_INFINITY) => fireUntil(time + within, true),
    pending: (within = Number.POSITIVE_INFINITY) => [...timers.values()].filter((t) => t.at <= time + within).length,
  };
}
