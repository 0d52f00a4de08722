// A tree's incoming frames in order of arrival, and this node's outgoing ones. Content that was sent by id is read before later items are delivered (16 §6.6).
import { readJson } from '#core/policy/parsing/json.ts';
import { MODEL_JSON } from '#core/policy/parsing/text-limits.ts';
import type { Position, Published } from '#core/ports/live-bus.ts';
import type { Logger } from '#core/ports/logger.ts';
import type { Store } from '#core/ports/store-reader.ts';
import type { Clock } from '#protocol/clock.ts';
import type { Transient } from '#protocol/delta.ts';
import {
  createSeals,
  type FrameBody,
  type FrameItem,
  type Head,
  MAX_FRAME_BYTES,
  packItems,
  type TransientItem,
} from './frame.ts';
import type { Link } from './link.ts';
import type { Tree } from './tree.ts';

/** Bytes of frames that wait for a read. Frames above it are dropped; the gap in their numbers is noticed. */
const MAX_WAITING_BYTES = 32 * 1024 * 1024;

interface InboxParts {
  readonly store: Pick<Store, 'messages'>;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Receives the decoded items of frames. */
interface Outcome {
  deliver(items: readonly Published[]): void;
  gap(): void;
  ask(): void;
}

export interface Inbox {
  /** @param bytes of the frame */
  enqueue(frame: FrameBody, bytes: number): void;
  /** Delivers frames from now on: the commits before them are known. */
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
    drainFrames()
      .catch((err: unknown) => log.warn({ err }, 'a frame could not be delivered'))
      .finally(() => {
        busy = false;
        if (waiting.length > 0) pump();
      });
  }
  /** Awaits nothing where no content has to be read. */
  async function drainFrames(): Promise<void> {
    for (let next = waiting.shift(); next !== undefined && state === 'open'; next = waiting.shift()) {
      waitingBytes -= next.bytes;
      const { frame } = next;
      const { items, ends, gap, ask } = tree.take(frame, clock.now());
      out.deliver(ends);
      if (gap) out.gap();
      else if (ask) out.ask();
      const completeItems: Published[] = [];
      for (const item of items) {
        const whole = 'from' in item && item.from !== undefined ? await loadContent(item) : toPublished(item);
        if (whole !== null && tree.fold(whole, frame.kind === 'said')) completeItems.push(whole);
      }
      out.deliver(completeItems);
    }
  }

  async function loadContent({ transient, from }: TransientItem): Promise<Published | null> {
    if (from === 'parts') return { kind: 'transient', transient: withInput(transient) };
    const { session_id, delta } = transient;
    if (delta.type === 'message.appended') {
      const message = await store.messages.get(delta.payload.message.id);
      return message && { kind: 'transient', transient: { ...transient, delta: { ...delta, payload: { message } } } };
    }
    if (delta.type !== 'message.complete') return null;
    const { message_id } = delta.payload;
    const stored = await store.messages.get(message_id);
    // Nothing is stored of a call that failed.
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
    enqueue(frame, bytes) {
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

function toPublished(item: FrameItem): Published {
  if ('transient' in item) return { kind: 'transient', transient: item.transient };
  return { kind: 'event', event: item.event, payload_json: JSON.stringify(item.event.payload) };
}

// Outgoing frames: publications, and messages in mid-stream for nodes that request them (16 §6.2, §6.5).

interface OutboxParts {
  readonly cluster: string;
  readonly link: Link;
  readonly key: Buffer;
  readonly owns: (root: string) => boolean;
  readonly clock: Clock;
}

interface Outbox {
  send(tree: Tree, items: readonly Published[], at: Position): void;
  /** Asks the owner for its messages in mid-stream. */
  ask(root: string): void;
  /** Receives the frames of a tree with their size. Returns the function that stops it. */
  listen(root: string, hear: (frame: FrameBody, bytes: number) => void): () => void;
}

/** Minimum time between two answers for one tree, however many nodes request one: an answer holds whole messages. */
const SAY_EVERY_MS = 250;
const NOTHING = new Uint8Array();

/** @param known the tree, where this node has published of it */
export function createOutbox(parts: OutboxParts, known: (root: string) => Tree | null): Outbox {
  const { cluster, link, owns, clock } = parts;
  const seals = createSeals(parts.key);
  const answering = new Set<string>();
  const treeSubject = (root: string) => `${cluster}.tree.${root}`;
  const askSubject = (root: string) => `${cluster}.say.${root}`;

  function transmit({ root }: Tree, items: readonly Published[], head: Head): void {
    const subject = treeSubject(root);
    for (const text of packItems(items, head)) {
      const bytes = seals.seal(subject, text);
      // Its number is used all the same, so that other nodes notice the gap.
      if (bytes.length <= MAX_FRAME_BYTES) link.publish(subject, bytes);
    }
  }
  function answer(root: string): void {
    const tree = known(root);
    if (tree === null || answering.has(root) || !owns(root)) return;
    const starts = tree.listed(() => true);
    if (starts.length === 0) return;
    answering.add(root);
    clock.after(SAY_EVERY_MS, () => {
      if (answering.delete(root) && late.delete(root)) answer(root);
    });
    const items = starts.map((transient): Published => ({ kind: 'transient', transient }));
    transmit(tree, items, { epoch: tree.epoch, seq: tree.seen, kind: 'said', next: tree.nextFrame });
  }
  /** Trees that were requested again soon after their last answer. */
  const late = new Set<string>();
  link.listen(askSubject('*'), (_data, subject) => {
    const root = subject.slice(askSubject('').length);
    if (answering.has(root)) late.add(root);
    else answer(root);
  });

  return {
    send(tree, items, { epoch, seq, commit }) {
      // Its number is used all the same, so that other nodes notice the gap.
      if (!link.up()) tree.nextFrame();
      else transmit(tree, items, { epoch, seq, kind: commit ? 'commit' : 'between', next: tree.nextFrame });
    },
    ask: (root) => link.publish(askSubject(root), NOTHING),
    listen(root, hear) {
      const subject = treeSubject(root);
      return link.listen(subject, (data) => {
        const frame = seals.open(subject, data);
        if (frame !== null) hear(frame, data.length);
      });
    },
  };
}
