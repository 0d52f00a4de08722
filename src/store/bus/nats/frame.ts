// What a node tells the others of a tree, as bytes: who has no access to the database can neither make nor change it (16 §6.2).
import { createHash, timingSafeEqual } from 'node:crypto';
import { z } from 'zod';
import { readJson } from '#core/policy/parsing/json.ts';
import type { Limits } from '#core/policy/parsing/text-limits.ts';
import type { Delta, Transient } from '#protocol/delta.ts';
import { ActorSchema, type Event, SensitivitySchema } from '#protocol/event.ts';
import {
  CountSchema,
  EventIdSchema,
  MessageIdSchema,
  SessionIdSchema,
  TimeSchema,
  TurnIdSchema,
} from '#protocol/scalars.ts';

// The form of a frame. Loose where a newer node may add something; what is put into a client's frame as it stands is exact.

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
   * Left out because it is large: content of the message with this id, as it is stored, or a tool's input, as its
   * parts gave it.
   */
  readonly from?: 'store' | 'parts';
}
export type FrameItem = EventItem | TransientItem;

export interface FrameBody {
  readonly v: 1;
  readonly epoch: number;
  /** Of the commit, or of the last one before. */
  readonly seq: number;
  /** Counts the frames of the tree within the epoch. */
  readonly n: number;
  /** All that a commit publishes; transient items alone; messages in mid-stream as they stand, for who has missed their start. */
  readonly kind: 'commit' | 'between' | 'said';
  /** False: not all items of the commit could travel; it is to be read from the store. */
  readonly whole: boolean;
  readonly items: readonly FrameItem[];
}

/** Of a frame as it travels. */
export const MAX_FRAME_BYTES = 512 * 1024;
const SEAL_BYTES = 16;
/** As deep as what a model wrote may be, and the frame around it. */
const LIMITS: Limits = { bytes: MAX_FRAME_BYTES, depth: 120, nodes: 250_000 };

interface Seals {
  /** @param subject a frame says nothing on another one */
  seal(subject: string, text: string): Buffer;
  /** Null for what is too large, was made by a stranger, or is of no known form. Never throws. */
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
      // As it came: a newer node may say more than this one knows.
      return frame.success ? (json.value as FrameBody) : null;
    },
  };
}

const BLOCK_BYTES = 64;

/**
 * HMAC-SHA-256 (RFC 2104) of both parts together. The key's share of the work is done once: `createHmac` takes four
 * times as long for a short text as this does.
 */
export function createHmacFor(key: Buffer): (head: string, body: Uint8Array) => Buffer {
  const block = Buffer.alloc(BLOCK_BYTES);
  (key.length > BLOCK_BYTES ? createHash('sha256').update(key).digest() : key).copy(block);
  const inner = createHash('sha256').update(block.map((byte) => byte ^ 0x36));
  const outer = createHash('sha256').update(block.map((byte) => byte ^ 0x5c));
  return (head, body) => outer.copy().update(inner.copy().update(head).update(body).digest()).digest();
}
