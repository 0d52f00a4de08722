// What may stop an attempt from our side: the caller's abort and the three timers (11.8).
import type { Clock, Timer } from '#protocol/clock.ts';
import { type Fault, fault } from '../wire/fault.ts';

/** Seconds. */
export interface TimeLimits {
  /** The whole call: all attempts and the sleeps between them. */
  readonly total: number;
  /** From the start of one attempt to the head of its response. */
  readonly connect: number;
  /** Between two signs of life of the stream. */
  readonly idle: number;
}

/** Watches one model call. Each attempt has its own signal, so that stopping one closes its socket and nothing else. */
export interface Guard {
  /** Of the current attempt. */
  readonly signal: AbortSignal;
  /** Why it was stopped; null while it was not. */
  stopped(): Fault | null;
  /** Milliseconds until the total deadline. */
  remaining(): number;
  /** Starts an attempt: a fresh signal and the connect timer. */
  begin(): void;
  /** The head of the response is here: idle time counts from now. */
  connected(): void;
  /** A sign of life. */
  beat(): void;
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
    stopped: () => reason,
    remaining: () => deadline - clock.monotonic(),
    begin() {
      controller = new AbortController();
      reason = null;
      if (caller.aborted) onAbort();
      else if (deadline <= clock.monotonic()) expire('timeout_total', limits.total);
      timer = clock.after(limits.connect * 1000, () => expire('timeout_connect', limits.connect));
    },
    connected() {
      timer?.cancel();
      lastBeat = clock.monotonic();
      watchIdle(limits.idle * 1000);
    },
    beat() {
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
