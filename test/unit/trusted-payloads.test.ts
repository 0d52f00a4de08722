// What a journal leaves out that trusts the server's own events, and what it never does (02 §2).
import { expect, test } from 'vitest';
import { prepareBatch } from '#core/policy/journal/prepare.ts';
import { EventValidationError, InvalidMessageError } from '#core/ports/journal-writer.ts';
import type { EventDraft } from '#protocol/event.ts';
import { message, text } from '../support/messages.ts';

const surplus: EventDraft = {
  type: 'routing.policy_invalid',
  session_id: 'system',
  turn_id: null,
  parent: null,
  actor: { kind: 'system' },
  payload: { policy_path: 1, surplus: true },
} as unknown as EventDraft;

test('payloads are stored as they are; checked they are refused', () => {
  expect(() => prepareBatch({ emit: [surplus] })).toThrow(EventValidationError);
  const { emit } = prepareBatch({ emit: [surplus] }, true);
  expect(emit).toMatchObject([{ kind: 'event', payload_json: '{"policy_path":1,"surplus":true}' }]);
});

test('a message holds what others wrote: it is checked all the same', () => {
  const empty = { ...message(1, 'user', [text('x')]), content: [] };
  const batch = { writes: [{ kind: 'message.insert', message: empty } as never], emit: [] };
  expect(() => prepareBatch(batch, true)).toThrow(InvalidMessageError);
});

test('an event that names a later one as its parent is refused all the same', () => {
  expect(() => prepareBatch({ emit: [{ ...surplus, parent: 3 }] }, true)).toThrow(EventValidationError);
});
