// Server frames: one serialisation per event for all clients, their bytes, and the sinks they are written to (06 §4, §9).

import type { Writable } from 'node:stream';
import type { Published } from '#core/ports/live-bus.ts';
import type { Store } from '#core/ports/store-reader.ts';
import { isoTime } from '#protocol/clock.ts';
import type { Transient } from '#protocol/delta.ts';
import type { AppError } from '#protocol/errors.ts';
import type { AnyEvent } from '#protocol/event.ts';
import type { Subscription } from './subscription.ts';

export interface Frame {
  readonly type: 'subscribe_ack' | 'subscribe_error' | 'snapshot' | 'event';
  /** The cursor a client may resume from after this frame; null where the frame moves none. */
  readonly id: string | null;
  /** One line of JSON. */
  readonly text: string;
}

export type Snapshot = NonNullable<Awaited<ReturnType<Store['snapshot']>>>;

let newest: { readonly item: Published; readonly frame: Frame } | null = null;

/**
 * The frame of a published item, made once: an item is offered to all of its subscribers before the next one is.
 * @param root the root session of the item's tree: any other session of it is a worker
 */
export function createFrame(item: Published, root: string): Frame {
  if (newest?.item === item) return newest.frame;
  const frame =
    item.kind === 'event' ? eventFrame(item.event, item.payload_json) : transientFrame(item.transient, root);
  newest = { item, frame };
  return frame;
}

/** The envelope around the stored payload text; its other members are ids and names that need no escaping. */
export function eventFrame(event: Omit<AnyEvent, 'payload'>, payloadJson: string): Frame {
  const { id, timestamp, session_id, turn_id, parent_event_id, type, actor, sensitivity } = event;
  const text =
    `{"type":"event","event":{"id":"${id}","timestamp":"${timestamp}","session_id":"${session_id}",` +
    `"turn_id":${toJsonId(turn_id)},"parent_event_id":${toJsonId(parent_event_id)},"type":"${type}",` +
    `"actor":"${actor}","payload":${payloadJson},"sensitivity":"${sensitivity}","transient":false}}`;
  return { type: 'event', id, text };
}

function toJsonId(id: string | null): string {
  if (id === null) return 'null';
  return `"${id}"`;
}

export function transientFrame(transient: Transient, root: string): Frame {
  const { timestamp, delta } = transient;
  // By parts for what comes by the thousand.
  const text =
    delta.type === 'text.delta'
      ? TEXT_HEAD +
        isoTime(timestamp) +
        findTextPlace(transient, delta.payload, root) +
        JSON.stringify(delta.payload.text) +
        TEXT_END
      : `${TEXT_HEAD}${isoTime(timestamp)}${describePlace(transient, root)}${JSON.stringify(delta.payload)}${TRANSIENT_END}`;
  return { type: 'event', id: null, text };
}

const TEXT_HEAD = '{"type":"event","event":{"id":null,"timestamp":"';
const TRANSIENT_END = ',"sensitivity":null,"transient":true}}';
const TEXT_END = `}${TRANSIENT_END}`;

/** What stands between the time and the payload. */
function describePlace({ session_id, turn_id, delta }: Transient, root: string): string {
  const actor = session_id === root ? resolveActor(delta) : 'worker';
  return `","session_id":"${session_id}","turn_id":${toJsonId(turn_id)},"parent_event_id":null,"type":"${delta.type}","actor":"${actor}","payload":`;
}

/** What all deltas of one block have between their time and their text, by message: 11 of 16 objects of a frame. */
const places = new Map<string, { readonly index: number; readonly text: string }>();
const MAX_PLACES = 4096;

function findTextPlace(
  transient: Transient,
  { message_id, content_block_index: index }: Extract<Transient['delta'], { type: 'text.delta' }>['payload'],
  root: string,
): string {
  const known = places.get(message_id);
  if (known?.index === index) return known.text;
  if (places.size >= MAX_PLACES) places.clear();
  const text = `${describePlace(transient, root)}{"message_id":"${message_id}","content_block_index":${index},"text":`;
  places.set(message_id, { index, text });
  return text;
}

