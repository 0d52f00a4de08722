// Time as an argument: wall clock for records, monotonic clock for durations, timers that tests can drive (00 §4).

/** A started timer. */
export interface Timer {
  cancel(): void;
}

export interface Clock {
  /** Wall clock, Unix milliseconds. */
  now(): number;
  /** Monotonic milliseconds with fraction; only differences mean something. */
  monotonic(): number;
  /** Calls `fn` once after `ms`, however long that is; never keeps the process alive by itself. */
  after(ms: number, fn: () => void): Timer;
}

/** The longest delay of the platform's timers; a longer one would fire at once. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  after(ms, fn) {
    let handle: NodeJS.Timeout;
    const wait = (left: number) => {
      const part = Math.min(left, LONGEST_TIMER_MS);
      handle = setTimeout(() => (left > part ? wait(left - part) : fn()), part);
      handle.unref();
    };
    wait(ms);
    return { cancel: () => clearTimeout(handle) };
  },
};

/** ISO-8601 UTC with milliseconds (01 §1.2). */
export function isoTime(ms: number): string {
  if (ms !== shownMs) {
    shownText = new Date(ms).toISOString();
    shownMs = ms;
  }
  return shownText;
}
// Every frame and event bears a time, and many bear the same one.
let shownMs = Number.NaN;
let shownText = '';

/** Resolves after `ms`; rejects with the signal's reason when it aborts first. */
export function sleep(clock: Clock, ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const onAbort = () => {
      timer.cancel();
      reject(signal?.reason);
    };
    const timer = clock.after(ms, () => {
      signal?.removeEventListener('abort', onAbort);
      resolve();
    });
    signal?.addEventListener('abort', onAbort, { once: true });
  });
}
