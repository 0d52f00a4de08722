// How long an answer waits for a client that does not read it (19 §2.2).

import { RelayFault } from '#core/ports/relay.ts';
import type { Clock } from '#protocol/clock.ts';

/** As long as a provider may be silent. */
const PATIENCE_SECONDS = 300;

/**
 * Resolves when the client can take more. Rejects when the call is ended meanwhile, and when the client takes nothing
 * for so long that nobody reads there: neither its money nor its place may be held for ever. It is not the provider's
 * fault then.
 */
export async function untilTaken(clock: Clock, taken: Promise<void>, signal: AbortSignal): Promise<void> {
  let stop = () => {};
  const over = new Promise<never>((_resolve, reject) => {
    const leave = () => reject(new RelayFault('cancelled', 'the call was cancelled'));
    const timer = clock.after(PATIENCE_SECONDS * 1000, () =>
      reject(new RelayFault('cancelled', `the client took nothing for ${PATIENCE_SECONDS} s`)),
    );
    signal.addEventListener('abort', leave, { once: true });
    stop = () => {
      timer.cancel();
      signal.removeEventListener('abort', leave);
    };
    if (signal.aborted) leave();
  });
  try {
    await Promise.race([taken, over]);
  } finally {
    stop();
  }
}