function resolveActor(delta: Transient['delta']): 'user' | 'tool' | 'agent' {
  if (delta.type !== 'message.appended') return 'agent';
  const { role } = delta.payload.message;
  if (role === 'user' || role === 'tool') return role;
  return 'agent';
}

export function ackFrame({ types, include_worker_sessions, since, snapshot }: Subscription): Frame {
  const fields = { types: types === null ? null : [...types].sort(), include_worker_sessions, since, snapshot };
  return { type: 'subscribe_ack', id: null, text: JSON.stringify({ type: 'subscribe_ack', ...fields }) };
}

export function errorFrame({ code, message, details }: AppError): Frame {
  const fields = { code, message, ...(details !== undefined && { details }) };
  return { type: 'subscribe_error', id: null, text: JSON.stringify({ type: 'subscribe_error', ...fields }) };
}

export function snapshotFrame({ workers, ...rest }: Snapshot): Frame {
  const fields = { ...rest, ...(workers !== null && { workers }) };
  return { type: 'snapshot', id: rest.snapshot_at_event_id, text: JSON.stringify({ type: 'snapshot', ...fields }) };
}

/** First byte of a whole text message (RFC 6455 §5.2). */
const WHOLE_TEXT = 0x81;
/** A batch above it is not kept: many clients rarely replay the same pages at the same time. */
const MAX_KEPT_BYTES = 1024 * 1024;

/**
 * Text frames as a server sends them: unmasked, uncompressed, one after the other. The last batch is kept, since all
 * subscribers of a session are sent the same one.
 */
export function createBatchEncoder(): (frames: readonly Frame[]) => Buffer {
  let kept: { readonly frames: readonly Frame[]; readonly bytes: Buffer } | null = null;
  return (frames) => {
    if (kept !== null && areSameFrames(kept.frames, frames)) return kept.bytes;
    const bytes = encodeFrames(frames);
    kept = bytes.length > MAX_KEPT_BYTES ? null : { frames, bytes };
    return bytes;
  };
}

function areSameFrames(a: readonly Frame[], b: readonly Frame[]): boolean {
  return a.length === b.length && a.every((frame, i) => frame === b[i]);
}

function encodeFrames(frames: readonly Frame[]): Buffer {
  const sizes: number[] = [];
  let total = 0;
  for (const { text } of frames) {
    const size = Buffer.byteLength(text);
    sizes.push(size);
    total += getHeadSize(size) + size;
  }
  const bytes = Buffer.allocUnsafe(total);
  let at = 0;
  for (let i = 0; i < sizes.length; i++) {
    at = writeHead(bytes, at, sizes[i]!);
    at += bytes.write(frames[i]!.text, at, sizes[i]!, 'utf8');
  }
  return bytes;
}

function getHeadSize(size: number): number {
  if (size < 126) return 2;
  if (size < 65_536) return 4;
  return 10;
}

/** Returns where the payload begins. */
function writeHead(bytes: Buffer, at: number, size: number): number {
  bytes[at] = WHOLE_TEXT;
  if (size < 126) {
    bytes[at + 1] = size;
    return at + 2;
  }
  if (size < 65_536) {
    bytes[at + 1] = 126;
    return bytes.writeUInt16BE(size, at + 2);
  }
  bytes[at + 1] = 127;
  return bytes.writeBigUInt64BE(BigInt(size), at + 2);
}

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
  flush(): Promise<void>;
  /** Ends after the queued frames, or `CLOSE_WITHIN_MS` later. */
  close(reason: CloseReason): void;
  /** Ends at once. */
  terminate(): void;
}

/**
 * Resolves when all that was written has left, or when the client is gone. Only pages ask for it: a callback for each
 * write would take a tick of its own for each piece of an answer.
 */
export function waitUntilFlushed(stream: Writable): Promise<void> {
  if (stream.writableLength === 0 || !stream.writable) return Promise.resolve();
  return new Promise((resolve) => stream.write('', () => resolve()));
}
