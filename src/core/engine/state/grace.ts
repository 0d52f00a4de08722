// The end of patience: what has not unwound 30 s after an abort is left behind (04 §9).

import { cancelledBy } from '#protocol/abort.ts';
import { TreeLost } from '#protocol/batch.ts';
import type { Engine } from './engine.ts';

const GRACE_MS = 30_000;
/** Beyond the lease of a lost tree: its tools are killed by then. */
const LOST_MS = 2000;

/**
 * Settles like `work`; once the signal has aborted, waits for it 30 s more and then rejects with the abort's reason.
 * @param about what the log says of work that is left behind
 */
export function withGrace<T>(
  engine: Engine,
  signal: AbortSignal,
  work: Promise<T>,
  about: { readonly session_id: string; readonly turn_id: string; readonly what: string },
): Promise<T> {
  return new Promise((resolve, reject) => {
    let stop = () => {};
    const onAbort = () => {
      const { reason } = signal;
      const patience = reason instanceof TreeLost ? Math.min(GRACE_MS, reason.patience_ms + LOST_MS) : GRACE_MS;
      const timer = engine.clock.after(patience, () => {
        engine.log.warn(about, `did not stop within ${patience / 1000} s of its cancellation; left behind`);
        reject(cancelledBy(signal));
      });
      stop = () => timer.cancel();
    };
    if (signal.aborted) onAbort();
    else signal.addEventListener('abort', onAbort, { once: true });
    work.then(resolve, reject).finally(() => {
      signal.removeEventListener('abort', onAbort);
      stop();
    });
  });
}
