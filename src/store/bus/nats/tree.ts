// One tree as a node follows it: the last commit it received, and the messages in mid-stream (16 §6.3, §6.5).
import type { Position, Published } from '#core/ports/live-bus.ts';
import type { Store } from '#core/ports/store-reader.ts';
import type { Standing } from '#core/ports/tree-ownership.ts';
import type { Clock } from '#protocol/clock.ts';
import type { Delta, Transient } from '#protocol/delta.ts';
import type { Message, StopReason } from '#protocol/message.ts';
import { buildPlainCost, NO_TOKENS } from '#protocol/usage.ts';
import { createOpenMessages } from '../memory/open-messages.ts';
import type { FrameBody, FrameItem } from './frame.ts';

export type Tree = ReturnType<typeof createTree>;

/** Results of a frame. */
interface Taken {
  readonly items: readonly FrameItem[];
  /** Ends of messages whose owner is gone; delivered first. */
  readonly ends: readonly Published[];
  /** A commit was missed. */
  readonly gap: boolean;
  /** Deltas were missed: request the open messages from the owner. */
  readonly ask: boolean;
}

type Start = Extract<Delta, { type: 'message.start' }>;

/** A message that was seen to begin. */
interface Begun extends Transient {
  readonly delta: Start;
}

export function createTree(root: string) {
  const open = createOpenMessages();
  /** Messages with missed deltas: only a new start or the end is delivered. */
  const brokenStarts = new Map<string, Begun>();
  /** Messages that a `said` frame brings, until the next frame of another kind. */
  const restarted = new Set<string>();
  let watched = false;
  let epoch = 0;
  /** Number of the last known commit. */
  let seen = 0;
  /** Whether the commits before the first frame were read from the database. */
  let placed = false;
  /** Number of frames of the epoch: sent, if this node owns the tree, else received. */
  let frames: number | null = null;

  function listOpen(inScope: (sessionId: string) => boolean): readonly Begun[] {
    return open.list(inScope) as readonly Begun[];
  }
  /** Deltas were missed, or may have been. */
  function breakOff(): void {
    for (const start of listOpen(() => true)) {
      brokenStarts.set(start.delta.payload.message_id, start);
      open.fold({ kind: 'transient', transient: closeMessage(start, start.timestamp) });
    }
  }
  /** A new owner: the open messages of the earlier one end here. */
  function raise(to: number, at: number): readonly Published[] {
    if (to <= epoch) return [];
    const first = epoch === 0;
    epoch = to;
    frames = null;
    if (first) return [];
    breakOff();
    const ends = [...brokenStarts.values()].map(
      (start): Published => ({ kind: 'transient', transient: closeMessage(start, at) }),
    );
    brokenStarts.clear();
    return ends;
  }

  /** False for deltas of a message whose start is unknown. */
  function admits({ session_id, delta }: Transient, inMidStream: boolean): boolean {
    if (delta.type === 'message.appended') return !inMidStream;
    const { message_id } = delta.payload;
    const known = open.messageId(session_id) === message_id;
    if (delta.type === 'message.start') {
      restarted.delete(message_id);
      if (inMidStream && known) return false;
      if (inMidStream) restarted.add(message_id);
      brokenStarts.delete(message_id);
      return true;
    }
    if (inMidStream) return restarted.has(message_id);
    return known || (delta.type === 'message.complete' && brokenStarts.delete(message_id));
  }

  return {
    root,
    get watched() {
      return watched;
    },
    get epoch() {
      return epoch;
    },
    get seen() {
      return seen;
    },
    get placed() {
      return placed;
    },
    /** Messages in mid-stream without a missed delta. */
    listed: listOpen,
    /** Messages with a missed delta. */
    broken: (): readonly Begun[] => [...brokenStarts.values()],
    watch(): void {
      watched = true;
      seen = 0;
      placed = false;
    },
    unwatch(): void {
      watched = false;
      placed = false;
      brokenStarts.clear();
    },
    breakOff,
    raise,
    /** Marks a commit as missed. False when its frame has arrived meanwhile. */
    skipTo(seq: number): boolean {
      if (!watched || seq <= seen) return false;
      seen = seq;
      return true;
    },
    /** Takes the position that the database has; a newer one from frames stays. */
    place(standing: Standing, at: number): readonly Published[] {
      placed = true;
      seen = Math.max(seen, standing.seq);
      return raise(standing.epoch, at);
    },
    /** The database has lost its last commits. */
    fallBack(seq: number): void {
      seen = seq;
    },

    /** Records items that this node publishes as the owner. `gap`: its watcher missed an earlier commit. */
    own(items: readonly Published[], at: Position, now: number): Pick<Taken, 'ends' | 'gap'> {
      const ends = raise(at.epoch, now);
      const gap = placed && at.seq > seen + (at.commit ? 1 : 0);
      seen = Math.max(seen, at.seq);
      for (const item of items) open.fold(item);
      return { ends, gap };
    },
    /** Number of the next frame that this node sends as the owner. */
    nextFrame(): number {
      frames = (frames ?? 0) + 1;
      return frames;
    },

    take(frame: FrameBody, now: number): Taken {
      const ends = raise(frame.epoch, now);
      if (frame.epoch < epoch || (frames !== null && frame.n <= frames)) {
        return { items: [], ends, gap: false, ask: false };
      }
      const next = frame.kind === 'commit' && frame.seq === seen + 1;
      const gap = frame.seq > seen && !(next && frame.whole);
      const ask = gap || (frames !== null && frame.n > frames + 1);
      if (ask) breakOff();
      if (frame.kind !== 'said') restarted.clear();
      frames = frame.n;
      seen = Math.max(seen, frame.seq);
      const items = frame.items.filter((item) => 'transient' in item || (next && !gap));
      return { items, ends, gap, ask };
    },
    /** Adds one complete item of a frame. True where watchers have to receive it. */
    fold(item: Published, inMidStream: boolean): boolean {
      if (item.kind === 'transient' && !admits(item.transient, inMidStream)) return false;
      open.fold(item);
      return true;
    },
    /** A tool's input, joined from its deltas. */
    toInput(session: string, toolUseId: string): string | null {
      const [start] = listOpen((id) => id === session);
      return (
        start?.delta.payload.open_tool_inputs.find((input) => input.tool_use_id === toolUseId)?.partial_json ?? null
      );
    },
    /** The state of a message in mid-stream or broken off. */
    begun(session: string, messageId: string): Begun | null {
      const [start] = listOpen((id) => id === session);
      if (start?.delta.payload.message_id === messageId) return start;
      return brokenStarts.get(messageId) ?? null;
    },
    /** Closes a broken message. False when it was closed meanwhile. */
    settle: (messageId: string): boolean => brokenStarts.delete(messageId),
  };
}

