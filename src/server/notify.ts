// Webhooks: receivers get the events of their types one after the other, also over restarts (20 §7).

import { noticeBody, signature } from '#core/policy/notify/notice.ts';
import type { Journal } from '#core/ports/journal-writer.ts';
import type { LiveBus } from '#core/ports/live-bus.ts';
import type { Logger } from '#core/ports/logger.ts';
import type { Notices } from '#core/ports/notice-queue.ts';
import type { Store } from '#core/ports/store-reader.ts';
import { type Clock, sleep } from '#protocol/clock.ts';
import { NOTIFIED_EVENTS, type Receiver } from '#protocol/config.ts';
import { StartupError } from '#protocol/errors.ts';
import type { AnyEvent } from '#protocol/event.ts';
import { sha256Hex } from '#protocol/text/canonical-json.ts';
import type { Credentials } from './credentials.ts';

const TIMEOUT_MS = 10_000;

interface Post {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** Null when the receiver accepted, else why not. Rejects only when `ending` aborts. */
async function postNotice(
  { url, headers, body }: Post,
  around: { readonly clock: Clock; readonly fetch: typeof fetch; readonly ending: AbortSignal },
): Promise<string | null> {
  const stop = new AbortController();
  const timer = around.clock.after(TIMEOUT_MS, () => stop.abort());
  const onEnd = () => stop.abort();
  around.ending.addEventListener('abort', onEnd, { once: true });
  try {
    around.ending.throwIfAborted();
    const response = await around.fetch(url, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body,
      redirect: 'manual',
      signal: stop.signal,
    });
    // Only the status counts; the body may be endless.
    await response.body?.cancel().catch(() => {});
    if (response.ok) return null;
    return `answered ${response.status}`;
  } catch (error) {
    around.ending.throwIfAborted();
    if (stop.signal.aborted) return 'did not answer within 10 s';
    return describeFailure(error);
  } finally {
    timer.cancel();
    around.ending.removeEventListener('abort', onEnd);
  }
}

/** The system's code, never a text that may hold the URL. */
function describeFailure(error: unknown): string {
  const cause: unknown = (error as Error | null)?.cause;
  if (cause instanceof Error && 'code' in cause && typeof cause.code === 'string')
    return `cannot be reached (${cause.code})`;
  return 'cannot be reached';
}

const PAGE_ROWS = 50;
/** How soon a receiver gets what another node stored. */
const LOOK_MS = 500;
const LONGEST_WAIT_SECONDS = 300;
const GIVE_UP_MS = 24 * 3600_000;
/** Events that a receiver need not look at again after a kill: its place is stored that often while it has nothing to do. */
const STORE_EVERY = 5000;
/** Sent for workers in any case: else a worker's request for approval would wait unseen (06 §7). */
const ALWAYS: readonly string[] = ['tool.confirmation_requested', 'tool.confirmation_resolved'];

interface ReceiverParts {
  readonly store: Store;
  readonly journal: Journal;
  readonly clock: Clock;
  readonly log: Logger;
  readonly fetch: typeof fetch;
  readonly secrets: readonly string[];
  /** Where several nodes could send; null = only this process sends, and keeps its place in the journal. */
  readonly notices: Notices | null;
}

interface RunningReceiver {
  readonly types: ReadonlySet<string>;
  /** An event was stored. Synchronous and quick. */
  wake(event: { readonly type: string }): void;
  /** Sends until `ending`, then stores its place. Never rejects. */
  work(ending: AbortSignal): Promise<void>;
}

/** The name under which a receiver's place is stored. */
function getCursorName({ url }: Receiver): string {
  return `notify:${sha256Hex(url)}`;
}

