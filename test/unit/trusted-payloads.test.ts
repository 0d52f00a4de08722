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

test.each([
  ['an empty one', []],
  ['a block of an unknown type', [{ type: 'video', url: 'x' }]],
  ['a block with a surplus field', [{ ...text('x'), surplus: true }]],
  ['a text that is none', [{ type: 'text', text: 1 }]],
])('the content of a message is what others wrote, and is checked all the same: %s', (_, content) => {
  const broken = { ...message(1, 'user', [text('x')]), content };
  const batch = { writes: [{ kind: 'message.insert', message: broken } as never], emit: [] };
  expect(() => prepareBatch(batch, true)).toThrow(InvalidMessageError);
});

test('its ids and metadata are stored as they are; checked they are refused', () => {
  const odd = { ...message(1, 'user', [text('x')]), turn_id: 'none' };
  const batch = { writes: [{ kind: 'message.insert', message: odd } as never], emit: [] };
  expect(() => prepareBatch(batch)).toThrow(InvalidMessageError);
  expect(prepareBatch(batch, true).writes).toHaveLength(1);
});

test('an event that names a later one as its parent is refused all the same', () => {
  expect(() => prepareBatch({ emit: [{ ...surplus, parent: 3 }] }, true)).toThrow(EventValidationError);
});
