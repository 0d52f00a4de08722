// `metis events`: what is stored of a session, and with `--follow` what comes (17 §2).
import { createMetisClient, type LoggedEvent, type MetisClient } from '../client/client.ts';
import type { ServerAddress } from '../client/request.ts';
import { padded, printable } from './style.ts';
import { askServer, type ServerFlags, styleOf, type Terminal, widthOf } from './terminal.ts';

const PAGE = 1000;
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
    stdout.write(`${flags.json ? JSON.stringify(event) : eventLine(terminal, event, sessionId)}\n`);
  const include_worker_sessions = flags.workers ?? false;
  return askServer(terminal, server, async () => {
    // A stream waits for a server that is away; who asks for the first time is told.
    await client.getSession(sessionId);
    const range = { sessionId, include_worker_sessions, until: undefined, signal };
    if (!flags.follow) await printStored(client, range, print);
    else {
      let printed = false;
      for await (const item of client.stream(sessionId, { snapshot: true, include_worker_sessions, signal })) {
        if (item.type === 'event') {
          // Deltas are no stored events.
          if (item.event.transient) continue;
          const { transient: _, ...event } = item.event;
          print(event as LoggedEvent);
        } else if (!printed) {
          // What follows on the stream is above this id: together they are everything, once.
          printed = true;
          const until = item.snapshot_at_event_id ?? undefined;
          await printStored(client, { ...range, until }, print);
        } else stderr.write('metis: the server no longer holds what came meanwhile; going on from now\n');
      }
    }
    return 0;
  }).catch((error: unknown) => {
    if (signal.aborted) return 0;
    throw error;
  });
}

interface Range {
  readonly sessionId: string;
  readonly include_worker_sessions: boolean;
  readonly until: string | undefined;
  readonly signal: AbortSignal;
}

async function printStored(client: MetisClient, range: Range, print: (event: LoggedEvent) => void): Promise<void> {
  const { sessionId, include_worker_sessions, until, signal } = range;
  let cursor: string | null = null;
  do {
    const query = { include_worker_sessions, until, limit: PAGE, cursor: cursor ?? undefined };
    const page = await client.listEvents(sessionId, query, { signal });
    for (const event of page.events) print(event);
    cursor = page.next_cursor;
  } while (cursor !== null);
}

function eventLine(terminal: Terminal, event: LoggedEvent, sessionId: string): string {
  const style = styleOf(terminal);
  const time = event.timestamp.slice(...CLOCK_AT);
  const who = event.session_id === sessionId ? 'session ' : `…${event.session_id.slice(-6)} `;
  const type = padded(printable(event.type), TYPE_WIDTH);
  const left = widthOf(terminal) - time.length - who.length - TYPE_WIDTH - 3;
  const facts = printable(factsOf(event.payload));
  const shown = facts.length <= left ? facts : padded(facts, left);
  return `${style.dim(time)} ${style.cyan(who)} ${style.bold(type)} ${shown}`.trimEnd();
}

/** The plain fields of a payload; hashes and what is nested say nothing at a glance. */
function factsOf(payload: object): string {
  return Object.entries(payload)
    .filter(([name, value]) => value !== null && value !== '' && typeof value !== 'object' && !name.endsWith('_hash'))
    .map(([name, value]) => `${name}=${typeof value === 'string' && /\s/.test(value) ? JSON.stringify(value) : value}`)
    .join(' ');
}
