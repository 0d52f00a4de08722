// `metis events`: what is stored of a session, and with `--follow` what comes (17 §2).
import {
  createMetisClient,
  type EventsQuery,
  type LoggedEvent,
  type MetisClient,
  type Snapshot,
  type StoredEvent,
  type StreamEvent,
} from '#client/client.ts';
import type { ServerAddress } from '#client/request.ts';
import { toJsonLine, toPrintable } from './printable-text.ts';
import {
  askServer,
  clip,
  createTerminalStyle,
  getTableWidth,
  pad,
  type ServerFlags,
  type Terminal,
} from './terminal.ts';

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
    ...(connected && { connected }),
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

const TYPE_WIDTH = 27;
/** `12:34:56.789` of an ISO time. */
const CLOCK_AT = [11, 23] as const;

export interface EventsFlags extends Pick<ServerFlags, 'json'> {
  readonly follow?: boolean;
  /** The events of all workers below it too. */
  readonly workers?: boolean;
}

/**
 * Exit code: 0 when all is printed, `signal` was aborted or the followed session has ended; 1 when the server could not
 * say. With `json`, an event a line.
 */
export async function showEvents(
  terminal: Terminal,
  server: ServerAddress,
  sessionId: string,
  { signal, ...flags }: EventsFlags & { readonly signal: AbortSignal },
): Promise<number> {
  const client = createMetisClient(server);
  const { stdout, stderr } = terminal;
  const print = (event: LoggedEvent) =>
    stdout.write(flags.json ? toJsonLine(event) : `${formatEvent(terminal, event, sessionId)}\n`);
  const include_worker_sessions = flags.workers ?? false;
  return askServer(terminal, server, async () => {
    // A stream waits for a server that is away; this first request reports it instead.
    await client.getSession(sessionId);
    if (flags.follow) {
      const gap = () => stderr.write('metis: the server no longer holds all that came meanwhile\n');
      for await (const event of followSession(client, sessionId, { include_worker_sessions, signal, onGap: gap })) {
        if (!event.transient) print(toLoggedEvent(event));
      }
    } else for await (const event of storedEvents(client, sessionId, { include_worker_sessions }, signal)) print(event);
    return 0;
  }).catch((error: unknown) => {
    if (signal.aborted) return 0;
    throw error;
  });
}

function formatEvent(terminal: Terminal, event: LoggedEvent, sessionId: string): string {
  const style = createTerminalStyle(terminal);
  const time = toPrintable(event.timestamp).slice(...CLOCK_AT);
  const who = event.session_id === sessionId ? 'session ' : `…${toPrintable(event.session_id).slice(-6)} `;
  const type = pad(toPrintable(event.type), TYPE_WIDTH);
  const left = getTableWidth(terminal) - time.length - who.length - TYPE_WIDTH - 3;
  const facts = toPrintable(formatPayload(event.payload));
  return `${style.dim(time)} ${style.cyan(who)} ${style.bold(type)} ${clip(facts, left)}`.trimEnd();
}

/** The plain fields of a payload, lists of names among them, ids last; hashes and what is nested say nothing at a glance. */
function formatPayload(payload: object): string {
  const fields = Object.entries(payload).map(([name, value]): [string, unknown] => [name, joinNames(value)]);
  const isId = ([name]: [string, unknown]) => name.endsWith('_id');
  return [...fields.filter((field) => !isId(field)), ...fields.filter(isId)]
    .filter(([name, value]) => value !== null && value !== '' && typeof value !== 'object' && !name.endsWith('_hash'))
    .map(([name, value]) => `${name}=${quoteSpaces(value)}`)
    .join(' ');
}

function quoteSpaces(value: unknown): string {
  if (typeof value === 'string' && /\s/.test(value)) return JSON.stringify(value);
  return String(value);
}

function joinNames(value: unknown): unknown {
  const isNames = Array.isArray(value) && value.length > 0 && value.every((item) => typeof item === 'string');
  if (isNames) return value.join(',');
  return value;
}
