// One tree as a node follows it: the last commit it received, and the messages in mid-stream (16 §6.3, §6.5).
import type { Position, Published } from '#core/ports/live-bus.ts';
import type { Store } from '#core/ports/store-reader.ts';
import type { Standing } from '#core/ports/tree-ownership.ts';
import type { Clock } from '#protocol/clock.ts';
import type { Delta, Transient } from '#protocol/delta.ts';
import type { Message, StopReason } from '#protocol/message.ts';
import { NO_TOKENS } from '#protocol/usage.ts';
import { createOpenMessages } from '../memory/open-messages.ts';
import type { FrameBody, FrameItem } from './frame.ts';

export type Tree = ReturnType<typeof createTree>;

/** What is to be told after a frame was taken in. */
interface Taken {
  readonly items: readonly FrameItem[];
  /** Of messages that nobody will end; before everything else. */
  readonly ends: readonly Published[];
  /** A commit was missed. */
  readonly gap: boolean;
  /** Deltas were missed: the owner is asked for its messages as they stand. */
  readonly ask: boolean;
}

type Start = Extract<Delta, { type: 'message.start' }>;

/** A message that was seen to begin. */
interface Begun extends Transient {
  readonly delta: Start;
}

export function createTree(root: string) {
  const open = createOpenMessages();
  /** Begun, and then something of it was missed: nothing is told of it but a new start or its end. */
  const broken = new Map<string, Begun>();
  /** Messages that a `said` frame brings, until the next frame of another kind. */
  const told = new Set<string>();
  let watched = false;
  let epoch = 0;
  /** Of the last commit that was heard of. */
  let seen = 0;
  /** Whether the database was asked what was committed before. */
  let placed = false;
  /** Frames of the epoch: sent, if this node owns the tree, or heard. */
  let frames: number | null = null;

  function listed(inScope: (sessionId: string) => boolean): readonly Begun[] {
    return open.list(inScope) as readonly Begun[];
  }
  /** Deltas were missed, or may have been. */
  function breakOff(): void {
    for (const start of listed(() => true)) {
      broken.set(start.delta.payload.message_id, start);
      open.fold({ kind: 'transient', transient: closed(start, start.timestamp) });
    }
  }
  /** Whoever owned the tree is gone, and what it had not finished saying with it. */
  function raise(to: number, at: number): readonly Published[] {
    if (to <= epoch) return [];
    const first = epoch === 0;
    epoch = to;
    frames = null;
    if (first) return [];
    breakOff();
    const ends = [...broken.values()].map((start): Published => ({ kind: 'transient', transient: closed(start, at) }));
    broken.clear();
    return ends;
  }

  /** Whether it is to be told: what belongs to a message whose beginning is not known is not. */
  function admits({ session_id, delta }: Transient, said: boolean): boolean {
    if (delta.type === 'message.appended') return !said;
    const { message_id } = delta.payload;
    const known = open.messageId(session_id) === message_id;
    if (delta.type === 'message.start') {
      told.delete(message_id);
      if (said && known) return false;
      if (said) told.add(message_id);
      broken.delete(message_id);
      return true;
    }
    if (said) return told.has(message_id);
    return known || (delta.type === 'message.complete' && broken.delete(message_id));
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
    /** Messages in mid-stream, as far as they are whole. */
    listed,
    /** Messages of which something was missed. */
    broken: (): readonly Begun[] => [...broken.values()],
    watch(): void {
      watched = true;
      seen = 0;
      placed = false;
    },
    unwatch(): void {
      watched = false;
      placed = false;
      broken.clear();
    },
    breakOff,
    raise,
    /** A commit whose frame did not come. False when it has come. */
    skipTo(seq: number): boolean {
      if (!watched || seq <= seen) return false;
      seen = seq;
      return true;
    },
    /** As the database has it; what was heard meanwhile is not forgotten. */
    place(standing: Standing, at: number): readonly Published[] {
      placed = true;
      seen = Math.max(seen, standing.seq);
      return raise(standing.epoch, at);
    },
    /** The database has lost its last commits. */
    fallBack(seq: number): void {
      seen = seq;
    },

    /** What this node publishes as the owner, and whether its watcher has missed a commit before. */
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
      if (frame.kind !== 'said') told.clear();
      frames = frame.n;
      seen = Math.max(seen, frame.seq);
      const items = frame.items.filter((item) => 'transient' in item || (next && !gap));
      return { items, ends, gap, ask };
    },
    /** Of one item of a frame, once it is complete: whether watchers are told. */
    fold(item: Published, said: boolean): boolean {
      if (item.kind === 'transient' && !admits(item.transient, said)) return false;
      open.fold(item);
      return true;
    },
    /** A tool's input as its parts gave it. */
    toInput(session: string, toolUseId: string): string | null {
      const [start] = listed((id) => id === session);
      return (
        start?.delta.payload.open_tool_inputs.find((input) => input.tool_use_id === toolUseId)?.partial_json ?? null
      );
    },
    /** What is known of a message in mid-stream or broken off. */
    begun(session: string, messageId: string): Begun | null {
      const [start] = listed((id) => id === session);
      return start?.delta.payload.message_id === messageId ? start : (broken.get(messageId) ?? null);
    },
    /** A broken message has come to its end. False when it was closed meanwhile. */
    settle: (messageId: string): boolean => broken.delete(messageId),
  };
}

/** A message whose end nobody will tell: with what it had. */
function closed(start: Begun, at: number): Transient {
  const { message_id, content } = start.delta.payload;
  const usage = { ...NO_TOKENS, cost_usd: '0', pricing_version: '', priced: false, latency_ms: 0 };
  const payload = { message_id, stop_reason: 'error', final_content: content, usage, latency_ms: 0 } as const;
  return { ...start, timestamp: at, delta: { type: 'message.complete', payload } };
}

// Ends messages whose end was not received: as stored, or with their content so far (16 §6.5).

interface SettleParts {
  readonly store: Pick<Store, 'messages' | 'turns'>;
  readonly clock: Clock;
}

/** Ends of those broken messages of the tree that have come to one. */
export async function settleMessage(tree: Tree, { store, clock }: SettleParts): Promise<readonly Published[]> {
  const ends: Published[] = [];
  for (const start of tree.broken()) {
    const { message_id } = start.delta.payload;
    // First the turn: what it said is stored when it has ended.
    const turn = await store.turns.open(start.session_id as Message['session_id']);
    const stored = await store.messages.get(message_id);
    const speaks = stored === null && (turn?.id ?? null) === start.turn_id;
    if (speaks || !tree.settle(message_id)) continue;
    const transient = stored === null ? closed(start, clock.now()) : asStored(start, stored, clock.now());
    ends.push({ kind: 'transient', transient });
  }
  return ends;
}

function asStored(start: Begun, { content, metadata }: Message, at: number) {
  const { delta, ...rest } = closed(start, at);
  if (delta.type !== 'message.complete') return { ...rest, delta };
  const usage = metadata.usage ?? delta.payload.usage;
  const stop_reason = toStopReason(metadata.status, content);
  const payload = { ...delta.payload, stop_reason, final_content: content, usage, latency_ms: usage.latency_ms };
  return { ...rest, delta: { ...delta, payload } };
}

/** The exact one is in `llm.call_completed`. */
function toStopReason(status: Message['metadata']['status'], content: Message['content']): StopReason {
  if (status === 'cancelled' || status === 'error') return status;
  return content.some(({ type }) => type === 'tool_use') ? 'tool_use' : 'end_turn';
}
