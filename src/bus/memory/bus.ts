// Live fan-out inside the process: every subscriber sees every batch, in one order (02 §4).
import type { LiveBus, Published, Subscriber } from '../../ports/live-bus.ts';
import type { Logger } from '../../ports/log.ts';
import { createOpenMessages } from './open-messages.ts';

export function createBus(log: Logger): LiveBus {
  const subscribers = new Map<symbol, { readonly name: string; readonly deliver: Subscriber }>();
  const open = createOpenMessages();

  return {
    publish(items) {
      // Folded first, so that whoever asks for the open messages after this call misses nothing of the batch.
      for (const item of items) open.fold(item);
      for (const { name, deliver } of [...subscribers.values()]) {
        try {
          deliver(items);
        } catch (error) {
          log.warn({ subscriber: name, event_ids: eventIds(items), error: String(error) }, 'subscriber failed');
        }
      }
    },
    subscribe(name, deliver) {
      const key = Symbol(name);
      subscribers.set(key, { name, deliver });
      return () => void subscribers.delete(key);
    },
    openMessages: open.list,
  };
}

function eventIds(items: readonly Published[]): string[] {
  return items.flatMap((item) => (item.kind === 'event' ? [item.event.id] : []));
}
