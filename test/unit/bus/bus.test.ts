// The live bus: order, isolation of failures, and the fold of messages in mid-stream.
import { describe, expect, test } from 'vitest';
import type { Published } from '#core/ports/live-bus.ts';
import { type Logger, silentLogger } from '#core/ports/logger.ts';
import type { Delta, Transient } from '#protocol/delta.ts';
import type { Event } from '#protocol/event.ts';
import { createBus } from '#store/bus/memory/local-bus.ts';

const TOOL = 'tu_01J00000000000000000000000';

function transient(delta: Delta, session = 'sess_a'): Published {
  return { kind: 'transient', transient: { session_id: session, turn_id: 't', timestamp: 1, delta } };
}
function start(message = 'm1', session = 'sess_a'): Published {
  const payload = { message_id: message, role: 'assistant', model: 'x:y', content: [], open_tool_inputs: [] } as const;
  return transient({ type: 'message.start', payload }, session);
}
function text(index: number, chunk: string, message = 'm1'): Published {
  return transient({ type: 'text.delta', payload: { message_id: message, content_block_index: index, text: chunk } });
}
function event(type: string, session = 'sess_a'): Published {
  const stored = { id: 'e1', type, session_id: session } as unknown as Event;
  return { kind: 'event', event: stored, payload_json: '{}' };
}
function only(open: readonly Transient[]) {
  expect(open).toHaveLength(1);
  const { delta } = open[0]!;
  if (delta.type !== 'message.start') throw new Error('not a message.start');
  return delta.payload;
}

describe('delivery', () => {
  test('calls every subscriber once with the whole batch, in order of subscription', () => {
    const bus = createBus(silentLogger);
    const seen: [string, readonly Published[]][] = [];
    bus.subscribe('one', (items) => seen.push(['one', items]));
    bus.subscribe('two', (items) => seen.push(['two', items]));
    const batch = [event('turn.started'), start()];
    bus.publish(batch);
    expect(seen).toEqual([
      ['one', batch],
      ['two', batch],
    ]);
  });

  // Promise 02.8: A subscriber that throws is logged and disturbs nobody else.
  test('a subscriber that throws is logged with the event ids and disturbs nobody else', () => {
    const warnings: unknown[] = [];
    const log: Logger = { ...silentLogger, warn: (fields) => warnings.push(fields) };
    const bus = createBus(log);
    let reached = 0;
    bus.subscribe('broken', () => {
      throw new Error('boom');
    });
    bus.subscribe('sound', () => {
      reached += 1;
    });
    bus.publish([event('turn.started')]);
    expect(reached).toBe(1);
    expect(warnings).toEqual([{ subscriber: 'broken', event_ids: ['e1'], error: 'Error: boom' }]);
  });

  test('an unsubscribed subscriber hears nothing more', () => {
    const bus = createBus(silentLogger);
    let calls = 0;
    const leave = bus.subscribe('one', () => {
      calls += 1;
    });
    bus.publish([start()]);
    leave();
    bus.publish([start()]);
    expect(calls).toBe(1);
  });
});

describe('messages in mid-stream', () => {
  test('hold the text, thinking and finished tool calls so far at their block indices', () => {
    const bus = createBus(silentLogger);
    const ids = { message_id: 'm1', content_block_index: 2, tool_use_id: TOOL };
    bus.publish([
      start(),
      transient({
        type: 'thinking.delta',
        payload: { message_id: 'm1', content_block_index: 0, text: 'hm', signature: null },
      }),
      transient({
        type: 'thinking.delta',
        payload: { message_id: 'm1', content_block_index: 0, text: 'm', signature: 's1' },
      }),
      text(1, 'Hel'),
      text(1, 'lo'),
      transient({ type: 'tool.use_start', payload: { ...ids, tool_name: 'grep' } }),
      transient({ type: 'tool.use_end', payload: { ...ids, final_input: { a: 1 }, input_error: null } }),
    ]);
    expect(only(bus.openMessages(() => true)).content).toEqual([
      { type: 'thinking', text: 'hmm', signature: 's1' },
      { type: 'text', text: 'Hello' },
      { type: 'tool_use', id: TOOL, name: 'grep', input: { a: 1 } },
    ]);
  });

  test('hold the raw input of a tool call that is still being written', () => {
    const bus = createBus(silentLogger);
    const ids = { message_id: 'm1', content_block_index: 0, tool_use_id: TOOL };
    bus.publish([start(), transient({ type: 'tool.use_start', payload: { ...ids, tool_name: 'grep' } })]);
    bus.publish([transient({ type: 'tool.use_input_delta', payload: { ...ids, partial_json: '{"pat' } })]);
    bus.publish([transient({ type: 'tool.use_input_delta', payload: { ...ids, partial_json: 'tern"' } })]);
    const payload = only(bus.openMessages(() => true));
    expect(payload.content).toEqual([]);
    expect(payload.open_tool_inputs).toEqual([
      { content_block_index: 0, tool_use_id: TOOL, tool_name: 'grep', partial_json: '{"pattern"' },
    ]);
  });

  test('are gone after message.complete, after the end of their turn, and outside the scope', () => {
    const bus = createBus(silentLogger);
    const usage = {} as Extract<Delta, { type: 'message.complete' }>['payload']['usage'];
    bus.publish([start('m1', 'sess_a'), start('m2', 'sess_b'), start('m3', 'sess_c')]);
    const payload = { message_id: 'm1', stop_reason: 'end_turn', final_content: [], usage, latency_ms: 1 } as const;
    bus.publish([transient({ type: 'message.complete', payload }), event('turn.failed', 'sess_b')]);
    expect(bus.openMessages(() => true).map((t) => t.session_id)).toEqual(['sess_c']);
    expect(bus.openMessages((id) => id !== 'sess_c')).toEqual([]);
  });
});
