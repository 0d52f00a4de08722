// What a client subscribes to: the same fields by frame, by URL and over SSE (06 §3).
import { z } from 'zod';
import { TRANSIENT_TYPES } from '#protocol/delta.ts';
import { EVENT_TYPES, type EventType } from '#protocol/event.ts';
import { EventIdSchema } from '#protocol/scalars.ts';
import { flag, nameList, parseOrThrow } from '../params.ts';

export interface Subscription {
  /** Null = every type of both families. */
  readonly types: ReadonlySet<string> | null;
  readonly include_worker_sessions: boolean;
  /** Exclusive resume cursor. */
  readonly since: string | null;
  readonly snapshot: boolean;
}

export const STREAM_TYPES = [...EVENT_TYPES, ...TRANSIENT_TYPES] as const;

const CHAT_EVENTS = [
  'session.ended',
  'turn.started',
  'turn.resumed',
  'turn.completed',
  'turn.failed',
  'turn.cancelled',
  'route.decided',
  'llm.call_started',
  'llm.call_completed',
  'llm.call_failed',
  'tool.called',
  'tool.completed',
  'tool.failed',
  'tool.input_invalid',
  'tool.confirmation_requested',
  'tool.confirmation_resolved',
  'delegate.started',
  'delegate.completed',
  'delegate.failed',
  'memory.updated',
  'budget.warning',
  'budget.exceeded',
] as const satisfies readonly EventType[];

/** What a chat window shows. */
const PRESETS = { chat: new Set<string>([...TRANSIENT_TYPES, ...CHAT_EVENTS]) } as const;

const PresetSchema = z.enum(['chat']);
const TypesSchema = z.array(z.enum(STREAM_TYPES)).min(1, 'must name at least one type');
const EXCLUSIVE = { path: ['preset'], message: 'cannot stand together with types' };

/** The client's one frame. */
const SubscribeFrameSchema = z
  .strictObject({
    type: z.literal('subscribe'),
    types: TypesSchema.nullish(),
    preset: PresetSchema.nullish(),
    include_worker_sessions: z.boolean().nullish(),
    since: EventIdSchema.nullish(),
    snapshot: z.boolean().nullish(),
    token: z.string().nullish(),
  })
  .refine((f) => (f.types ?? null) === null || (f.preset ?? null) === null, EXCLUSIVE);

/** The same fields in a URL; a token never stands there. */
export const SubscribeQueryFields = {
  types: nameList(STREAM_TYPES).optional().describe('Comma-separated types of events.'),
  preset: PresetSchema.optional().describe('Types under one name.'),
  include_worker_sessions: flag(false, 'Events of worker sessions too.'),
  since: EventIdSchema.optional().describe('Events above this id.'),
  snapshot: flag(false, 'A snapshot first.'),
};
const SubscribeQuerySchema = z
  .strictObject(SubscribeQueryFields)
  .refine((q) => q.types === undefined || q.preset === undefined, EXCLUSIVE);

/** Throws `validation_error`. */
export function parseFrameSubscription(frame: unknown): Subscription & { readonly token: string | null } {
  const fields = parseOrThrow(SubscribeFrameSchema, frame);
  return { ...toSubscription(fields), token: fields.token ?? null };
}

/** Throws `validation_error`. */
export function parseQuerySubscription(query: unknown): Subscription {
  return toSubscription(parseOrThrow(SubscribeQuerySchema, query));
}

interface Fields {
  readonly types?: readonly string[] | null | undefined;
  readonly preset?: 'chat' | null | undefined;
  readonly include_worker_sessions?: boolean | null | undefined;
  readonly since?: string | null | undefined;
  readonly snapshot?: boolean | null | undefined;
}

function toSubscription(fields: Fields): Subscription {
  const listed = fields.types == null ? null : new Set(fields.types);
  return {
    types: fields.preset == null ? listed : PRESETS[fields.preset],
    include_worker_sessions: fields.include_worker_sessions ?? false,
    since: fields.since ?? null,
    snapshot: fields.snapshot ?? false,
  };
}