/** The types of events that a receiver gets. */
function listEventTypes({ events }: Receiver): ReadonlySet<string> {
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
      log.warn(
        { ...about, err },
        'the place of a receiver could not be stored; it may get events again after a restart',
      );
    }
  }

  /** Until it is taken, or for a day. Rejects at `ending`. */
  async function deliverNotice(event: AnyEvent, ending: AbortSignal): Promise<void> {
    const session = await store.sessions.record(event.session_id);
    const body = noticeBody(event, {
      secrets: parts.secrets,
      workspace: session?.workspace_path ?? null,
      withoutText: session?.share === 'private',
    });
    for (let attempt = 0; ; attempt++) {
      const signed = key === null ? {} : { 'metis-signature': signature(key, body, clock.now()) };
      const headers = { 'metis-event-id': event.id, ...signed };
      const fault = await postNotice({ url: receiver.url, headers, body }, { ...parts, ending });
      if (fault === null) return;
      if (clock.now() - Date.parse(event.timestamp) > GIVE_UP_MS) {
        log.error(
          { ...about, event_id: event.id, type: event.type, fault },
          'an event could not be delivered to a receiver',
        );
        return;
      }
      if (attempt === 0)
        log.warn({ ...about, event_id: event.id, fault }, 'a delivery to a receiver failed; it is tried again');
      await sleep(clock, Math.min(LONGEST_WAIT_SECONDS, 2 ** attempt) * 1000, ending);
    }
  }

  function isWanted({ actor, type }: AnyEvent): boolean {
    return receiver.include_workers || actor !== 'worker' || ALWAYS.includes(type);
  }

  /** Other nodes' events cause no wake-up here, so it polls. */
  async function workInTurn(notices: Notices, ending: AbortSignal): Promise<void> {
    while (!ending.aborted) {
      try {
        const events = await notices.next(place, PAGE_ROWS);
        for (const event of events) {
          if (ending.aborted) return;
          if (isWanted(event)) await deliverNotice(event, ending);
          await notices.markSent(place, event.id);
        }
        if (events.length > 0) continue;
      } catch (err) {
        if (!ending.aborted) log.warn({ ...about, err }, 'a delivery to a receiver failed; it is tried again');
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
      // A new receiver gets no events from before its first start.
      await keep(after);
      while (!ending.aborted) {
        const until = await store.events.newestId();
        const query = { session_id: null, include_workers: true, types: [...types], until, limit: PAGE_ROWS };
        const page = await store.events.list({ ...query, after });
        for (const event of page.rows) {
          const wanted = isWanted(event);
          if (wanted) await deliverNotice(event, ending);
          after = event.id;
          if (wanted) await keep(after);
        }
        if (page.next !== null) continue;
        if (until !== null && until > after) after = until;
        if (passed >= STORE_EVERY) await keep(after);
        await nextWake(ending, null);
      }
    } catch (err) {
      if (!ending.aborted) log.error({ ...about, err }, 'a receiver gets no more events until the next start');
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
    work(ending) {
      if (parts.notices === null) return work(ending);
      return workInTurn(parts.notices, ending);
    },
  };
}

interface NotifyParts extends Omit<ReceiverParts, 'fetch'> {
  readonly bus: LiveBus;
  readonly fetch?: typeof fetch;
}

interface Notify {
  /** Stops sending, also during an attempt. Events that were not taken are sent after the next start. */
  close(): Promise<void>;
}

/** A receiver and the key of its signature, null without one. */
interface KeyedReceiver {
  readonly receiver: Receiver;
  readonly key: string | null;
}

/** Throws `StartupError('config_invalid')` for a key that is not set. */
export function resolveReceiverKeys(
  receivers: readonly Receiver[],
  credentials: Credentials,
): readonly KeyedReceiver[] {
  return receivers.map((receiver, i) => {
    if (receiver.secret_env === null) return { receiver, key: null };
    const key = credentials.secret(receiver.secret_env);
    if (key !== null) return { receiver, key };
    throw new StartupError('config_invalid', [
      `notify.${i}.secret_env: ${receiver.secret_env} is not set; set it in the environment or in the data folder's .env`,
    ]);
  });
}

/** Types of events by the name of the receiver's stored place. */
export function mapEventTypes(receivers: readonly Receiver[]): ReadonlyMap<string, ReadonlySet<string>> {
  return new Map(receivers.map((receiver) => [getCursorName(receiver), listEventTypes(receiver)]));
}

/** Null when no receiver is configured. */
export function startNotify(receivers: readonly KeyedReceiver[], { bus, ...parts }: NotifyParts): Notify | null {
  if (receivers.length === 0) return null;
  const closing = new AbortController();
  const around = { fetch: globalThis.fetch, ...parts };
  const running: RunningReceiver[] = receivers.map(({ receiver, key }) => runReceiver(receiver, key, around));
  const work = async (ending: AbortSignal) => void (await Promise.all(running.map((one) => one.work(ending))));
  const { notices } = parts;
  const done = notices === null ? work(closing.signal) : notices.alone(closing.signal, work);
  const unsubscribe = bus.subscribe('notify', (items) => {
    for (const item of items) if (item.kind === 'event') for (const one of running) one.wake(item.event);
  });
  return {
    async close() {
      unsubscribe();
      closing.abort();
      await done;
    },
  };
}
