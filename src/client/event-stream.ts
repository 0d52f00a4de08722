// A session's events as an async iterator that survives broken connections (06 §2-§4, §11).

import type { WebSocket as Socket } from 'ws';
import { ApiError, request, resolveUrl, type ServerAddress } from './request.ts';
import type { StreamEventType, StreamItem } from './stream-items.ts';

// The delay before a stream reconnects (06 §11): it grows while connections bring nothing new.

const FIRST_DELAY_MS = 100;
const LONGEST_DELAY_MS = 5000;

interface Backoff {
  /** A new frame arrived, or the connection was open for longer than the longest delay: resets the delay. */
  reset(): void;
  /** @returns milliseconds until the next connection, after one was lost */
  nextDelay(): number;
}

/**
 * The delay doubles after each connection that brought nothing. A connection that closes at once counts as a refused
 * one. A connection that was open for longer than the longest delay resets it, even if it brought nothing.
 */
export function createBackoff(): Backoff {
  let failures = 0;
  return {
    reset() {
      failures = 0;
    },
    nextDelay: () => Math.min(FIRST_DELAY_MS * 2 ** failures++, LONGEST_DELAY_MS),
  };
}

// One WebSocket to a session: frames in the order of their arrival, and why it was closed (06 §2, §4, §11).

type Frame =
  | StreamItem
  | { readonly type: 'subscribe_ack'; readonly since: string | null }
  | { readonly type: 'subscribe_error'; readonly code: string; readonly message: string };

interface Closed {
  readonly code: number;
  /** The code that the server gave; '' if it gave none. */
  readonly reason: string;
  /** False when the upgrade was refused or the server did not answer. */
  readonly opened: boolean;
}

interface Connection {
  /** The next frame; null when the socket is closed and everything received was taken. */
  next(): Promise<Frame | null>;
  close(): void;
  /** Why the socket was closed; valid once `next` has returned null. */
  readClose(): Closed;
}

