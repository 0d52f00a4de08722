// Messages that were stored while a client caught up: no page holds them, so they are told before it goes live (06 §4.3).

import type { Store } from '#core/ports/store.ts';
import type { Delta, Transient } from '#protocol/delta.ts';

interface Appended extends Transient {
  readonly delta: Extract<Delta, { type: 'message.appended' }>;
}

export interface KeptMessages {
  /** Passes over what is no `message.appended`. */
  keep(transient: Transient): void;
  none(): boolean;
  /** Those kept so far, in their order. */
  take(): AsyncIterable<Transient>;
}

/** Without their content, which is read again: a client may take long to catch up. */
export function createKeptMessages(messages: Pick<Store['messages'], 'get'>): KeptMessages {
  let kept: Appended[] = [];
  return {
    keep(transient) {
      const { delta } = transient;
      if (delta.type !== 'message.appended') return;
      const message = { ...delta.payload.message, content: [] };
      kept.push({ ...transient, delta: { ...delta, payload: { message } } });
    },
    none: () => kept.length === 0,
    async *take() {
      const now = kept;
      kept = [];
      for (const { delta, ...rest } of now) {
        const message = await messages.get(delta.payload.message.id);
        if (message !== null) yield { ...rest, delta: { ...delta, payload: { message } } };
      }
    },
  };
}
