// Tells the outside what happens: one more subscriber of the bus, which the engine knows nothing of (20 §7).

import type { LiveBus } from '#core/ports/live-bus.ts';
import type { Receiver } from '#protocol/config/notify.ts';
import { StartupError } from '#protocol/errors.ts';
import type { Credentials } from '../credentials.ts';
import { getCursorName, listEventTypes, type ReceiverParts, type RunningReceiver, runReceiver } from './receiver.ts';

export interface NotifyParts extends Omit<ReceiverParts, 'fetch'> {
  readonly bus: LiveBus;
  readonly fetch?: typeof fetch;
}

export interface Notify {
  /** Stops telling, in mid-attempt too; what was not taken is told after the next start. */
  close(): Promise<void>;
}

/** A receiver and the key of its signature, null without one. */
export interface KeyedReceiver {
  readonly receiver: Receiver;
  readonly key: string | null;
}

/** Throws `StartupError('config_invalid')` for a key that is not set. */
export function resolveReceiverKeys(
  receivers: readonly Receiver[],
  credentials: Credentials,
): readonly KeyedReceiver[] {
  return receivers.map((receiver, i) => {
    if (receiver.secret_env === null) return { receiver, key: null };
    const key = credentials.secret(receiver.secret_env);
    if (key !== null) return { receiver, key };
    throw new StartupError('config_invalid', [
      `notify.${i}.secret_env: ${receiver.secret_env} is not set; set it in the environment or in the data folder's .env`,
    ]);
  });
}

/** Types of events by the place of the receiver that is told of them. */
export function mapEventTypes(receivers: readonly KeyedReceiver[]): ReadonlyMap<string, ReadonlySet<string>> {
  return new Map(receivers.map(({ receiver }) => [getCursorName(receiver), listEventTypes(receiver)]));
}

/** Null when nobody is to be told. */
export function startNotify(receivers: readonly KeyedReceiver[], { bus, ...parts }: NotifyParts): Notify | null {
  if (receivers.length === 0) return null;
  const closing = new AbortController();
  const around = { fetch: globalThis.fetch, ...parts };
  const running: RunningReceiver[] = receivers.map(({ receiver, key }) => runReceiver(receiver, key, around));
  const work = async (ending: AbortSignal) => void (await Promise.all(running.map((one) => one.work(ending))));
  const { notices } = parts;
  const done = notices === null ? work(closing.signal) : notices.alone(closing.signal, work);
  const unsubscribe = bus.subscribe('notify', (items) => {
    for (const item of items) if (item.kind === 'event') for (const one of running) one.wake(item.event);
  });
  return {
    async close() {
      unsubscribe();
      closing.abort();
      await done;
    },
  };
}
