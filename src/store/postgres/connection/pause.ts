// Waiting for a moment between two attempts.
import type { Clock } from '#protocol/clock.ts';

export function pause(clock: Clock, ms: number): Promise<void> {
  return new Promise((resolve) => void clock.after(ms, resolve));
}
