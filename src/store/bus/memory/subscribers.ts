// Who is called with each batch: in order of subscription, one's failure nobody else's (02 §4).
import type { Published, Subscriber } from '#core/ports/live-bus.ts';
import type { Logger } from '#core/ports/logger.ts';

export interface Subscribers {
  call(items: readonly Published[]): void;
  /** Returns the way out. */
  add(name: string, subscriber: Subscriber): () => void;
}

export function createSubscribers(log: Logger): Subscribers {
  const subscribers = new Map<symbol, { readonly name: string; readonly deliver: Subscriber }>();
  return {
    call(items) {
      for (const { name, deliver } of [...subscribers.values()]) {
        try {
          deliver(items);
        } catch (error) {
          log.warn({ subscriber: name, event_ids: eventIds(items), error: String(error) }, 'subscriber failed');
        }
      }
    },
    add(name, deliver) {
      const key = Symbol(name);
      subscribers.set(key, { name, deliver });
      return () => void subscribers.delete(key);
    },
  };
}

function eventIds(items: readonly Published[]): string[] {
  return items.flatMap((item) => (item.kind === 'event' ? [item.event.id] : []));
}
