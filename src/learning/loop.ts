// Follows the journal and learns from it, behind the turns that run: its place is stored with what it learned (12 §12.3).
import type { AnyEvent } from '../domain/event.ts';
import { SESSION_RUBRIC } from '../policy/learning/session-rubric.ts';
import { TURN_RUBRIC } from '../policy/learning/turn-heuristic.ts';
import type { Journal } from '../ports/journal.ts';
import type { LiveBus } from '../ports/live-bus.ts';
import type { Logger } from '../ports/log.ts';
import { LEARNED_TYPES, type LearnDeps, lessonOf } from './learn.ts';
import type { PatternMemory } from './memory.ts';

export const CURSOR = 'learning_cursor';
const PAGE_ROWS = 50;
const OWN_RUBRICS: ReadonlySet<string> = new Set([TURN_RUBRIC, SESSION_RUBRIC]);
const TYPES: ReadonlySet<string> = new Set(LEARNED_TYPES);

export interface LoopDeps extends LearnDeps {
  readonly journal: Journal;
  readonly bus: LiveBus;
  readonly log: Logger;
}

export interface LearningLoop {
  /** After the event in hand; what is left is learned after the next start. Never rejects. */
  close(): Promise<void>;
}

/** Begins behind the newest event when there was no loop before. */
export function startLoop(deps: LoopDeps, memory: PatternMemory): LearningLoop {
  const { store, journal, bus, log } = deps;
  /** Verdicts that were scored with their turn, and whose events are still to come: nothing more is in them. */
  const settled = new Set<string>();
  const closing = new AbortController();
  let woken = false;
  let wake = () => {};

  async function nextWake(): Promise<void> {
    if (!woken && !closing.signal.aborted)
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    woken = false;
  }

  /** Nothing of it reaches a turn: what cannot be learned is logged and passed over. */
  async function learn(event: AnyEvent): Promise<void> {
    let touched: string | null = null;
    try {
      await memory.exclusively(async (patternsOf) => {
        const { workspace_path, writes, emit } = await lessonOf(deps, event, async (path) => {
          touched = path;
          return patternsOf(path);
        });
        touched = workspace_path;
        if (writes.length + emit.length === 0) return;
        const place = { kind: 'meta.set', key: CURSOR, value: event.id } as const;
        const stored = await journal.commit({ writes: [...writes, place], emit });
        if (!writes.some((write) => write.kind === 'pattern.record' && write.record.score !== null)) return;
        for (const { id, type } of stored) if (type === 'eval.completed') settled.add(id);
      });
    } catch (err) {
      if (touched !== null) memory.forget(touched);
      const { id, type, session_id, turn_id } = event;
      log.warn({ err, event_id: id, type, session_id, turn_id }, 'nothing was learned of an event');
    }
  }

  async function keep(id: string): Promise<void> {
    await journal.commit({ writes: [{ kind: 'meta.set', key: CURSOR, value: id }], emit: [] });
  }

  async function work(): Promise<void> {
    try {
      let after = await store.meta(CURSOR);
      if (after === null) {
        after = (await store.events.newestId()) ?? '';
        await keep(after);
      }
      while (!closing.signal.aborted) {
        const until = await store.events.newestId();
        const query = { session_id: null, include_workers: true, types: [...TYPES], until, limit: PAGE_ROWS };
        const page = await store.events.list({ ...query, after });
        for (const event of page.rows) {
          if (closing.signal.aborted) return;
          if (!settled.delete(event.id)) await learn(event);
          after = event.id;
        }
        if (page.next !== null) continue;
        if (until !== null && until > after) after = until;
        await nextWake();
      }
      await keep(after);
    } catch (err) {
      log.error({ err }, 'nothing more is learned until the next start');
    }
  }

  // Its own verdicts were learned as they were made: they are passed over with the next event.
  const teaches = ({ type, payload }: AnyEvent): boolean =>
    TYPES.has(type) && !(type === 'eval.completed' && OWN_RUBRICS.has(String(payload.rubric_id)));
  const unsubscribe = bus.subscribe('learning', (items) => {
    if (!items.some((item) => item.kind === 'event' && teaches(item.event as AnyEvent))) return;
    woken = true;
    wake();
  });
  const done = work();
  return {
    async close() {
      unsubscribe();
      closing.abort();
      wake();
      await done;
    },
  };
}
