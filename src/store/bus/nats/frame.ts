// Frames: the publications of one tree as sealed bytes. Only a node with access to the database can make or change one (16 §6.2).
import { createHash, timingSafeEqual } from 'node:crypto';
import { z } from 'zod';
import { readJson } from '#core/policy/parsing/json.ts';
import type { Limits } from '#core/policy/parsing/text-limits.ts';
import type { Published } from '#core/ports/live-bus.ts';
import type { Delta, OpenToolInput, Transient } from '#protocol/delta.ts';
import { ActorSchema, type Event, SensitivitySchema } from '#protocol/event.ts';
import type { ContentBlock } from '#protocol/message.ts';
import {
  CountSchema,
  EventIdSchema,
  MessageIdSchema,
  SessionIdSchema,
  TimeSchema,
  TurnIdSchema,
} from '#protocol/scalars.ts';

// The form of a frame. Loose where a newer node may add something, exact where a part is copied into a client's frame.

/** Content blocks of one message; an index is also the length of a list. */
const MAX_BLOCKS = 10_000;
const MAX_ITEMS = 50_000;

const object = z.record(z.string(), z.unknown());
const BlocksSchema = z.array(z.looseObject({ type: z.string() })).max(MAX_BLOCKS);

const EventItemSchema = z.looseObject({
  event: z.looseObject({
    id: EventIdSchema,
    timestamp: TimeSchema,
    session_id: SessionIdSchema,
    turn_id: TurnIdSchema.nullable(),
    parent_event_id: EventIdSchema.nullable(),
    type: z.string().regex(/^[a-z_]+\.[a-z_]+$/),
    actor: ActorSchema,
    sensitivity: SensitivitySchema,
    payload: object,
  }),
});

const place = { message_id: MessageIdSchema, content_block_index: z.int().min(0).max(MAX_BLOCKS) };
const tool = { ...place, tool_use_id: z.string() };
const delta = <T extends Delta['type'], P extends z.ZodRawShape>(type: T, payload: P) =>
  z.looseObject({ type: z.literal(type), payload: z.looseObject(payload) });

const DeltaSchema = z.discriminatedUnion('type', [
  delta('message.start', {
    message_id: MessageIdSchema,
    model: z.string(),
    content: BlocksSchema,
    open_tool_inputs: z
      .array(z.looseObject({ ...tool, tool_name: z.string(), partial_json: z.string() }))
      .max(MAX_BLOCKS),
  }),
  delta('text.delta', { ...place, text: z.string() }),
  delta('thinking.delta', { ...place, text: z.string(), signature: z.string().nullable() }),
  delta('tool.use_start', { ...tool, tool_name: z.string() }),
  delta('tool.use_input_delta', { ...tool, partial_json: z.string() }),
  delta('tool.use_end', { ...tool, final_input: object, input_error: z.string().nullable() }),
  delta('message.complete', {
    message_id: MessageIdSchema,
    stop_reason: z.string(),
    final_content: BlocksSchema,
    usage: object,
    latency_ms: z.number(),
  }),
  delta('message.appended', {
    message: z.looseObject({ id: MessageIdSchema, role: z.string(), content: BlocksSchema }),
  }),
]);

const TransientItemSchema = z.looseObject({
  transient: z.looseObject({
    session_id: SessionIdSchema,
    turn_id: TurnIdSchema.nullable(),
    timestamp: z.number().min(0).max(8.64e15),
    delta: DeltaSchema,
  }),
  from: z.enum(['store', 'parts']).optional(),
});

const FrameSchema = z.looseObject({
  v: z.literal(1),
  epoch: CountSchema,
  seq: CountSchema,
  n: CountSchema,
  kind: z.enum(['commit', 'between', 'said']),
  whole: z.boolean(),
  items: z.array(z.union([EventItemSchema, TransientItemSchema])).max(MAX_ITEMS),
});

interface EventItem {
  readonly event: Event;
}
export interface TransientItem {
  readonly transient: Transient;
  /**
   * Set where large content is left out: `store` = the stored message with this id has it; `parts` = the deltas of a
   * tool's input have it.
   */
  readonly from?: 'store' | 'parts';
}
export type FrameItem = EventItem | TransientItem;

export interface FrameBody {
  readonly v: 1;
  readonly epoch: number;
  /** Number of the commit, or of the last commit before these items. */
  readonly seq: number;
  /** Counts the frames of the tree within the epoch. */
  readonly n: number;
  /** `commit`: all items of a commit. `between`: deltas alone. `said`: the open messages so far, for nodes that missed their start. */
  readonly kind: 'commit' | 'between' | 'said';
  /** False: not all items of the commit could travel; it is to be read from the store. */
  readonly whole: boolean;
  readonly items: readonly FrameItem[];
}

