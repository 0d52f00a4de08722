// What a node does again and again while it lives.

import type { Logger } from '#core/ports/logger.ts';
import type { Clock, Timer } from '#protocol/clock.ts';

export interface Upkeep {
  /** From now on, `ms` after it was done last. */
  every(ms: number, work: () => Promise<void> | void): void;
  stop(): void;
}

export function createUpkeep(clock: Clock, log: Logger): Upkeep {
  const timers = new Set<Timer>();
  let stopped = false;
  return {
    every(ms, work) {
      const again = () => {
        if (stopped) return;
        const timer = clock.after(ms, () => {
          timers.delete(timer);
          void (async () => work())()
            .catch((err: unknown) => log.warn({ err }, 'the database did not answer the upkeep of the node'))
            .finally(again);
        });
        timers.add(timer);
      };
      again();
    },
    stop() {
      stopped = true;
      for (const timer of timers) timer.cancel();
    },
  };
}
