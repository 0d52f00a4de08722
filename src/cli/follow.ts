// All events of a session, from its first on: what is stored, then what comes (06 §4).
import type { EventsQuery, LoggedEvent, MetisClient, Snapshot, StoredEvent, StreamEvent } from '#client/client.ts';

const PAGE = 1000;

export interface FollowOptions {
  /** The events of all workers below it too. */
  readonly include_worker_sessions?: boolean;
  /** Ends it, without an error. */
  readonly signal: AbortSignal;
  /** The stream stands, for the first time or again after a gap: no event above the snapshot's will be missed. */
  readonly onSnapshot?: (snapshot: Snapshot) => Promise<void>;
  /** The server dropped the place this was at; what it still holds from there on follows. */
  readonly onGap?: () => void;
  /** The connection was lost, or stands again. */
  readonly onConnection?: (yes: boolean) => void;
}

/** Stored events each once and in order, deltas between them. Ends with the session. Throws as `stream` does. */
export async function* followSession(
  client: MetisClient,
  sessionId: string,
  { include_worker_sessions = false, signal, onSnapshot: standing, onGap: gap, onConnection: connected }: FollowOptions,
): AsyncGenerator<StreamEvent, void, undefined> {
  let last: string | undefined;
  let begun = false;
  const stream = client.stream(sessionId, {
    snapshot: true,
    include_worker_sessions,
    signal,
    ...(connected ? { connected } : {}),
  });
  for await (const item of stream) {
    if (item.type === 'event') {
      if (!item.event.transient) last = item.event.id;
      yield item.event;
      continue;
    }
    if (begun) gap?.();
    begun = true;
    // What follows on the stream is above this id: together they are everything, once.
    const until = item.snapshot_at_event_id ?? undefined;
    const query = { include_worker_sessions, since: last, until };
    for await (const event of storedEvents(client, sessionId, query, signal)) {
      last = event.id;
      yield { ...event, transient: false } as StoredEvent;
    }
    last = until ?? last;
    await standing?.(item);
  }
}

/** What is stored of a session now, page by page. */
export async function* storedEvents(
  client: MetisClient,
  sessionId: string,
  query: Omit<EventsQuery, 'limit' | 'cursor'>,
  signal: AbortSignal,
): AsyncGenerator<LoggedEvent, void, undefined> {
  let cursor: string | null = null;
  do {
    const page = await client.listEvents(sessionId, { ...query, limit: PAGE, cursor: cursor ?? undefined }, { signal });
    yield* page.events;
    cursor = page.next_cursor;
  } while (cursor !== null);
}

/** As the log holds it, without what marks it on a stream. */
export function toLoggedEvent({ transient: _, ...event }: StoredEvent): LoggedEvent {
  return event as LoggedEvent;
}
