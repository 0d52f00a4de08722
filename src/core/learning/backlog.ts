// What waits to be learned, as the bus tells it: each event that teaches, with what was seen of its turn (12 §12.3).
import type { Transient } from '#protocol/delta.ts';
import type { AnyEvent } from '#protocol/event.ts';
import { textOf } from '#protocol/message.ts';
import { SESSION_RUBRIC } from '../policy/learning/session-rubric.ts';
import { JUDGED_TYPES, TURN_RUBRIC } from '../policy/learning/turn-heuristic.ts';
import type { Published } from '../ports/live-bus.ts';
import { LEARNED_TYPES, type Occasion, type SeenTurn } from './learn.ts';

type Seen = { -readonly [K in keyof SeenTurn]: SeenTurn[K] } & { readonly events: AnyEvent[] };

/** Beyond it nothing more is kept. What the journal holds is read again where one node reads it. */
const MAX_WAITING = 1000;
/** Turns that run, and events of one: what is beyond is read back when it has ended. */
const MAX_OPEN = 1000;
const MAX_EVENTS = 200;
const JUDGED: ReadonlySet<string> = new Set(JUDGED_TYPES);
const LEARNED: ReadonlySet<string> = new Set(LEARNED_TYPES);
const OWN_RUBRICS: ReadonlySet<string> = new Set([TURN_RUBRIC, SESSION_RUBRIC]);

export interface Backlog {
  /** To be subscribed to the bus. */
  see(items: readonly Published[]): void;
  /** How many wait. */
  size(): number;
  /** The first ones, oldest first; they wait no longer. */
  take(most: number): readonly Occasion[];
  /**
   * True once when something that taught was not kept, and before the first one: where the journal is read, it has to be
   * read up to what is newest now. From here on everything is kept again.
   */
  lost(): boolean;
}

/**
 * @param wake called when something waits
 * @param isReread the journal is read again after a loss, and all that waits with it; else what waits is kept
 */
export function createBacklog(wake: () => void, isReread: boolean): Backlog {
  const open = new Map<string, Seen>();
  let waiting: Occasion[] = [];
  let lost = true;

  function answered({ turn_id, delta }: Transient): void {
    if (delta.type !== 'message.complete' || turn_id === null) return;
    const { message_id, final_content } = delta.payload;
    const seen = open.get(turn_id);
    if (seen !== undefined) seen.answer = { message_id, text: textOf(final_content) };
  }

  /** What is over is given back where all of it was seen. */
  function follow(event: AnyEvent): SeenTurn | null {
    const { type, turn_id } = event;
    if (turn_id === null) return null;
    const seen = open.get(turn_id);
    if (type === 'turn.started') {
      open.set(turn_id, { events: [], answer: null });
      if (open.size > MAX_OPEN) open.delete(open.keys().next().value ?? '');
    } else if (type === 'turn.completed' || type === 'turn.failed' || type === 'turn.cancelled') open.delete(turn_id);
    else if (seen !== undefined && JUDGED.has(type) && seen.events.push(event) > MAX_EVENTS) open.delete(turn_id);
    return seen ?? null;
  }

  function add(occasion: Occasion): void {
    if (waiting.length >= MAX_WAITING) {
      lost = true;
      if (isReread) waiting = [];
    } else if (!(lost && isReread)) waiting.push(occasion);
    wake();
  }

  return {
    see(items) {
      for (const item of items) {
        if (item.kind === 'transient') {
          answered(item.transient);
          continue;
        }
        const event = item.event as AnyEvent;
        const seen = follow(event);
        if (LEARNED.has(event.type) && !isOwn(event))
          add({ event, seen: event.type === 'turn.completed' ? seen : null });
      }
    },
    size: () => waiting.length,
    take: (most) => waiting.splice(0, most),
    lost() {
      const before = lost;
      lost = false;
      return before;
    },
  };
}

/** The loop's own verdicts were learned as they were made. */
function isOwn({ type, payload }: AnyEvent): boolean {
  return type === 'eval.completed' && OWN_RUBRICS.has(String(payload.rubric_id));
}