/** Connects and sends `subscribe` once the socket is open. A failure appears as a close. */
async function connect(url: string, subscribe: object): Promise<Connection> {
  const WebSocket = await socketClass();
  const socket = new WebSocket(url);
  const received: Frame[] = [];
  let opened = false;
  let closed: Closed | null = null;
  let wake = () => {};
  socket.onopen = () => {
    opened = true;
    socket.send(JSON.stringify(subscribe));
  };
  socket.onmessage = (message) => {
    const frame = parseFrame(message.data);
    if (frame === null) {
      // Frames after an unreadable one would leave a gap.
      socket.onmessage = null;
      socket.close();
    } else received.push(frame);
    wake();
  };
  // The close that follows an error carries its reason.
  socket.onerror = () => {};
  socket.onclose = ({ code, reason }) => {
    closed = { code, reason: readCloseCode(reason), opened };
    wake();
  };
  return {
    async next() {
      while (received.length === 0 && closed === null) {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
      return received.shift() ?? null;
    },
    close() {
      if (closed === null) socket.close();
    },
    readClose: () => closed ?? { code: 1006, reason: '', opened },
  };
}

/** @returns null for a frame that no Metis server sends */
function parseFrame(data: unknown): Frame | null {
  try {
    const frame = JSON.parse(String(data)) as Partial<Record<string, unknown>> | null;
    if (isSound(frame)) return frame as unknown as Frame;
    return null;
  } catch {
    return null;
  }
}

/** As far as the stream itself looks into it. Other types may come with later servers. */
function isSound(frame: Partial<Record<string, unknown>> | null): boolean {
  const cursor = (value: unknown) => value === null || typeof value === 'string';
  switch (frame?.type) {
    case 'event':
      return typeof frame.event === 'object' && frame.event !== null && 'id' in frame.event && cursor(frame.event.id);
    case 'snapshot':
      return cursor(frame.snapshot_at_event_id);
    case 'subscribe_ack':
      return cursor(frame.since ?? null);
    case 'subscribe_error':
      return typeof frame.code === 'string' && typeof frame.message === 'string';
    default:
      return typeof frame?.type === 'string';
  }
}

function readCloseCode(reason: string): string {
  try {
    const { code } = JSON.parse(reason) as { code?: unknown };
    if (typeof code === 'string') return code;
    return '';
  } catch {
    return '';
  }
}

/** In Node the socket of `ws`, because Node's own (22) does not report a refused upgrade; in a browser the platform's. */
async function socketClass(): Promise<new (url: string) => Socket> {
  if (globalThis.process?.versions?.node) return (await import('ws')).WebSocket;
  return (globalThis as unknown as { WebSocket: new (url: string) => Socket }).WebSocket;
}

export interface StreamOptions {
  readonly types?: readonly StreamEventType[];
  /** The events of a chat window; mutually exclusive with `types`. */
  readonly preset?: 'chat';
  /** The events of all workers below the session too. */
  readonly include_worker_sessions?: boolean;
  /** Events after this id. Without it and without `snapshot` the stream starts with what comes next. */
  readonly since?: string;
  /** First the state as it is; `since` then counts for nothing. */
  readonly snapshot?: boolean;
  /** Ends the stream, without an error. */
  readonly signal?: AbortSignal;
  /** Called with `true` when the connection is open and with `false` when it is lost. */
  readonly connected?: (yes: boolean) => void;
}

/** Closed because the client is wrong: trying again changes nothing. */
const FINAL_CLOSE_CODES = new Set([1003, 1007, 1008, 1009]);
const CURSOR_EXPIRED = 'cursor_expired';

/**
 * Yields every event once and in order. A lost connection is taken up again after the last id seen, for as long as it
 * takes; when the server no longer holds that place, with a snapshot. Ends with the session. Throws `ApiError` when the
 * server refuses.
 */
export async function* streamSession(
  server: ServerAddress,
  sessionId: string,
  options: StreamOptions = {},
  wait: typeof pause = pause,
): AsyncGenerator<StreamItem, void, undefined> {
  const { signal, types, preset, include_worker_sessions } = options;
  let since = options.since ?? null;
  let snapshot = options.snapshot ?? false;
  const backoff = createBackoff();
  let isConnected: boolean | null = null;
  const notifyConnected = (yes: boolean) => {
    if (isConnected !== yes) options.connected?.(yes);
    isConnected = yes;
  };
  while (!signal?.aborted) {
    const connection = await connect(streamUrl(server, sessionId), {
      type: 'subscribe',
      types,
      preset,
      include_worker_sessions,
      ...selectStart(snapshot, since),
      token: server.token || undefined,
    });
    const stop = () => connection.close();
    signal?.addEventListener('abort', stop, { once: true });
    if (signal?.aborted) stop();
    let lost = false;
    const gone = new AbortController();
    try {
      while (!signal?.aborted) {
        const frame = await connection.next();
        if (frame === null) break;
        if (frame.type === 'subscribe_ack') {
          notifyConnected(true);
          void wait(LONGEST_DELAY_MS, gone.signal).then(() => gone.signal.aborted || backoff.reset());
          // The start of the stream: after a break before the first event the next connection resumes here.
          since ??= frame.since;
        } else if (frame.type === 'subscribe_error') {
          if (frame.code !== CURSOR_EXPIRED) throw new ApiError(0, frame.code, frame.message, {});
          lost = true;
          snapshot = true;
          since = null;
        } else if (frame.type === 'snapshot') {
          backoff.reset();
          snapshot = false;
          since = frame.snapshot_at_event_id;
          yield frame;
        } else if (frame.type === 'event') {
          const { id } = frame.event;
          if (id !== null && since !== null && id <= since) continue;
          backoff.reset();
          if (id !== null) since = id;
          yield frame;
        }
      }
    } finally {
      signal?.removeEventListener('abort', stop);
      gone.abort();
      connection.close();
    }
    const closed = connection.readClose();
    if (signal?.aborted || closed.code === 1000) return;
    if (!lost) refuseFinal(closed);
    notifyConnected(false);
    if (!closed.opened) await server.lost?.();
    // A socket does not report why an upgrade was refused; a request for the same session does.
    if (!closed.opened) await explainRefusal(server, sessionId, signal);
    await wait(backoff.nextDelay(), signal);
  }
}

/** The first event to send: by a snapshot, after an id, or whatever comes next. */
function selectStart(snapshot: boolean, since: string | null): object {
  if (snapshot) return { snapshot };
  if (since === null) return {};
  return { since };
}

function refuseFinal({ code, reason }: Closed): void {
  if (!FINAL_CLOSE_CODES.has(code)) return;
  const why = reason === '' ? '' : `: ${reason}`;
  throw new ApiError(
    0,
    reason === '' ? 'stream_closed' : reason,
    `the server closed the stream with ${code}${why}`,
    {},
  );
}

async function explainRefusal(server: ServerAddress, sessionId: string, signal?: AbortSignal): Promise<void> {
  try {
    await request(server, 'GET', `/sessions/${encodeURIComponent(sessionId)}`, { signal });
  } catch (error) {
    if (error instanceof ApiError && error.status < 500) throw error;
  }
}

function streamUrl(server: ServerAddress, sessionId: string): string {
  const url = resolveUrl(server, `/sessions/${encodeURIComponent(sessionId)}/stream`);
  url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
  return url.href;
}

/** Ends early when `signal` is aborted. */
function pause(ms: number, signal?: AbortSignal): Promise<void> {
  if (signal?.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const timer = setTimeout(done, ms);
    signal?.addEventListener('abort', done, { once: true });
    function done(): void {
      clearTimeout(timer);
      signal?.removeEventListener('abort', done);
      resolve();
    }
  });
}
