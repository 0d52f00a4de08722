// Live fan-out inside the process: every subscriber sees every batch, in one order (02 §4).
import type { LiveBus } from '#core/ports/live-bus.ts';
import type { Logger } from '#core/ports/logger.ts';
import { createOpenMessages } from './open-messages.ts';
import { createSubscribers } from './subscribers.ts';

/** Nobody else publishes anything. */
const WATCH = { ready: Promise.resolve(), stop: () => {} };

export function createBus(log: Logger): LiveBus {
  const subscribers = createSubscribers(log);
  const open = createOpenMessages();

  return {
    publish(items) {
      // Folded first, so that whoever asks for the open messages after this call misses nothing of the batch.
      for (const item of items) open.fold(item);
      subscribers.call(items);
    },
    subscribe: subscribers.add,
    openMessages: open.list,
    watch: () => WATCH,
    isWatched: () => false,
  };
}
