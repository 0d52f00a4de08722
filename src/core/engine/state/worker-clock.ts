// A worker's wall clock: runs from its creation, stands still while a person is asked (04 §10).
import type { Clock, Timer } from '#protocol/clock.ts';

export interface WorkerClock {
  /** Stops the time; pairs with `resume`, and pairs nest. */
  pause(): void;
  resume(): void;
  /** Seconds of running time so far, downtime and open approvals left out. */
  activeSeconds(): number;
  /** Ends the clock; it never expires after that. */
  stop(): void;
}

/**
 * @param limitSeconds running time until `onExpire`; null = it never expires
 * @param usedSeconds running time already used before a restart
 */
export function startWorkerClock(
  clock: Clock,
  limitSeconds: number | null,
  usedSeconds: number,
  onExpire: () => void,
): WorkerClock {
  let used = usedSeconds * 1000;
  let since: number | null = null;
  let timer: Timer | null = null;
  let holds = 0;

  function run() {
    since = clock.monotonic();
    if (limitSeconds !== null) timer = clock.after(Math.max(0, limitSeconds * 1000 - used), onExpire);
  }
  function halt() {
    timer?.cancel();
    if (since !== null) used += clock.monotonic() - since;
    since = null;
  }
  function pause() {
    holds += 1;
    halt();
  }
  run();
  return {
    pause,
    resume() {
      holds -= 1;
      if (holds === 0) run();
    },
    activeSeconds: () => (used + (since === null ? 0 : clock.monotonic() - since)) / 1000,
    // A pause that nobody ends.
    stop: pause,
  };
}
