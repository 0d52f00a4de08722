// The form of a frame. Loose where a newer node may add something; what is put into a client's frame as it stands is exact.
import { z } from 'zod';
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

export const FrameSchema = z.looseObject({
  v: z.literal(1),
  epoch: CountSchema,
  seq: CountSchema,
  n: CountSchema,
  kind: z.enum(['commit', 'between', 'said']),
  whole: z.boolean(),
  items: z.array(z.union([EventItemSchema, TransientItemSchema])).max(MAX_ITEMS),
});

export interface EventItem {
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
