// Checks a batch before its transaction: known types, strict payloads, storable messages (02 §2).
import { z } from 'zod';
import { isoTime } from '#protocol/clock.ts';
import type { Transient } from '#protocol/delta.ts';
import { CATALOG, type Event, type EventDraft, type EventType } from '#protocol/event.ts';
import {
  type Batch,
  EventValidationError,
  InvalidMessageError,
  UnknownEventTypeError,
} from '#protocol/journal-batch.ts';
import { MessageSchema, type StoredMessage } from '#protocol/message.ts';
import { messageViolations } from './message-rules.ts';

interface PreparedDraft {
  readonly kind: 'event';
  readonly draft: EventDraft;
  /** Serialised once here, then stored and published unchanged. */
  readonly payload_json: string;
}
interface PreparedTransient {
  readonly kind: 'transient';
  readonly transient: Transient;
}
export interface PreparedBatch {
  readonly writes: NonNullable<Batch['writes']>;
  /** Same positions as in `Batch.emit`, so that a numeric parent stays valid. */
  readonly emit: readonly (PreparedDraft | PreparedTransient)[];
}

/**
 * Throws `UnknownEventTypeError`, `EventValidationError` or `InvalidMessageError`.
 * @param trusted skips the schemas of what this server builds and types: payloads, 5 % of a turn's processor time, and ids
 * and metadata of messages, 1 %. The content of messages is what others wrote and is always checked.
 */
export function prepareBatch(batch: Batch, trusted = false): PreparedBatch {
  const writes = batch.writes ?? [];
  for (const write of writes) if (write.kind === 'message.insert') checkMessage(write.message, trusted);
  return { writes, emit: batch.emit.map((item, i) => prepareItem(item, i, batch.emit, trusted)) };
}

function prepareItem(
  item: EventDraft | Transient,
  index: number,
  all: Batch['emit'],
  trusted: boolean,
): PreparedDraft | PreparedTransient {
  if ('delta' in item) return { kind: 'transient', transient: item };
  if (!Object.hasOwn(CATALOG, item.type)) throw new UnknownEventTypeError(item.type);
  if (!trusted) checkPayload(item);
  if (typeof item.parent === 'number') {
    const parent = item.parent < index ? all[item.parent] : undefined;
    if (parent === undefined || 'delta' in parent) {
      throw new EventValidationError(item.type, [`parent: ${item.parent} is no earlier event of the batch`]);
    }
  }
  return { kind: 'event', draft: item, payload_json: JSON.stringify(item.payload) };
}

function checkPayload({ type, payload }: EventDraft): void {
  const parsed = CATALOG[type as EventType].payload.safeParse(payload);
  if (!parsed.success) throw new EventValidationError(type, issueLines(parsed.error));
}

const ContentSchema = z.object({ content: MessageSchema.shape.content });

function checkMessage({ provider_raw, ...message }: StoredMessage, trusted: boolean): void {
  const { error } = (trusted ? ContentSchema : MessageSchema).safeParse(message);
  const violations = messageViolations({ ...message, provider_raw });
  if (error !== undefined) violations.unshift(...issueLines(error));
  if (violations.length > 0) throw new InvalidMessageError(violations);
}

function issueLines(error: z.ZodError): string[] {
  return error.issues.map((issue) => `${issue.path.join('.')}: ${issue.message}`);
}

// An event as it is stored, from its draft and what the journal copies of its session (02 §1, §2).

/** The fields that events and cost facts copy from their session; all but the last two are fixed at its creation (01 §7.1). */
export interface SessionStamp {
  readonly parent_session_id: string | null;
  readonly root_session_id: string;
  readonly is_worker: boolean;
  readonly workspace_hash: string;
  /** '' = none, as in the ledger; likewise below. */
  readonly worker_name: string;
  readonly delegated_by_model: string;
  readonly delegation_tier: string;
  readonly door: string;
  readonly caller: string;
  readonly owner: string;
  readonly share: string;
}

/** Values that are set inside the transaction. `at` is Unix milliseconds; `stamp` is null for `system`. */
interface Settled {
  readonly id: Event['id'];
  readonly at: number;
  readonly parent: Event['parent_event_id'];
  readonly stamp: SessionStamp | null;
}

/** Every event of a worker session has the actor `worker`, whatever the actor of its draft. */
export function stampedEvent(draft: EventDraft, { id, at, parent, stamp }: Settled): Event {
  const kind = CATALOG[draft.type];
  return {
    id,
    timestamp: isoTime(at),
    session_id: draft.session_id,
    turn_id: draft.turn_id,
    parent_event_id: parent,
    type: draft.type,
    actor: stamp?.is_worker ? 'worker' : (draft.actor ?? kind.actor),
    payload: draft.payload,
    sensitivity: kind.sensitivity,
  };
}
