// Counts that a provider reports, and answers that are none: what is booked for them (08 §4.1, 11.6, 19 §2.2).
import { describe, expect, test } from 'vitest';
import { startGateway } from './world.ts';

type Usage = Readonly<Record<string, unknown>>;
interface Wire {
  readonly path: string;
  readonly request: object;
  answer(usage: Usage, stream: boolean): string;
  usage(input: unknown, cached: unknown, output: unknown): Usage;
}
const event = (data: object) => `data: ${JSON.stringify(data)}\n\n`;
const WIRES: Readonly<Record<'messages' | 'chat' | 'responses', Wire>> = {
  messages: {
    path: '/v1/messages',
    request: { model: 'claude-haiku-4-5', max_tokens: 100, messages: [{ role: 'user', content: 'x'.repeat(4000) }] },
    usage: (input_tokens, cache_read_input_tokens, output_tokens) => ({
      input_tokens,
      cache_read_input_tokens,
      output_tokens,
    }),
    answer(usage, stream) {
      const message = { type: 'message', model: 'claude-haiku-4-5', content: [{ type: 'text', text: 'hello' }] };
      if (!stream) return JSON.stringify({ ...message, stop_reason: 'end_turn', usage });
      return [
        event({ type: 'message_start', message: { ...message, content: [], usage } }),
        event({ type: 'content_block_delta', delta: { type: 'text_delta', text: 'hello' } }),
        event({ type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage }),
        event({ type: 'message_stop' }),
      ].join('');
    },
  },
  chat: {
    path: '/v1/chat/completions',
    request: { model: 'gpt-5', messages: [{ role: 'user', content: 'x'.repeat(4000) }] },
    usage: (prompt_tokens, cached_tokens, completion_tokens) => ({
      prompt_tokens,
      completion_tokens,
      prompt_tokens_details: { cached_tokens },
    }),
    answer(usage, stream) {
      const choice = (said: object) => ({
        model: 'gpt-5',
        choices: [{ index: 0, ...said, finish_reason: 'stop' }],
        usage,
      });
      if (!stream) return JSON.stringify(choice({ message: { role: 'assistant', content: 'hello' } }));
      return `${event(choice({ delta: { content: 'hello' } }))}data: [DONE]\n\n`;
    },
  },
  responses: {
    path: '/v1/responses',
    request: { model: 'gpt-5', input: 'x'.repeat(4000) },
    usage: (input_tokens, cached_tokens, output_tokens) => ({
      input_tokens,
      output_tokens,
      input_tokens_details: { cached_tokens },
    }),
    answer(usage, stream) {
      const output = [{ type: 'message', content: [{ type: 'output_text', text: 'hello' }] }];
      const response = { id: 'resp_1', status: 'completed', model: 'gpt-5', output, usage };
      if (!stream) return JSON.stringify(response);
      const delta = event({ type: 'response.output_text.delta', delta: 'hello' });
      return `${delta}${event({ type: 'response.completed', response })}`;
    },
  },
};
const EACH = Object.entries(WIRES).flatMap(([name, wire]) => [true, false].map((stream) => ({ name, wire, stream })));

describe.each(EACH)('$name, stream: $stream', ({ wire, stream }) => {
  async function booked(usage: Usage) {
    const world = await startGateway(() => ({ raw: wire.answer(usage, stream) }));
    const response = await world.post(wire.path, { ...wire.request, stream });
    expect([response.status, await response.text()]).toEqual([200, world.provider.sent[0]]);
    const { payload } = await world.server.event('llm.call_completed');
    const warned = world.server.log.filter(({ msg }) => String(msg).includes('impossible counts'));
    return { payload, faults: warned.flatMap((line) => line.faults as string[]) };
  }

  // Promise 19.34: an impossible input count beside a valid cached count is estimated.
  test.each([[-100], [2 ** 53], [1.5], ['100']])(
    'an input count of %j beside a valid cached count is estimated, with a warning',
    async (input) => {
      const { payload, faults } = await booked(wire.usage(input, 50, 20));
      expect(payload).toMatchObject({ cached_input_tokens: 0, output_tokens: 20, usage_estimated: true });
      expect(payload.input_tokens).toBeGreaterThanOrEqual(1000);
      expect(faults).toEqual([expect.stringContaining('the reported value is no number of tokens')]);
    },
  );

  test('an output count that cannot be true is estimated beside a valid prompt', async () => {
    const { payload, faults } = await booked(wire.usage(100, 50, -3));
    const input_tokens = wire === WIRES.messages ? 100 : 50;
    expect(payload).toMatchObject({ input_tokens, cached_input_tokens: 50, usage_estimated: true });
    expect(payload.output_tokens).toBeGreaterThan(0);
    expect(faults).toEqual([expect.stringMatching(/^output_tokens: the reported value/)]);
  });
});