/** Ends a message that has no owner, with its content so far. */
function closeMessage(start: Begun, at: number): Transient {
  const { message_id, content } = start.delta.payload;
  const usage = { ...NO_TOKENS, ...buildPlainCost('0'), pricing_version: '', priced: false, latency_ms: 0 };
  const payload = { message_id, stop_reason: 'error', final_content: content, usage, latency_ms: 0 } as const;
  return { ...start, timestamp: at, delta: { type: 'message.complete', payload } };
}

// Ends messages whose end was not received: as stored, or with their content so far (16 §6.5).

interface SettleParts {
  readonly store: Pick<Store, 'messages' | 'turns'>;
  readonly clock: Clock;
}

/** The ends of the tree's broken messages whose end is stored. */
export async function settleMessage(tree: Tree, { store, clock }: SettleParts): Promise<readonly Published[]> {
  const ends: Published[] = [];
  for (const start of tree.broken()) {
    const { message_id } = start.delta.payload;
    // The turn is read first: its messages are stored when it has ended.
    const turn = await store.turns.open(start.session_id as Message['session_id']);
    const stored = await store.messages.get(message_id);
    const speaks = stored === null && (turn?.id ?? null) === start.turn_id;
    if (speaks || !tree.settle(message_id)) continue;
    const transient = stored === null ? closeMessage(start, clock.now()) : asStored(start, stored, clock.now());
    ends.push({ kind: 'transient', transient });
  }
  return ends;
}

function asStored(start: Begun, { content, metadata }: Message, at: number) {
  const { delta, ...rest } = closeMessage(start, at);
  if (delta.type !== 'message.complete') return { ...rest, delta };
  const usage = metadata.usage ?? delta.payload.usage;
  const stop_reason = toStopReason(metadata.status, content);
  const payload = { ...delta.payload, stop_reason, final_content: content, usage, latency_ms: usage.latency_ms };
  return { ...rest, delta: { ...delta, payload } };
}

/** The exact stop reason is in `llm.call_completed`. */
function toStopReason(status: Message['metadata']['status'], content: Message['content']): StopReason {
  if (status === 'cancelled' || status === 'error') return status;
  if (content.some(({ type }) => type === 'tool_use')) return 'tool_use';
  return 'end_turn';
}