/** Maximum bytes of a sealed frame. */
export const MAX_FRAME_BYTES = 512 * 1024;
const SEAL_BYTES = 16;
/** As deep as what a model wrote may be, and the frame around it. */
const LIMITS: Limits = { bytes: MAX_FRAME_BYTES, depth: 120, nodes: 250_000 };

interface Seals {
  /** @param subject a frame is invalid on another subject */
  seal(subject: string, text: string): Buffer;
  /** Null for a frame that is too large, has another seal, or has no known form. Never throws. */
  open(subject: string, data: Uint8Array): FrameBody | null;
}

/** @param key known to the nodes of one cluster */
export function createSeals(key: Buffer): Seals {
  const hmac = createHmacFor(key);
  const createSeal = (subject: string, body: Uint8Array) => hmac(`${subject}\n`, body).subarray(0, SEAL_BYTES);
  return {
    seal(subject, text) {
      const size = Buffer.byteLength(text);
      const bytes = Buffer.allocUnsafe(SEAL_BYTES + size);
      bytes.write(text, SEAL_BYTES, size, 'utf8');
      createSeal(subject, bytes.subarray(SEAL_BYTES)).copy(bytes);
      return bytes;
    },
    open(subject, data) {
      if (data.length <= SEAL_BYTES || data.length > MAX_FRAME_BYTES) return null;
      const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
      const body = bytes.subarray(SEAL_BYTES);
      if (!timingSafeEqual(createSeal(subject, body), bytes.subarray(0, SEAL_BYTES))) return null;
      const json = readJson(body.toString('utf8'), LIMITS);
      if (!json.ok) return null;
      const frame = FrameSchema.safeParse(json.value);
      // Kept as received: a newer node may add fields that this one does not know.
      if (frame.success) return json.value as FrameBody;
      return null;
    },
  };
}

const BLOCK_BYTES = 64;

/**
 * HMAC-SHA-256 (RFC 2104) of both parts together. The blocks of the key are hashed once: `createHmac` takes four
 * times as long for a short text.
 */
export function createHmacFor(key: Buffer): (head: string, body: Uint8Array) => Buffer {
  const block = Buffer.alloc(BLOCK_BYTES);
  (key.length > BLOCK_BYTES ? createHash('sha256').update(key).digest() : key).copy(block);
  const inner = createHash('sha256').update(block.map((byte) => byte ^ 0x36));
  const outer = createHash('sha256').update(block.map((byte) => byte ^ 0x5c));
  return (head, body) => outer.copy().update(inner.copy().update(head).update(body).digest()).digest();
}

// A publication usually fits one frame. Large content is left out where other nodes can read it, else sent in parts (16 §6.6).

/** Fields of a frame beside its items; `n` is drawn for each frame. */
export type Head = Pick<FrameBody, 'epoch' | 'seq' | 'kind'> & { readonly next: () => number };

/** Bytes left for the items of a frame. */
const ROOM = MAX_FRAME_BYTES - 1024;
/** Characters of one part; a character takes at most six bytes of JSON. */
const PART = 64 * 1024;

interface Piece {
  readonly text: string;
  readonly bytes: number;
  readonly event: boolean;
}

/** Texts of frames, each within `MAX_FRAME_BYTES` once it is sealed. */
export function packItems(items: readonly Published[], head: Head): string[] {
  const pieces = items.map(toPiece);
  if (sumSizes(pieces) <= ROOM) return [frame(head, pieces)];
  const small = items.flatMap((item, i) => (pieces[i]!.bytes <= PART ? [pieces[i]!] : smaller(item).map(toPiece)));
  if (head.kind === 'commit') return encodeCommit(small, head);
  return inTurn(small, head);
}

/** All events in one frame, with the items between them. Without events, the commit is read from the store. */
function encodeCommit(pieces: readonly Piece[], head: Head): string[] {
  const from = pieces.findIndex(({ event }) => event);
  const to = pieces.findLastIndex(({ event }) => event) + 1;
  const commit = from < 0 ? [] : pieces.slice(from, to);
  const whole = sumSizes(commit) <= ROOM;
  return [
    ...inTurn(pieces.slice(0, Math.max(0, from)), { ...head, kind: 'between', seq: head.seq - 1 }),
    frame(head, whole ? commit : [], whole),
    ...inTurn(pieces.slice(to), { ...head, kind: 'between' }),
  ];
}

function inTurn(pieces: readonly Piece[], head: Head): string[] {
  const frames: string[] = [];
  let open: Piece[] = [];
  let size = 0;
  for (const piece of pieces) {
    if (size + piece.bytes + 1 > ROOM && open.length > 0) {
      frames.push(frame(head, open));
      open = [];
      size = 0;
    }
    open.push(piece);
    size += piece.bytes + 1;
  }
  if (open.length > 0) frames.push(frame(head, open));
  return frames;
}

