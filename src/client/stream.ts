// A session's events as an async iterator that survives broken connections (06 §2-§4, §11).
import type { WebSocket as Socket } from 'ws';
import type { Confirmation } from '../domain/confirmation.ts';
import type { Delegation } from '../domain/delegate.ts';
import type { Delta } from '../domain/delta.ts';
import type { AnyEvent, EventType, PayloadOf } from '../domain/event.ts';
import type { Message } from '../domain/message.ts';
import type { Session } from '../domain/session.ts';
import { ApiError, request, type ServerAddress } from './request.ts';

interface Place {
  readonly session_id: string;
  readonly turn_id: string | null;
  readonly timestamp: string;
}
/** A stored event; its id is the cursor. */
export type StoredEvent = {
  readonly [T in EventType]: Omit<AnyEvent, 'type' | 'payload'> & {
    readonly type: T;
    readonly payload: PayloadOf<T>;
    readonly transient: false;
  };
}[EventType];
/** Seen while a model speaks, never stored. */
export type TransientEvent = Place & { readonly id: null; readonly transient: true } & Delta;

export interface Snapshot {
  readonly type: 'snapshot';
  readonly session: Session;
  readonly messages: readonly Message[];
  readonly snapshot_at_event_id: string | null;
  readonly pending_confirmations: readonly Confirmation[];
  readonly workers?: readonly Delegation[];
}
export interface EventFrame {
  readonly type: 'event';
  readonly event: StoredEvent | TransientEvent;
}
export type StreamItem = Snapshot | EventFrame;
type Frame =
  | StreamItem
  | { readonly type: 'subscribe_ack' }
  | { readonly type: 'subscribe_error'; readonly code: string; readonly message: string };

export interface StreamOptions {
  readonly types?: readonly string[];
  readonly preset?: 'chat';
  readonly include_worker_sessions?: boolean;
  /** Events after this id. Without it and without `snapshot` the stream starts with what comes next. */
  readonly since?: string;
  readonly snapshot?: boolean;
  readonly signal?: AbortSignal;
}

const FIRST_DELAY_MS = 100;
const LONGEST_DELAY_MS = 5000;
/** Closed because the client is wrong: trying again changes nothing. */
const FINAL_CLOSE_CODES = new Set([1003, 1007, 1008, 1009]);

/**
 * Yields every event once and in order. A lost connection is taken up again after the last id seen; when the server no
 * longer holds that place, with a snapshot. Ends with the session. Throws `ApiError` when the server refuses.
 */
export async function* streamSession(
  server: ServerAddress,
  sessionId: string,
  options: StreamOptions = {},
): AsyncGenerator<StreamItem, void, undefined> {
  const { signal, types, preset, include_worker_sessions } = options;
  let since = options.since ?? null;
  let snapshot = options.snapshot ?? false;
  let failures = 0;
  while (!signal?.aborted) {
    const connection = await connect(streamUrl(server, sessionId), {
      type: 'subscribe',
      types,
      preset,
      include_worker_sessions,
      ...(snapshot ? { snapshot } : since === null ? {} : { since }),
      ...(server.token ? { token: server.token } : {}),
    });
    const stop = () => connection.close();
    signal?.addEventListener('abort', stop, { once: true });
    try {
      for (;;) {
        const frame = await connection.next();
        if (frame === null) break;
        if (frame.type === 'subscribe_ack') failures = 0;
        else if (frame.type === 'subscribe_error') {
          if (frame.code !== 'cursor_expired') throw new ApiError(400, frame.code, frame.message, {});
          snapshot = true;
          since = null;
        } else if (frame.type === 'snapshot') {
          snapshot = false;
          since = frame.snapshot_at_event_id;
          yield frame;
        } else {
          const { id } = frame.event;
          if (id !== null && since !== null && id <= since) continue;
          if (id !== null) since = id;
          yield frame;
        }
      }
    } finally {
      signal?.removeEventListener('abort', stop);
      connection.close();
    }
    if (signal?.aborted || connection.closeCode() === 1000) return;
    if (FINAL_CLOSE_CODES.has(connection.closeCode()) && !snapshot) {
      throw new ApiError(400, 'stream_closed', `the server closed the stream with ${connection.closeCode()}`, {});
    }
    // A refused upgrade does not tell a socket why; the same session over HTTP does.
    if (!connection.opened()) await explainRefusal(server, sessionId, signal);
    await pause(Math.min(FIRST_DELAY_MS * 2 ** failures, LONGEST_DELAY_MS), signal);
    failures++;
  }
}

async function explainRefusal(server: ServerAddress, sessionId: string, signal?: AbortSignal): Promise<void> {
  try {
    await request(server, 'GET', `/sessions/${sessionId}`, { signal });
  } catch (error) {
    if (error instanceof ApiError && error.status < 500) throw error;
  }
}

function streamUrl(server: ServerAddress, sessionId: string): string {
  const url = new URL(`/sessions/${sessionId}/stream`, server.baseUrl);
  url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
  return url.href;
}

interface Connection {
  /** The next frame; null when the socket is closed and everything received was taken. */
  next(): Promise<Frame | null>;
  close(): void;
  opened(): boolean;
  closeCode(): number;
}

async function connect(url: string, subscribe: object): Promise<Connection> {
  const WebSocket = await socketClass();
  const socket = new WebSocket(url);
  const received: Frame[] = [];
  let opened = false;
  let closeCode: number | null = null;
  let wake = () => {};
  socket.onopen = () => {
    opened = true;
    socket.send(JSON.stringify(subscribe));
  };
  socket.onmessage = (message) => {
    received.push(JSON.parse(String(message.data)) as Frame);
    wake();
  };
  // What an error means is decided by the close that follows it.
  socket.onerror = () => {};
  socket.onclose = (event) => {
    closeCode = event.code;
    wake();
  };
  return {
    async next() {
      while (received.length === 0 && closeCode === null) {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
      return received.shift() ?? null;
    },
    close() {
      if (closeCode === null) socket.close();
    },
    opened: () => opened,
    closeCode: () => closeCode ?? 1006,
  };
}

/** The library's socket in Node, whose own says nothing when an upgrade is refused (22); the platform's in a browser. */
async function socketClass(): Promise<new (url: string) => Socket> {
  if (globalThis.process?.versions?.node) return (await import('ws')).WebSocket;
  return (globalThis as unknown as { WebSocket: new (url: string) => Socket }).WebSocket;
}

function pause(ms: number, signal?: AbortSignal): Promise<void> {
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
