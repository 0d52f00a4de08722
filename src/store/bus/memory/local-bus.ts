// Live fan-out inside the process: every subscriber sees every batch, in one order (02 §4).
import type { LiveBus, Published, Subscriber } from '#core/ports/live-bus.ts';
import type { Logger } from '#core/ports/logger.ts';
import { createOpenMessages } from './open-messages.ts';

// Subscribers are called in order of subscription; a failing one does not affect the others (02 §4).

interface Subscribers {
  call(items: readonly Published[]): void;
  /** Returns the function that removes the subscriber. */
  add(name: string, subscriber: Subscriber): () => void;
}

export function createSubscribers(log: Logger): Subscribers {
  // Replaced on each change: a listener that is called meanwhile goes through the list as it was.
  let subscribers: readonly { readonly name: string; readonly deliver: Subscriber }[] = [];
  return {
    call(items) {
      for (const { name, deliver } of subscribers) {
        try {
          deliver(items);
        } catch (error) {
          log.warn({ subscriber: name, event_ids: eventIds(items), error: String(error) }, 'subscriber failed');
        }
      }
    },
    add(name, deliver) {
      const added = { name, deliver };
      subscribers = [...subscribers, added];
      return () => {
        subscribers = subscribers.filter((one) => one !== added);
      };
    },
  };
}

function eventIds(items: readonly Published[]): string[] {
  return items.flatMap((item) => (item.kind === 'event' ? [item.event.id] : []));
}

/** The only server on a database has no other node to watch. */
const WATCH = { ready: Promise.resolve(), stop: () => {} };

export function createBus(log: Logger): LiveBus {
  const subscribers = createSubscribers(log);
  const open = createOpenMessages();

  return {
    publish(items) {
      // Folded first: a subscriber that lists the open messages then sees the whole batch.
      for (const item of items) open.fold(item);
      subscribers.call(items);
    },
    subscribe: subscribers.add,
    openMessages: open.list,
    watch: () => WATCH,
    isWatched: () => false,
  };
}
