// `metis events`: what is stored of a session, and with `--follow` what comes (17 §2).
import { createMetisClient, type LoggedEvent } from '#client/client.ts';
import type { ServerAddress } from '#client/request.ts';
import { followSession, storedEvents, toLoggedEvent } from './follow.ts';
import { clip, pad, toJsonLine, toPrintable } from './style.ts';
import { askServer, createTerminalStyle, getTableWidth, type ServerFlags, type Terminal } from './terminal.ts';

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
    // A stream waits for a server that is away; who asks for the first time is told.
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
    .map(([name, value]) => `${name}=${typeof value === 'string' && /\s/.test(value) ? JSON.stringify(value) : value}`)
    .join(' ');
}

function joinNames(value: unknown): unknown {
  const isNames = Array.isArray(value) && value.length > 0 && value.every((item) => typeof item === 'string');
  return isNames ? value.join(',') : value;
}
