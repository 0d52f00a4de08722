// Limits of an attempt: the caller's abort, three timers, and the rules for retries (11.8).

import { TRANSIENT_ERRORS } from '#core/ports/provider.ts';
import type { Clock, Timer } from '#protocol/clock.ts';
import { type Fault, fault } from '../wire/fault.ts';

/** Seconds. */
export interface TimeLimits {
  /** The whole call: all attempts and the sleeps between them. */
  readonly total: number;
  /** From the start of one attempt to the head of its response. */
  readonly connect: number;
  /** Between two events of the stream. */
  readonly idle: number;
}

/** Watches one model call. Each attempt has its own signal: a stopped attempt closes only its own socket. */
export interface Guard {
  /** Signal of the current attempt. */
  readonly signal: AbortSignal;
  /** Why the attempt was stopped; null = it was not stopped. */
  stopFault(): Fault | null;
  /** Milliseconds until the total deadline. */
  remaining(): number;
  /** Starts an attempt: a fresh signal and the connect timer. */
  begin(): void;
  /** The head of the response has arrived: idle time counts from now. */
  startIdleTimer(): void;
  /** Restarts the idle time: data has arrived. */
  touch(): void;
  /** The attempt is over. */
  end(): void;
  /** The call is over. */
  release(): void;
}

export function createGuard(clock: Clock, limits: TimeLimits, caller: AbortSignal): Guard {
  const deadline = clock.monotonic() + limits.total * 1000;
  let controller: AbortController | null = null;
  let reason: Fault | null = null;
  let timer: Timer | null = null;
  let lastBeat = 0;

  function stop(why: Fault): void {
    reason ??= why;
    controller?.abort(caller.aborted ? caller.reason : new Error(why.error_detail ?? why.error_class));
  }
  const onAbort = () => stop(fault('cancelled', null, 'the call was cancelled'));
  const expire = (detail: string, seconds: number) =>
    stop(fault('network', detail, `${detail.replace('timeout_', '')} timeout after ${seconds} s`));
  function watchIdle(ms: number): void {
    timer = clock.after(ms, () => {
      const left = lastBeat + limits.idle * 1000 - clock.monotonic();
      if (left <= 0) expire('timeout_idle', limits.idle);
      else watchIdle(left);
    });
  }

  if (caller.aborted) onAbort();
  else caller.addEventListener('abort', onAbort, { once: true });
  const total = clock.after(limits.total * 1000, () => expire('timeout_total', limits.total));

  return {
    get signal() {
      controller ??= new AbortController();
      return controller.signal;
    },
    stopFault: () => reason,
    remaining: () => deadline - clock.monotonic(),
    begin() {
      controller = new AbortController();
      reason = null;
      if (caller.aborted) onAbort();
      else if (deadline <= clock.monotonic()) expire('timeout_total', limits.total);
      timer = clock.after(limits.connect * 1000, () => expire('timeout_connect', limits.connect));
    },
    startIdleTimer() {
      timer?.cancel();
      lastBeat = clock.monotonic();
      watchIdle(limits.idle * 1000);
    },
    touch() {
      lastBeat = clock.monotonic();
    },
    end() {
      timer?.cancel();
      timer = null;
    },
    release() {
      timer?.cancel();
      total.cancel();
      caller.removeEventListener('abort', onAbort);
    },
  };
}

// Retries: which failures are retried, and the delay before the next attempt (11.8).

const BASE_SECONDS = 1;
const CAP_SECONDS = 30;
const JITTER = 0.25;
const RETRY_AFTER_CAP_SECONDS = 60;

/** Whether a retry may succeed. An exceeded total deadline is never retried. */
export function mayRetry(fault: Fault): boolean {
  return TRANSIENT_ERRORS.includes(fault.error_class) && fault.error_detail !== 'timeout_total';
}

/**
 * Seconds to sleep after failed attempt `attempt` (from 1).
 * @param random uniform in [0, 1)
 */
export function retryDelay(attempt: number, retryAfter: number | null, random: () => number): number {
  if (retryAfter !== null) return Math.min(retryAfter, RETRY_AFTER_CAP_SECONDS);
  const exponential = Math.min(BASE_SECONDS * 2 ** (attempt - 1), CAP_SECONDS);
  return exponential * (1 - JITTER + 2 * JITTER * random());
}

/** The delay that a response requests, in seconds: `retry-after-ms`, else `retry-after` in seconds or as an HTTP date; null = none. */
export function retryAfterSeconds(header: (name: string) => string | null, now: number): number | null {
  const ms = parseDecimal(header('retry-after-ms'));
  if (ms !== null) return ms / 1000;
  const value = header('retry-after');
  if (value === null) return null;
  const seconds = parseDecimal(value);
  if (seconds !== null) return seconds;
  // Date.parse reads many things as a date; an HTTP date always starts with its weekday.
  if (!/^[A-Za-z]{3,}, /.test(value.trim())) return null;
  const at = Date.parse(value);
  if (Number.isNaN(at)) return null;
  return Math.max(0, (at - now) / 1000);
}

function parseDecimal(value: string | null): number | null {
  const text = value?.trim() ?? '';
  if (/^\d+(\.\d+)?$/.test(text)) return Number(text);
  return null;
}
