// The frame of a transient event: what is written by hand is the JSON of its parts (06 §4).
import { expect, test } from 'vitest';
import { transientFrame } from '#http/stream/frames.ts';
import { isoTime } from '#protocol/clock.ts';
import type { Delta, Transient } from '#protocol/delta.ts';

const AT = 1_700_000_000_123;
const transient = (session_id: string, turn_id: string | null, delta: Delta): Transient => ({
  session_id,
  turn_id,
  timestamp: AT,
  delta,
});
const textOf = (message_id: string, content_block_index: number, text: string): Delta => ({
  type: 'text.delta',
  payload: { message_id, content_block_index, text },
});
const shown = ({ session_id, turn_id, delta }: Transient, actor: string) => ({
  type: 'event',
  event: {
    id: null,
    timestamp: isoTime(AT),
    session_id,
    turn_id,
    parent_event_id: null,
    type: delta.type,
    actor,
    payload: delta.payload,
    sensitivity: null,
    transient: true,
  },
});

test('texts of several blocks, messages and sessions, in turn', () => {
  const deltas = ['plain', 'a "quote", a \\ and a \n', '\u2028 \ud800 é 中'].flatMap((text, i) => [
    transient('sess_root', 'turn_1', textOf('msg_1', 0, text)),
    transient('sess_root', 'turn_1', textOf('msg_1', 2, text)),
    transient('sess_worker', 'turn_2', textOf('msg_2', 0, text)),
    transient('sess_root', null, textOf(`msg_later_${i}`, 0, text)),
  ]);
  for (const one of deltas) {
    const frame = transientFrame(one, 'sess_root');
    const actor = one.session_id === 'sess_root' ? 'agent' : 'worker';
    expect(frame).toEqual({ type: 'event', id: null, text: JSON.stringify(shown(one, actor)) });
  }
});

test('a delta of another type', () => {
  const one = transient('sess_root', 'turn_1', {
    type: 'thinking.delta',
    payload: { message_id: 'msg_1', content_block_index: 0, text: '"', signature: null },
  });
  expect(transientFrame(one, 'sess_root').text).toBe(JSON.stringify(shown(one, 'agent')));
});
