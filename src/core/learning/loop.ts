// Follows the journal and learns from it, behind the turns that run: its place is stored with what it learned (12 §12.3).

import { sleep } from '#protocol/clock.ts';
import type { AnyEvent } from '#protocol/event.ts';
import type { Journal } from '../ports/journal.ts';
import type { LiveBus } from '../ports/live-bus.ts';
import type { Logger } from '../ports/log.ts';
import { createBacklog } from './backlog.ts';
import { LEARNED_TYPES, type LearnDeps, lessonsOf, type Occasion } from './learn.ts';
import type { PatternMemory } from './memory.ts';

export const CURSOR = 'learning_cursor';
/** Learned in one go, in about 2 ms; and how long the first of them waits for others. */
const MOST = 32;
export const GATHER_MS = 50;

export interface LoopDeps extends LearnDeps {
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
export function startLoop(deps: LoopDeps, memory: PatternMemory): LearningLoop {
  const { store, journal, bus, clock, log, alone } = deps;
  const closing = new AbortController();
  let wake = () => {};
  const backlog = createBacklog(() => wake(), alone);

  function nextWake(): Promise<void> {
    if (backlog.size() > 0 || closing.signal.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      wake = resolve;
    });
  }

  /**
   * Nothing of it reaches a turn: what cannot be learned is logged and passed over.
   * @param place everything up to it has been learned; null = none is kept
   */
  async function learn(occasions: readonly Occasion[], place: string | null, again = !alone): Promise<void> {
    const touched = new Set<string>();
    try {
      await memory.exclusively(async (patternsOf) => {
        const lessons = await lessonsOf(deps, occasions, (path) => {
          touched.add(path);
          return patternsOf(path);
        });
        if (lessons.length === 0) return;
        // Handed over in one tick they share a transaction; each stands or falls by itself.
        const batches = place === null ? lessons : [...lessons, placed(place)];
        const commits = batches.map((batch) => journal.commit(batch));
        for (const commit of await Promise.allSettled(commits)) if (commit.status === 'rejected') throw commit.reason;
      });
    } catch (err) {
      for (const path of touched) memory.forget(path);
      if (occasions.length > 1) {
        // One of them did it. What was learned of the others is found in the store, and learned no second time.
        for (const { event } of occasions) await learn([{ event, seen: null }], place);
        return;
      }
      // Another node may have learned something of the workspace since its patterns were read.
      if (again) return learn(occasions, place, false);
      const { id, type, session_id, turn_id } = occasions[0]!.event;
      log.warn({ err, event_id: id, type, session_id, turn_id }, 'nothing was learned of an event');
    }
  }

  /** Verdicts on sessions and those of people build on what is stored of turns. */
  async function learnInOrder(occasions: readonly Occasion[], place: string | null): Promise<void> {
    const of = (wanted: (typeof LEARNED_TYPES)[number]) => occasions.filter(({ event }) => event.type === wanted);
    for (const together of [of('turn.completed'), of('session.ended'), ...of('eval.completed').map((one) => [one])])
      if (together.length > 0) await learn(together, place);
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

  async function keep(place: string): Promise<void> {
    await journal.commit(placed(place));
  }

  /** What waits, as soon as something does; empty when the loop is to end. */
  async function gathered(): Promise<readonly Occasion[]> {
    if (backlog.size() === 0) await nextWake();
    if (backlog.size() < MOST) await sleep(clock, GATHER_MS, closing.signal).catch(() => {});
    return backlog.take(MOST);
  }

  async function workBesideOthers(): Promise<void> {
    backlog.lost();
    let isBehind = false;
    while (!closing.signal.aborted || backlog.size() > 0) {
      await learnInOrder(await gathered(), null);
      const isLost = backlog.lost();
      if (isLost && !isBehind) log.warn({}, 'turns end faster than they are learned; some of them are not learned');
      isBehind = (isBehind || isLost) && backlog.size() > 0;
    }
  }

  async function workAlone(): Promise<void> {
    try {
      let place = await store.meta(CURSOR);
      if (place === null) {
        place = (await store.events.newestId()) ?? '';
        await keep(place);
      }
      for (;;) {
        if (backlog.lost()) {
          place = await readJournal(place);
          if (closing.signal.aborted) break;
        }
        if (backlog.size() === 0 && closing.signal.aborted) break;
        const unread = (await gathered()).filter(({ event }) => event.id > place!);
        await learnInOrder(unread, place);
        place = unread.at(-1)?.event.id ?? place;
      }
      await keep(place);
    } catch (err) {
      log.error({ err }, 'nothing more is learned until the next start');
    }
  }

  const unsubscribe = bus.subscribe('learning', backlog.see);
  const done = alone ? workAlone() : workBesideOthers();
  return {
    async close() {
      unsubscribe();
      closing.abort();
      wake();
      await done;
    },
  };
}

function placed(place: string) {
  return { writes: [{ kind: 'meta.set', key: CURSOR, value: place } as const], emit: [] };
}
