// `metis events`: what is stored of a session, and with `--follow` what comes (17 §2).
import { createMetisClient, type LoggedEvent } from '#client/client.ts';
import type { ServerAddress } from '#client/request.ts';
import { followSession, logged, storedEvents } from './follow.ts';
import { clipped, jsonLine, padded, printable } from './style.ts';
import { askServer, type ServerFlags, styleOf, type Terminal, widthOf } from './terminal.ts';

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
    stdout.write(flags.json ? jsonLine(event) : `${eventLine(terminal, event, sessionId)}\n`);
  const include_worker_sessions = flags.workers ?? false;
  return askServer(terminal, server, async () => {
    // A stream waits for a server that is away; who asks for the first time is told.
    await client.getSession(sessionId);
    if (flags.follow) {
      const gap = () => stderr.write('metis: the server no longer holds all that came meanwhile\n');
      for await (const event of followSession(client, sessionId, { include_worker_sessions, signal, gap })) {
        if (!event.transient) print(logged(event));
      }
    } else for await (const event of storedEvents(client, sessionId, { include_worker_sessions }, signal)) print(event);
    return 0;
  }).catch((error: unknown) => {
    if (signal.aborted) return 0;
    throw error;
  });
}

function eventLine(terminal: Terminal, event: LoggedEvent, sessionId: string): string {
  const style = styleOf(terminal);
  const time = printable(event.timestamp).slice(...CLOCK_AT);
  const who = event.session_id === sessionId ? 'session ' : `…${printable(event.session_id).slice(-6)} `;
  const type = padded(printable(event.type), TYPE_WIDTH);
  const left = widthOf(terminal) - time.length - who.length - TYPE_WIDTH - 3;
  const facts = printable(factsOf(event.payload));
  return `${style.dim(time)} ${style.cyan(who)} ${style.bold(type)} ${clipped(facts, left)}`.trimEnd();
}

/** The plain fields of a payload, lists of names among them, ids last; hashes and what is nested say nothing at a glance. */
function factsOf(payload: object): string {
  const fields = Object.entries(payload).map(([name, value]): [string, unknown] => [name, asNames(value)]);
  const isId = ([name]: [string, unknown]) => name.endsWith('_id');
  return [...fields.filter((field) => !isId(field)), ...fields.filter(isId)]
    .filter(([name, value]) => value !== null && value !== '' && typeof value !== 'object' && !name.endsWith('_hash'))
    .map(([name, value]) => `${name}=${typeof value === 'string' && /\s/.test(value) ? JSON.stringify(value) : value}`)
    .join(' ');
}

function asNames(value: unknown): unknown {
  const isNames = Array.isArray(value) && value.length > 0 && value.every((item) => typeof item === 'string');
  return isNames ? value.join(',') : value;
}