test('later counts without rounds replace rounds that were reported before the answer', async () => {
  const early = { input_tokens: 100, output_tokens: 1 };
  const message = { type: 'message', model: 'claude-haiku-4-5', content: [] };
  const raw = [
    event({ type: 'message_start', message: { ...message, usage: { ...early, iterations: [early, early] } } }),
    event({ type: 'content_block_delta', delta: { type: 'text_delta', text: 'hello' } }),
    event({ type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 50 } }),
    event({ type: 'message_stop' }),
  ].join('');
  const world = await startGateway(() => ({ raw }));
  await (await world.post(WIRES.messages.path, { ...WIRES.messages.request, stream: true })).text();
  const { payload } = await world.server.event('llm.call_completed');
  expect(payload).toMatchObject({ input_tokens: 200, output_tokens: 50, usage_estimated: false, rounds: [] });
  // Fixture A: $1 and $5 per million.
  expect(payload.cost_usd).toBe('0.00045');
});

test.each([true, false])('DeepSeek names cached tokens beside the prompt (stream: %s)', async (stream) => {
  const usage = {
    prompt_tokens: 1000,
    completion_tokens: 20,
    prompt_cache_hit_tokens: 800,
    prompt_cache_miss_tokens: 200,
  };
  const world = await startGateway(() => ({ raw: WIRES.chat.answer(usage, stream) }));
  await (await world.post(WIRES.chat.path, { ...WIRES.chat.request, stream })).text();
  const { payload } = await world.server.event('llm.call_completed');
  expect(payload).toMatchObject({
    input_tokens: 200,
    cached_input_tokens: 800,
    output_tokens: 20,
    usage_estimated: false,
  });
});

describe('an answer that is none', () => {
  // Promise 19.34: a redirect fails the call.
  test.each(EACH)('a redirect is passed on and fails the call ($name, stream: $stream)', async ({ wire, stream }) => {
    for (const status of [302, 307]) {
      const world = await startGateway(() => ({
        status,
        headers: { location: 'https://elsewhere.example/' },
        raw: wire.answer(wire.usage(1, 0, 1), stream),
      }));
      const target = `${world.server.url}${wire.path}`;
      const response = await fetch(target, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ ...wire.request, stream }),
        redirect: 'manual',
      });
      expect([response.status, await response.text()]).toEqual([status, world.provider.sent[0]]);
      const { payload } = await world.server.event('llm.call_failed');
      expect(payload).toMatchObject({
        error_class: 'other',
        error_message_redacted: `the provider answered ${status}`,
      });
      expect(world.server.events.some(({ type }) => type === 'llm.call_completed')).toBe(false);
    }
  });

  // Promise 19.34: an error of status 200 fails the call.
  test.each(EACH)(
    'an error in an answer of status 200 fails the call ($name, stream: $stream)',
    async ({ wire, stream }) => {
      const error = { type: 'error', error: { type: 'overloaded_error', message: 'busy' } };
      const raw = stream ? event(error) : JSON.stringify(error);
      const world = await startGateway(() => ({ raw }));
      const response = await world.post(wire.path, { ...wire.request, stream });
      expect([response.status, await response.text()]).toEqual([200, raw]);
      const { payload } = await world.server.event('llm.call_failed');
      expect(payload).toMatchObject({
        error_class: 'rate_limit',
        error_message_redacted: 'the provider answered 200 (overloaded_error)',
      });
      expect(world.server.events.some(({ type }) => type === 'llm.call_completed')).toBe(false);
    },
  );
});
