// One receiver outside: its place in the journal, kept over restarts, and its events one after the other (20 §7).

import { noticeBody, signature } from '#core/policy/notify/notice.ts';
import type { Journal } from '#core/ports/journal.ts';
import type { Logger } from '#core/ports/log.ts';
import type { Notices } from '#core/ports/notices.ts';
import type { Store } from '#core/ports/store.ts';
import { type Clock, sleep } from '#protocol/clock.ts';
import { NOTIFIED_EVENTS, type Receiver } from '#protocol/config/notify.ts';
import type { AnyEvent } from '#protocol/event.ts';
import { sha256Hex } from '#protocol/text/canonical-json.ts';
import { postNotice } from './post.ts';

const PAGE_ROWS = 50;
/** How soon a receiver is told of what another node stored. */
const LOOK_MS = 500;
const LONGEST_WAIT_SECONDS = 300;
const GIVE_UP_MS = 24 * 3600_000;
/** Events that a receiver need not look at again after a kill: its place is stored that often while it has nothing to do. */
const STORE_EVERY = 5000;
/** Told of workers in any case: else what a worker asks would wait unseen (06 §7). */
const ALWAYS: readonly string[] = ['tool.confirmation_requested', 'tool.confirmation_resolved'];

export interface ReceiverParts {
  readonly store: Store;
  readonly journal: Journal;
  readonly clock: Clock;
  readonly log: Logger;
  readonly fetch: typeof fetch;
  readonly secrets: readonly string[];
  /** Where several nodes could tell; null = this process alone does, and keeps its place in the journal. */
  readonly notices: Notices | null;
}

export interface RunningReceiver {
  readonly types: ReadonlySet<string>;
  /** An event was stored. Synchronous and quick. */
  wake(event: { readonly type: string }): void;
  /** Tells until `ending`, or until it is closed and its place is stored. Never rejects. */
  work(ending: AbortSignal): Promise<void>;
}

/** Under which name it is remembered where it stands. */
export function getCursorName({ url }: Receiver): string {
  return `notify:${sha256Hex(url)}`;
}

/** What it is told of. */
export function listEventTypes({ events }: Receiver): ReadonlySet<string> {
  return new Set<string>(NOTIFIED_EVENTS.filter((type) => events.includes(type)));
}

/** @param key what signs its notices; null = nothing does */
export function runReceiver(receiver: Receiver, key: string | null, parts: ReceiverParts): RunningReceiver {
  const { store, journal, clock, log } = parts;
  const types = listEventTypes(receiver);
  const place = getCursorName(receiver);
  // A path may be a secret.
  const about = { receiver: new URL(receiver.url).host };
  let wake = () => {};
  let woken = false;
  let passed = 0;
  let keptAt: string | null = null;

  async function keep(id: string): Promise<void> {
    if (id === keptAt) return;
    try {
      await journal.commit({ writes: [{ kind: 'meta.set', key: place, value: id }], emit: [] });
      keptAt = id;
      passed = 0;
    } catch (err) {
      log.warn({ ...about, err }, 'the place of a receiver could not be stored; it may be told again after a restart');
    }
  }

  /** Until it is taken, or for a day. Rejects at `ending`. */
  async function tell(event: AnyEvent, ending: AbortSignal): Promise<void> {
    const session = await store.sessions.record(event.session_id);
    const body = noticeBody(event, { secrets: parts.secrets, workspace: session?.workspace_path ?? null });
    for (let attempt = 0; ; attempt++) {
      const signed = key === null ? {} : { 'metis-signature': signature(key, body, clock.now()) };
      const headers = { 'metis-event-id': event.id, ...signed };
      const fault = await postNotice({ url: receiver.url, headers, body }, { ...parts, ending });
      if (fault === null) return;
      if (clock.now() - Date.parse(event.timestamp) > GIVE_UP_MS) {
        log.error({ ...about, event_id: event.id, type: event.type, fault }, 'a receiver was not told of an event');
        return;
      }
      if (attempt === 0) log.warn({ ...about, event_id: event.id, fault }, 'a receiver will be told again');
      await sleep(clock, Math.min(LONGEST_WAIT_SECONDS, 2 ** attempt) * 1000, ending);
    }
  }

  function isWanted({ actor, type }: AnyEvent): boolean {
    return receiver.include_workers || actor !== 'worker' || ALWAYS.includes(type);
  }

  /** What other nodes store wakes nobody here. */
  async function workInTurn(notices: Notices, ending: AbortSignal): Promise<void> {
    while (!ending.aborted) {
      try {
        const events = await notices.next(place, PAGE_ROWS);
        for (const event of events) {
          if (ending.aborted) return;
          if (isWanted(event)) await tell(event, ending);
          await notices.told(place, event.id);
        }
        if (events.length > 0) continue;
      } catch (err) {
        if (!ending.aborted) log.warn({ ...about, err }, 'a receiver could not be told; tried again');
      }
      await nextWake(ending, LOOK_MS);
    }
  }

  /** Until an event is stored or `ending` aborts, at most for `ms`; null = without a limit. */
  function nextWake(ending: AbortSignal, ms: number | null): Promise<void> {
    return new Promise((resolve) => {
      const timer = ms === null ? null : clock.after(ms, () => done());
      const done = () => {
        timer?.cancel();
        ending.removeEventListener('abort', done);
        wake = () => {};
        woken = false;
        resolve();
      };
      if (woken || ending.aborted) return done();
      ending.addEventListener('abort', done, { once: true });
      wake = done;
    });
  }

  async function work(ending: AbortSignal): Promise<void> {
    keptAt = await store.meta(place);
    let after = keptAt ?? (await store.events.newestId()) ?? '';
    try {
      // What had happened before it was named for the first time is not told.
      await keep(after);
      while (!ending.aborted) {
        const until = await store.events.newestId();
        const query = { session_id: null, include_workers: true, types: [...types], until, limit: PAGE_ROWS };
        const page = await store.events.list({ ...query, after });
        for (const event of page.rows) {
          const wanted = isWanted(event);
          if (wanted) await tell(event, ending);
          after = event.id;
          if (wanted) await keep(after);
        }
        if (page.next !== null) continue;
        if (until !== null && until > after) after = until;
        if (passed >= STORE_EVERY) await keep(after);
        await nextWake(ending, null);
      }
    } catch (err) {
      if (!ending.aborted) log.error({ ...about, err }, 'a receiver is told nothing more until the next start');
    }
    await keep(after);
  }

  return {
    types,
    wake({ type }) {
      passed += 1;
      if (!types.has(type) && passed < STORE_EVERY) return;
      woken = true;
      wake();
    },
    work: (ending) => (parts.notices === null ? work(ending) : workInTurn(parts.notices, ending)),
  };
}