function frame({ epoch, seq, kind, next }: Head, pieces: readonly Piece[], whole = true): string {
  const items = pieces.map(({ text }) => text).join(',');
  return `{"v":1,"epoch":${epoch},"seq":${seq},"n":${next()},"kind":"${kind}","whole":${whole},"items":[${items}]}`;
}

function sumSizes(pieces: readonly Piece[]): number {
  return pieces.reduce((sum, { bytes }) => sum + bytes + 1, 0);
}

type Sent = Published & { readonly from?: 'store' | 'parts' };

function toPiece(item: Sent): Piece {
  const text = encodeItem(item);
  return { text, bytes: Buffer.byteLength(text), event: item.kind === 'event' };
}

/** The payload is sent as the stored text. */
function encodeItem(item: Sent): string {
  if (item.kind === 'event') {
    const { payload: _, ...envelope } = item.event;
    return `{"event":${JSON.stringify(envelope).slice(0, -1)},"payload":${item.payload_json}}}`;
  }
  const { transient, from } = item;
  return JSON.stringify({ transient, from });
}

/** The item, split into items that fit into a frame; an event is never split. */
function smaller(item: Published): readonly Sent[] {
  if (item.kind === 'event') return [item];
  const { transient } = item;
  const { delta } = transient;
  const toItem = (each: Delta): Sent => ({ kind: 'transient', transient: { ...transient, delta: each } });
  switch (delta.type) {
    case 'message.start':
      return inDeltas(transient).flatMap((each): readonly Sent[] => {
        const part: Published = { kind: 'transient', transient: each };
        if (each.delta.type === 'message.start') return [part];
        return smaller(part);
      });
    case 'text.delta':
      return parts(delta.payload.text).map((text) => toItem({ ...delta, payload: { ...delta.payload, text } }));
    case 'thinking.delta': {
      const { text, signature } = delta.payload;
      return parts(text).map((part, i, all) =>
        toItem({
          ...delta,
          payload: { ...delta.payload, text: part, signature: i === all.length - 1 ? signature : null },
        }),
      );
    }
    case 'tool.use_input_delta':
      return parts(delta.payload.partial_json).map((partial_json) =>
        toItem({ ...delta, payload: { ...delta.payload, partial_json } }),
      );
    case 'tool.use_end':
      return [{ ...toItem({ ...delta, payload: { ...delta.payload, final_input: {} } }), from: 'parts' }];
    case 'message.complete':
      return [{ ...toItem({ ...delta, payload: { ...delta.payload, final_content: [] } }), from: 'store' }];
    case 'message.appended': {
      const message = { ...delta.payload.message, content: [] };
      return [{ ...toItem({ ...delta, payload: { message } }), from: 'store' }];
    }
    default:
      return [item];
  }
}

/** Splits a message so far into an empty start and its deltas. */
function inDeltas(start: Transient): readonly Transient[] {
  if (start.delta.type !== 'message.start') return [start];
  const { message_id, content, open_tool_inputs } = start.delta.payload;
  const empty: Delta = { ...start.delta, payload: { ...start.delta.payload, content: [], open_tool_inputs: [] } };
  const deltas = content.flatMap((block, index) => blockInDeltas(block, { message_id, content_block_index: index }));
  const open = open_tool_inputs.flatMap((input) => openInDeltas(input, message_id));
  return [empty, ...deltas, ...open].map((delta) => ({ ...start, delta }));
}

type At = { readonly message_id: string; readonly content_block_index: number };

function blockInDeltas(block: ContentBlock, at: At): readonly Delta[] {
  const { type } = block;
  if (type === 'text') return [{ type: 'text.delta', payload: { ...at, text: block.text } }];
  if (type === 'thinking') {
    return [{ type: 'thinking.delta', payload: { ...at, text: block.text, signature: block.signature } }];
  }
  if (type !== 'tool_use') return [];
  const input = { ...at, tool_use_id: block.id, tool_name: block.name, partial_json: JSON.stringify(block.input) };
  const end = { ...at, tool_use_id: block.id, final_input: block.input, input_error: null };
  return [...openInDeltas(input, at.message_id), { type: 'tool.use_end', payload: end }];
}

function openInDeltas({ tool_name, partial_json, ...input }: OpenToolInput, message_id: string): readonly Delta[] {
  const at = { message_id, content_block_index: input.content_block_index, tool_use_id: input.tool_use_id };
  return [
    { type: 'tool.use_start', payload: { ...at, tool_name } },
    { type: 'tool.use_input_delta', payload: { ...at, partial_json } },
  ];
}

function parts(text: string): string[] {
  const found: string[] = [];
  for (let at = 0; at < text.length; at += PART) found.push(text.slice(at, at + PART));
  if (found.length === 0) return [''];
  return found;
}
