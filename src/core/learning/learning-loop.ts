// Follows the journal and learns from it, behind the turns that run: its place is stored with what it learned (12 §12.3).
import { sleep } from '#protocol/clock.ts';
import type { Transient } from '#protocol/delta.ts';
import type { AnyEvent } from '#protocol/event.ts';
import { joinText } from '#protocol/message.ts';
import { recommendModel } from '../policy/learning/recommend-model.ts';
import { JUDGED_TYPES, SESSION_RUBRIC, TURN_RUBRIC } from '../policy/learning/rubrics.ts';
import type { Journal } from '../ports/journal-writer.ts';
import type { Recommender } from '../ports/learned-turns.ts';
import type { LiveBus, Published } from '../ports/live-bus.ts';
import type { Logger } from '../ports/logger.ts';
import { deriveLessons, LEARNED_TYPES, type LearnDeps, type ObservedTurn, type Occasion } from './lessons.ts';
import { createPatternMemory, type PatternMemory } from './pattern-memory.ts';

// What waits to be learned, as the bus tells it: each event that teaches, with what was seen of its turn (12 §12.3).

type Seen = { -readonly [K in keyof ObservedTurn]: ObservedTurn[K] } & { readonly events: AnyEvent[] };

/** Beyond it nothing more is kept. What the journal holds is read again where one node reads it. */
const MAX_WAITING = 1000;
/** Turns that run, and events of one: what is beyond is read back when it has ended. */
const MAX_OPEN = 1000;
const MAX_EVENTS = 200;
const JUDGED: ReadonlySet<string> = new Set(JUDGED_TYPES);
const LEARNED: ReadonlySet<string> = new Set(LEARNED_TYPES);
const OWN_RUBRICS: ReadonlySet<string> = new Set([TURN_RUBRIC, SESSION_RUBRIC]);

interface Backlog {
  /** To be subscribed to the bus. */
  receive(items: readonly Published[]): void;
  /** How many wait. */
  size(): number;
  /** The first ones, oldest first; they wait no longer. */
  take(most: number): readonly Occasion[];
  /**
   * True once when something that taught was not kept, and before the first one: where the journal is read, it has to be
   * read up to what is newest now. From here on everything is kept again.
   */
  takeLoss(): boolean;
}

/**
 * @param wake called when something waits
 * @param isReread the journal is read again after a loss, and all that waits with it; else what waits is kept
 */
