// Cancellation as a tree of scopes over AbortSignal: a child ends with its parent, a parent never with its child.
import { setMaxListeners } from 'node:events';

export type CancelReason = 'user_cancel' | 'timeout' | 'shutdown';

/** The start of a scope. A turn has as many listeners as calls that run at once, which is no leak. */
export function createScope(): AbortController {
  const scope = new AbortController();
  setMaxListeners(0, scope.signal);
  return scope;
}

/** The reason every abort signal of the engine carries. */
export class Cancelled extends Error {
  readonly reason: CancelReason;
  /** Text of the person who cancelled, at most 200 characters. */
  readonly detail: string | null;

  constructor(reason: CancelReason, detail: string | null = null) {
    super(`cancelled: ${reason}`);
    this.reason = reason;
    this.detail = detail;
    this.name = 'Cancelled';
  }
}

/** The `Cancelled` a signal was aborted with; an abort from elsewhere counts as `user_cancel`. */
export function cancelledBy(signal: AbortSignal): Cancelled {
  if (signal.reason instanceof Cancelled) return signal.reason;
  return new Cancelled('user_cancel');
}

/** Settles like `promise`, unless the signal aborts first: then rejects with its reason. The loser's rejection is swallowed. */
export function orAbort<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(signal.reason);
    if (signal.aborted) onAbort();
    else signal.addEventListener('abort', onAbort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort));
  });
}
