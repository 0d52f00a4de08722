// Frames of one tree in the order they came; what travelled by its id is read before what stands behind it is told (16 §6.6).

import { readJson } from '#core/policy/parsing/json.ts';
import { MODEL_JSON } from '#core/policy/parsing/text-limits.ts';
import type { Published } from '#core/ports/live-bus.ts';
import type { Logger } from '#core/ports/logger.ts';
import type { Store } from '#core/ports/store-reader.ts';
import type { Clock } from '#protocol/clock.ts';
import type { Transient } from '#protocol/delta.ts';
import type { FrameBody, FrameItem, TransientItem } from './frame.ts';
import type { Tree } from './tree.ts';

/** Of frames that wait for a read. What comes above it is dropped, and so noticed as missing. */
const MAX_WAITING_BYTES = 32 * 1024 * 1024;

export interface InboxParts {
  readonly store: Pick<Store, 'messages'>;
  readonly clock: Clock;
  readonly log: Logger;
}

/** What comes of frames. */
export interface Outcome {
  deliver(items: readonly Published[]): void;
  gap(): void;
  ask(): void;
}

export interface Inbox {
  /** @param bytes of the frame */
  put(frame: FrameBody, bytes: number): void;
  /** From now on frames are taken: it is known what was committed before them. */
  open(): void;
  close(): void;
}

export function createInbox(tree: Tree, { store, clock, log }: InboxParts, out: Outcome): Inbox {
  const waiting: { readonly frame: FrameBody; readonly bytes: number }[] = [];
  let waitingBytes = 0;
  let state: 'early' | 'open' | 'closed' = 'early';
  let busy = false;

  function pump(): void {
    if (busy || state !== 'open') return;
    busy = true;
    drain()
      .catch((err: unknown) => log.warn({ err }, 'a frame could not be told'))
      .finally(() => {
        busy = false;
        if (waiting.length > 0) pump();
      });
  }
  /** Waits for nothing where nothing must be read. */
  async function drain(): Promise<void> {
    for (let next = waiting.shift(); next !== undefined && state === 'open'; next = waiting.shift()) {
      waitingBytes -= next.bytes;
      const { frame } = next;
      const { items, ends, gap, ask } = tree.take(frame, clock.now());
      out.deliver(ends);
      if (gap) out.gap();
      else if (ask) out.ask();
      const told: Published[] = [];
      for (const item of items) {
        const whole = 'from' in item && item.from !== undefined ? await completed(item) : plain(item);
        if (whole !== null && tree.fold(whole, frame.kind === 'said')) told.push(whole);
      }
      out.deliver(told);
    }
  }

  async function completed({ transient, from }: TransientItem): Promise<Published | null> {
    if (from === 'parts') return { kind: 'transient', transient: withInput(transient) };
    const { session_id, delta } = transient;
    if (delta.type === 'message.appended') {
      const message = await store.messages.get(delta.payload.message.id);
      return message && { kind: 'transient', transient: { ...transient, delta: { ...delta, payload: { message } } } };
    }
    if (delta.type !== 'message.complete') return null;
    const { message_id } = delta.payload;
    const stored = await store.messages.get(message_id);
    // Of a call that failed nothing is stored.
    const final_content = stored?.content ?? tree.begun(session_id, message_id)?.delta.payload.content ?? [];
    const payload = { ...delta.payload, final_content };
    return { kind: 'transient', transient: { ...transient, delta: { ...delta, payload } } };
  }
  function withInput(transient: Transient): Transient {
    const { session_id, delta } = transient;
    if (delta.type !== 'tool.use_end') return transient;
    const json = readJson(tree.toInput(session_id, delta.payload.tool_use_id) ?? '', MODEL_JSON);
    const isObject = json.ok && typeof json.value === 'object' && json.value !== null && !Array.isArray(json.value);
    const final_input = isObject ? (json.value as Record<string, unknown>) : {};
    return { ...transient, delta: { ...delta, payload: { ...delta.payload, final_input } } };
  }

  return {
    put(frame, bytes) {
      if (state === 'closed' || waitingBytes + bytes > MAX_WAITING_BYTES) return;
      waiting.push({ frame, bytes });
      waitingBytes += bytes;
      pump();
    },
    open() {
      if (state === 'early') state = 'open';
      pump();
    },
    close() {
      state = 'closed';
    },
  };
}

function plain(item: FrameItem): Published {
  if ('transient' in item) return { kind: 'transient', transient: item.transient };
  return { kind: 'event', event: item.event, payload_json: JSON.stringify(item.event.payload) };
}
