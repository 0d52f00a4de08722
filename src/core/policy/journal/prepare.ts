// What a batch must satisfy before its transaction opens: known types, strict payloads, storable messages (02 §2).
import type { z } from 'zod';
import { type Batch, EventValidationError, InvalidMessageError, UnknownEventTypeError } from '#protocol/batch.ts';
import type { Transient } from '#protocol/delta.ts';
import { CATALOG, type EventDraft, type EventType } from '#protocol/event.ts';
import { MessageSchema, type StoredMessage } from '#protocol/message.ts';
import { messageViolations } from './message-rules.ts';

export interface PreparedDraft {
  readonly kind: 'event';
  readonly draft: EventDraft;
  /** Serialised here once; stored and published as it is. */
  readonly payload_json: string;
}
export interface PreparedTransient {
  readonly kind: 'transient';
  readonly transient: Transient;
}
export interface PreparedBatch {
  readonly writes: NonNullable<Batch['writes']>;
  /** At the places of `Batch.emit`, so that a numeric parent still points right. */
  readonly emit: readonly (PreparedDraft | PreparedTransient)[];
}

/**
 * Throws `UnknownEventTypeError`, `EventValidationError` or `InvalidMessageError`.
 * @param trusted leaves out the schemas of payloads: they are made here and typed, and checking them takes 5 % of a turn's
 * processor time. Messages hold what others wrote and are always checked.
 */
export function prepareBatch(batch: Batch, trusted = false): PreparedBatch {
  const writes = batch.writes ?? [];
  for (const write of writes) if (write.kind === 'message.insert') checkMessage(write.message);
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

function checkMessage({ provider_raw, ...message }: StoredMessage): void {
  const parsed = MessageSchema.safeParse(message);
  const violations = [
    ...(parsed.success ? [] : issueLines(parsed.error)),
    ...messageViolations({ ...message, provider_raw }),
  ];
  if (violations.length > 0) throw new InvalidMessageError(violations);
}

function issueLines(error: z.ZodError): string[] {
  return error.issues.map((issue) => `${issue.path.join('.')}: ${issue.message}`);
}
