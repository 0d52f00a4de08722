// What a session stream writes to, be it a socket or an SSE response, and how it ends (06 §9, §11).
import type { Writable } from 'node:stream';
import type { Frame } from './frames.ts';

/** Bytes a client may leave unread for long, and for how long it may leave more. */
export const MAX_BACKLOG_BYTES = 8 * 1024 * 1024;
export const PATIENCE_MS = 10_000;
/** How many times that, or of the largest frame, it may leave unread for a moment. */
export const BURST = 4;
/** A client that does not take the end must not hold up anybody, least of all a shutdown. */
export const CLOSE_WITHIN_MS = 5_000;

/** Why the server closes, with its WebSocket code. */
export const CLOSE_CODES = {
  session_ended: 1000,
  session_purged: 1000,
  server_shutdown: 1001,
  binary_not_supported: 1003,
  invalid_json: 1007,
  subscribe_timeout: 1008,
  unauthorized: 1008,
  not_found: 1008,
  cursor_expired: 1008,
  validation_error: 1008,
  internal_error: 1011,
} as const;
export type CloseReason = keyof typeof CLOSE_CODES;

export interface Sink {
  /** Queues one frame; never waits. */
  send(frame: Frame): void;
  /** Bytes queued and not taken by the network yet. */
  backlog(): number;
  /** Resolves when all that was queued has left, or when the client is gone. */
  flushed(): Promise<void>;
  /** Ends after the queued frames, or `CLOSE_WITHIN_MS` later. */
  close(reason: CloseReason): void;
  /** Ends at once. */
  terminate(): void;
}

/**
 * Resolves when all that was written has left, or when the client is gone. Only pages ask for it: a callback for each
 * write would take a tick of its own for each piece of an answer.
 */
export function drained(stream: Writable): Promise<void> {
  if (stream.writableLength === 0 || !stream.writable) return Promise.resolve();
  return new Promise((resolve) => stream.write('', () => resolve()));
}