export function createBacklog(wake: () => void, isReread: boolean): Backlog {
  const open = new Map<string, Seen>();
  let waiting: Occasion[] = [];
  let hasLost = true;

  function recordAnswer({ turn_id, delta }: Transient): void {
    if (delta.type !== 'message.complete' || turn_id === null) return;
    const { message_id, final_content } = delta.payload;
    const seen = open.get(turn_id);
    if (seen !== undefined) seen.answer = { message_id, text: joinText(final_content) };
  }

  /** What is over is given back where all of it was seen. */
  function followTurn(event: AnyEvent): ObservedTurn | null {
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

  function addOccasion(occasion: Occasion): void {
    if (waiting.length >= MAX_WAITING) {
      hasLost = true;
      if (isReread) waiting = [];
    } else if (!(hasLost && isReread)) waiting.push(occasion);
    wake();
  }

  return {
    receive(items) {
      for (const item of items) {
        if (item.kind === 'transient') {
          recordAnswer(item.transient);
          continue;
        }
        const event = item.event as AnyEvent;
        const seen = followTurn(event);
        if (LEARNED.has(event.type) && !isOwn(event))
          addOccasion({ event, seen: event.type === 'turn.completed' ? seen : null });
      }
    },
    size: () => waiting.length,
    take: (most) => waiting.splice(0, most),
    takeLoss() {
      const before = hasLost;
      hasLost = false;
      return before;
    },
  };
}

/** The loop's own verdicts were learned as they were made. */
function isOwn({ type, payload }: AnyEvent): boolean {
  return type === 'eval.completed' && OWN_RUBRICS.has(String(payload.rubric_id));
}

const CURSOR = 'learning_cursor';
/** Learned in one go, in about 2 ms; and how long the first of them waits for others. */
const MOST = 32;
export const GATHER_MS = 50;

interface LoopDeps extends LearnDeps {
  readonly journal: Journal;
  readonly bus: LiveBus;
  readonly log: Logger;
  /** Nobody else learns from this database. Else each node learns from the trees that it holds, and keeps no place (16 §9). */
  readonly alone: boolean;
}

export interface LearningLoop {
  /** After what is in hand; what is left is learned after the next start. Never rejects. */
  close(): Promise<void>;
}

/** Begins behind the newest event when there was no loop before. */
function startLearningLoop(deps: LoopDeps, memory: PatternMemory): LearningLoop {
  const { store, journal, bus, clock, log, alone } = deps;
  const closing = new AbortController();
  let wakeLoop = () => {};
  const backlog = createBacklog(() => wakeLoop(), alone);

  function nextWake(): Promise<void> {
    if (backlog.size() > 0 || closing.signal.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      wakeLoop = resolve;
    });
  }

  /**
   * Nothing of it reaches a turn: what cannot be learned is logged and passed over.
   * @param place everything up to it has been learned; null = none is kept
   */
  async function learnOccasions(occasions: readonly Occasion[], place: string | null, again = !alone): Promise<void> {
    const touched = new Set<string>();
    try {
      await memory.runExclusively(async (patternsOf) => {
        const lessons = await deriveLessons(deps, occasions, (path) => {
          touched.add(path);
          return patternsOf(path);
        });
        if (lessons.length === 0) return;
        // Handed over in one tick they share a transaction; each stands or falls by itself.
        const batches = place === null ? lessons : [...lessons, buildCursorBatch(place)];
        const commits = batches.map((batch) => journal.commit(batch));
        for (const commit of await Promise.allSettled(commits)) if (commit.status === 'rejected') throw commit.reason;
      });
    } catch (err) {
      for (const path of touched) memory.forget(path);
      if (occasions.length > 1) {
        // One of them did it. What was learned of the others is found in the store, and learned no second time.
        for (const { event } of occasions) await learnOccasions([{ event, seen: null }], place);
        return;
      }
      // Another node may have learned something of the workspace since its patterns were read.
      if (again) return learnOccasions(occasions, place, false);
      const { id, type, session_id, turn_id } = occasions[0]!.event;
      log.warn({ err, event_id: id, type, session_id, turn_id }, 'nothing was learned of an event');
    }
  }

  /** Verdicts on sessions and those of people build on what is stored of turns. */
  async function learnInOrder(occasions: readonly Occasion[], place: string | null): Promise<void> {
    const filterType = (wanted: (typeof LEARNED_TYPES)[number]) =>
      occasions.filter(({ event }) => event.type === wanted);
    for (const together of [
      filterType('turn.completed'),
      filterType('session.ended'),
      ...filterType('eval.completed').map((one) => [one]),
    ])
      if (together.length > 0) await learnOccasions(together, place);
  }

  /** Up to what is newest now. Returns the place behind it. */
  async function readJournal(after: string): Promise<string> {
    const until = (await store.events.newestId()) ?? '';
    const query = { session_id: null, include_workers: true, types: [...LEARNED_TYPES], until, limit: MOST };
    let place = after;
    while (!closing.signal.aborted) {
      const page = await store.events.list({ ...query, after: place });
      await learnInOrder(
        page.rows.map((event: AnyEvent) => ({ event, seen: null })),
        place,
      );
      if (page.next === null) return until > place ? until : place;
      place = page.next;
    }
    return place;
  }

  async function storePlace(place: string): Promise<void> {
    await journal.commit(buildCursorBatch(place));
  }

  /** What waits, as soon as something does; empty when the loop is to end. */
  async function gatherOccasions(): Promise<readonly Occasion[]> {
    if (backlog.size() === 0) await nextWake();
    if (backlog.size() < MOST) await sleep(clock, GATHER_MS, closing.signal).catch(() => {});
    return backlog.take(MOST);
  }

  async function runShared(): Promise<void> {
    backlog.takeLoss();
    let isBehind = false;
    while (!closing.signal.aborted || backlog.size() > 0) {
      await learnInOrder(await gatherOccasions(), null);
      const isLost = backlog.takeLoss();
      if (isLost && !isBehind) log.warn({}, 'turns end faster than they are learned; some of them are not learned');
      isBehind = (isBehind || isLost) && backlog.size() > 0;
    }
  }

  async function runAlone(): Promise<void> {
    try {
      let place = await store.meta(CURSOR);
      if (place === null) {
        place = (await store.events.newestId()) ?? '';
        await storePlace(place);
      }
      for (;;) {
        if (backlog.takeLoss()) {
          place = await readJournal(place);
          if (closing.signal.aborted) break;
        }
        if (backlog.size() === 0 && closing.signal.aborted) break;
        const unread = (await gatherOccasions()).filter(({ event }) => event.id > place!);
        await learnInOrder(unread, place);
        place = unread.at(-1)?.event.id ?? place;
      }
      await storePlace(place);
    } catch (err) {
      log.error({ err }, 'nothing more is learned until the next start');
    }
  }

  const unsubscribe = bus.subscribe('learning', backlog.receive);
  const done = alone ? runAlone() : runShared();
  return {
    async close() {
      unsubscribe();
      closing.abort();
      wakeLoop();
      await done;
    },
  };
}

function buildCursorBatch(place: string) {
  return { writes: [{ kind: 'meta.set', key: CURSOR, value: place } as const], emit: [] };
}

// Routing that learns: the recommender that slot 4 asks, and the loop that feeds it (chapter 12). Observers, both.

/** Outcomes that are kept of one workspace. */
const MAX_OUTCOMES = 10_000;
/** What other nodes learned of a workspace is known here after so long. */
const READ_AGAIN_MS = 30_000;

interface LearningDeps extends Omit<LoopDeps, 'maxOutcomes'> {
  readonly maxOutcomes?: number;
  /** Whether the registry of today has the model. */
  readonly hasModel: (id: string) => boolean;
}

interface Learning {
  readonly recommender: Recommender;
  /** To be called once, when the journal takes commits. */
  start(): LearningLoop;
}

export function createLearning(deps: LearningDeps): Learning {
  const { store, clock, alone } = deps;
  const memory = createPatternMemory(store, alone ? null : { clock, ms: READ_AGAIN_MS });
  return {
    recommender: {
      recommend: async ({ workspace_path, fingerprint, config }) => {
        const patterns = memory.peek(workspace_path) ?? (await memory.load(workspace_path));
        return recommendModel(patterns.buildQueryShape(fingerprint), patterns.listPatterns(), config, deps.hasModel);
      },
      forget: memory.forget,
    },
    start: () => startLearningLoop({ maxOutcomes: MAX_OUTCOMES, ...deps }, memory),
  };
}
