// Follows the journal and learns from it, behind the running turns: its position is stored with what it learned (12 §12.3).
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
import { createForecastMemory, type ForecastMemory } from './forecast-memory.ts';
import { deriveLessons, LEARNED_TYPES, type LearnDeps, type ObservedTurn, type Occasion } from './lessons.ts';
import { createPatternMemory, type PatternMemory } from './pattern-memory.ts';

// The backlog of the loop, filled by the bus: each teaching event, with the facts of its turn (12 §12.3).

type Seen = { -readonly [K in keyof ObservedTurn]: ObservedTurn[K] } & { readonly events: AnyEvent[] };

/** Beyond it no more events are kept. Where one node reads the journal, it reads them from there. */
const MAX_WAITING = 1000;
/** Open turns, and events of one: turns beyond it are read back when they have ended. */
const MAX_OPEN = 1000;
const MAX_EVENTS = 200;
const JUDGED: ReadonlySet<string> = new Set(JUDGED_TYPES);
const LEARNED: ReadonlySet<string> = new Set(LEARNED_TYPES);
const OWN_RUBRICS: ReadonlySet<string> = new Set([TURN_RUBRIC, SESSION_RUBRIC]);

interface Backlog {
  /** The subscriber for the bus. */
  receive(items: readonly Published[]): void;
  /** Number of waiting events. */
  size(): number;
  /** Takes the first events, oldest first. */
  take(most: number): readonly Occasion[];
  /**
   * True once when a teaching event was not kept, and before the first one: where the journal is read, it then has to be
   * read up to its newest event. From here on every event is kept again.
   */
  takeLoss(): boolean;
}

/**
 * @param notify called when an event waits
 * @param isReread the journal is read again after a loss, with all waiting events; else waiting events are kept
 */
export function createBacklog(notify: () => void, isReread: boolean): Backlog {
  const open = new Map<string, Seen>();
  let waiting: Occasion[] = [];
  let hasLost = true;

  function recordAnswer({ turn_id, delta }: Transient): void {
    if (delta.type !== 'message.complete' || turn_id === null) return;
    const { message_id, final_content } = delta.payload;
    const seen = open.get(turn_id);
    if (seen !== undefined) seen.answer = { message_id, text: joinText(final_content) };
  }

  /** The facts of an ended turn, where all of it was seen. */
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
    notify();
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
/** Events learned at once, in about 2 ms; and how long the first of them waits for others. */
const MOST = 32;
export const GATHER_MS = 50;

interface LoopDeps extends LearnDeps {
  readonly journal: Journal;
  readonly bus: LiveBus;
  readonly log: Logger;
  /** True = only this loop learns from the database. False = each node learns from its own trees, and stores no position (16 §9). */
  readonly alone: boolean;
}

export interface LearningLoop {
  /** Finishes the current batch; the rest is learned after the next start. Never rejects. */
  close(): Promise<void>;
}

/** Starts behind the newest event when the database has no position yet. */
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
   * Its faults never reach a turn: an event that cannot be learned is logged and skipped.
   * @param place everything up to it has been learned; null = no position is stored
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
        // Events passed in one tick share a transaction; each succeeds or fails by itself.
        const batches = [...lessons];
        if (place !== null) batches.push(buildCursorBatch(place));
        const commits = batches.map((batch) => journal.commit(batch));
        for (const commit of await Promise.allSettled(commits)) if (commit.status === 'rejected') throw commit.reason;
      });
    } catch (err) {
      for (const path of touched) memory.forget(path);
      if (occasions.length > 1) {
        // One of them failed. Lessons of the others are found in the store, and not learned twice.
        for (const { event } of occasions) await learnOccasions([{ event, seen: null }], place);
        return;
      }
      // Another node may have changed the workspace's patterns since they were read.
      if (again) return learnOccasions(occasions, place, false);
      const { id, type, session_id, turn_id } = occasions[0]!.event;
      log.warn({ err, event_id: id, type, session_id, turn_id }, 'nothing was learned of an event');
    }
  }

  /** Verdicts on sessions and explicit scores build on stored turns. */
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

  /** Up to the newest event. Returns the position behind it. */
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
      if (page.next === null) {
        if (until > place) return until;
        return place;
      }
      place = page.next;
    }
    return place;
  }

  async function storePlace(place: string): Promise<void> {
    await journal.commit(buildCursorBatch(place));
  }

  /** The waiting events, as soon as there are any; empty when the loop is to end. */
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

// Routing that learns: the recommender of slot 4, and the loop that feeds it (chapter 12). Both only observe.

/** Outcomes kept per workspace. */
const MAX_OUTCOMES = 10_000;
/** Other nodes' lessons about a workspace are read here after this time. */
const READ_AGAIN_MS = 30_000;

interface LearningDeps extends Omit<LoopDeps, 'maxOutcomes'> {
  readonly maxOutcomes?: number;
  /** Whether the current registry has the model. */
  readonly hasModel: (id: string) => boolean;
}

interface Learning {
  readonly recommender: Recommender;
  readonly forecasts: ForecastMemory;
  /** Call once, when the journal accepts commits. */
  start(): LearningLoop;
}

export function createLearning(deps: LearningDeps): Learning {
  const { store, clock, alone } = deps;
  const memory = createPatternMemory(store, alone ? null : { clock, ms: READ_AGAIN_MS });
  return {
    forecasts: createForecastMemory(deps),
    recommender: {
      recommend: async ({ workspace_path, fingerprint, config, is_worker }) => {
        const patterns = memory.peek(workspace_path) ?? (await memory.load(workspace_path));
        const advisers = { is_worker, isKnown: deps.hasModel };
        return recommendModel(patterns.buildQueryShape(fingerprint), patterns.listPatterns(), config, advisers);
      },
      forget: memory.forget,
    },
    start: () => startLearningLoop({ maxOutcomes: MAX_OUTCOMES, ...deps }, memory),
  };
}
