// The system's clock: a timer fires when it is due, however far away that is, and not before.
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { systemClock } from '#protocol/clock.ts';

const DAY_MS = 86_400_000;

describe('a timer of the system clock', () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  it.each([1, 2 ** 31 - 1, 2 ** 31, 30 * DAY_MS, 3650 * DAY_MS])('fires after %d ms and no sooner', (ms) => {
    let fired = 0;
    systemClock.after(ms, () => {
      fired += 1;
    });
    vi.advanceTimersByTime(ms - 1);
    expect(fired).toBe(0);
    vi.advanceTimersByTime(1);
    expect(fired).toBe(1);
    expect(vi.getTimerCount()).toBe(0);
  });

  it('can be cancelled in any part of a long wait, and an endless one never fires', () => {
    let fired = 0;
    const long = systemClock.after(60 * DAY_MS, () => {
      fired += 1;
    });
    const endless = systemClock.after(Number.POSITIVE_INFINITY, () => {
      fired += 1;
    });
    vi.advanceTimersByTime(59 * DAY_MS);
    long.cancel();
    vi.advanceTimersByTime(3650 * DAY_MS);
    expect(fired).toBe(0);
    endless.cancel();
    expect(vi.getTimerCount()).toBe(0);
  });
});
