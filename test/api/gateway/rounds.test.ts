// A call of several samplings: each is priced by itself, streamed and whole alike (08 §4, 19 §2.2).
import { expect, test } from 'vitest';
import { startGateway } from './world.ts';

const OPUS = 'claude-opus-4-7';
const HAIKU = 'claude-haiku-4-5';
const rates = (input: string, output: string) => ({ input_per_mtok_usd: input, output_per_mtok_usd: output });
const PRICES = JSON.stringify({
  pricing_version: 'rounds',
  models: {
    'anthropic:claude-opus-4-7': {
      ...rates('5', '25'),
      cached_read_per_mtok_usd: '0.5',
      cache_write_per_mtok_usd: '6.25',
      cache_write_1h_per_mtok_usd: '10',
    },
    'anthropic:claude-haiku-4-5': {
      ...rates('1', '5'),
      long_context: [{ above_prompt_tokens: 100_000, ...rates('2', '10') }],
    },
    'openai:gpt-5': rates('1', '10'),
  },
});

function round(
  type: string,
  model: string | null,
  tokens: readonly [input: number, output: number],
  rest: object = {},
) {
  const [input_tokens, output_tokens] = tokens;
  return {
    type,
    model,
    input_tokens,
    output_tokens,
    cache_read_input_tokens: 0,
    cache_creation_input_tokens: 0,
    ...rest,
  };
}

interface Answer {
  /** The model that the first event, or the whole answer, names. */
  readonly started: string;
  readonly served: string;
  readonly iterations: readonly ReturnType<typeof round>[];
}

/** Of the last round at the top, as the provider says it: what is summed there stands in no bill. */
function answerOf({ started, served, iterations }: Answer, stream: boolean): string {
  const { input_tokens, output_tokens } = iterations.at(-1)!;
  const usage = { input_tokens, output_tokens, iterations };
  const message = { id: 'msg_1', type: 'message', role: 'assistant', content: [{ type: 'text', text: 'hi' }] };
  if (!stream) return JSON.stringify({ ...message, model: served, stop_reason: 'end_turn', usage });
  const event = (data: object) => `data: ${JSON.stringify(data)}\n\n`;
  return [
    event({
      type: 'message_start',
      message: { ...message, content: [], model: started, usage: { input_tokens: 7, output_tokens: 1 } },
    }),
    event({ type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'hi' } }),
    event({ type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage }),
    event({ type: 'message_stop' }),
  ].join('');
}

/** Ask for `asked`; the row that stands in the ledger for it. */
async function bookedRow(asked: string, answer: Answer, stream: boolean) {
  const world = await startGateway(({ body }) => ({ raw: answerOf(answer, body.stream === true) }), {
    prices: [PRICES],
  });
  const response = await world.post('/v1/messages', { model: asked, max_tokens: 100, stream, messages: [] });
  expect([response.status, await response.text()]).toEqual([200, world.provider.sent[0]]);
  const { payload } = await world.server.event('llm.call_completed');
  return payload;
}

const CASES: Readonly<Record<string, readonly [asked: string, Answer, row: object]>> = {
  'an advice of another model': [
    HAIKU,
    {
      started: HAIKU,
      served: HAIKU,
      iterations: [
        round('message', HAIKU, [1000, 100]),
        round('advisor_message', OPUS, [2000, 400], {
          cache_read_input_tokens: 10_000,
          cache_creation_input_tokens: 1000,
          cache_creation: { ephemeral_1h_input_tokens: 600 },
        }),
        round('message', null, [1500, 200]),
      ],
    },
    // 0.0025 and 0.0015 of Haiku; Opus: 0.01 + 0.01 + 0.005 + 0.0025 + 0.006.
    {
      model: 'anthropic:claude-haiku-4-5',
      input_tokens: 4500,
      output_tokens: 700,
      cached_input_tokens: 10_000,
      cost_usd: '0.0375',
      priced: true,
    },
  ],
  'two rounds of which neither reaches the long-context step': [
    HAIKU,
    {
      started: HAIKU,
      served: HAIKU,
      iterations: [round('message', HAIKU, [60_000, 100]), round('message', HAIKU, [61_000, 100])],
    },
    { input_tokens: 121_000, cost_usd: '0.122' },
  ],
  'one of two rounds beyond the long-context step': [
    HAIKU,
    {
      started: HAIKU,
      served: HAIKU,
      iterations: [round('compaction', null, [120_000, 100]), round('message', HAIKU, [1000, 100])],
    },
    { input_tokens: 121_000, cost_usd: '0.2425' },
  ],
  'a fallback behind a model that declined without a word, which is not billed': [
    OPUS,
    {
      started: OPUS,
      served: HAIKU,
      iterations: [round('message', OPUS, [900, 0]), round('fallback_message', HAIKU, [1000, 500])],
    },
    {
      model: 'anthropic:claude-opus-4-7',
      input_tokens: 1000,
      output_tokens: 500,
      cost_usd: '0.0035',
      rounds: [
        expect.objectContaining({ kind: 'message', input_tokens: 900, cost_usd: '0', billed: false }),
        expect.objectContaining({ kind: 'fallback_message', model: 'anthropic:claude-haiku-4-5', cost_usd: '0.0035' }),
      ],
    },
  ],
  'a fallback behind a model that declined in mid-answer': [
    OPUS,
    {
      started: OPUS,
      served: HAIKU,
      iterations: [round('message', null, [900, 40]), round('fallback_message', `${HAIKU}-20251001`, [1000, 500])],
    },
    { input_tokens: 1900, output_tokens: 540, cost_usd: '0.009' },
  ],
  'an advice of a model without a price': [
    HAIKU,
    {
      started: HAIKU,
      served: HAIKU,
      iterations: [round('message', HAIKU, [1000, 100]), round('advisor_message', 'claude-next', [1, 1])],
    },
    { input_tokens: 1001, cost_usd: '0.0015', priced: false },
  ],
};

// Promise 22.3: the calls of a session are listed with their rounds, page by page.
test('the calls of a session are listed with rounds, fees and parts of their cost, page by page', async () => {
  const [asked, answer] = CASES['an advice of another model']!;
  const world = await startGateway(({ body }) => ({ raw: answerOf(answer, body.stream === true) }), {
    prices: [PRICES],
  });
  const headers = { 'x-claude-code-session-id': 'listed' };
  for (const stream of [true, false])
    await (await world.post('/v1/messages', { model: asked, max_tokens: 100, stream, messages: [] }, headers)).text();
  await world.server.until(() => world.server.events.filter((e) => e.type === 'llm.call_completed')[1]);
  const { session_id } = await world.server.event('llm.call_completed');
  const first = await world.server.client.listCalls(session_id, { limit: 1 });
  const second = await world.server.client.listCalls(session_id, { limit: 1, cursor: first.next_cursor! });
  for (const { calls } of [first, second])
    expect(calls).toEqual([
      expect.objectContaining({
        model: 'anthropic:claude-haiku-4-5',
        cost_usd: '0.0375',
        cost_breakdown: { tokens: '0.0375', fees: '0', surcharge: '0' },
        rounds: [
          expect.objectContaining({ kind: 'message', cost_usd: '0.0015', billed: true }),
          expect.objectContaining({ kind: 'advisor_message', model: 'anthropic:claude-opus-4-7', cost_usd: '0.0335' }),
          expect.objectContaining({ kind: 'message', model: 'anthropic:claude-haiku-4-5', cost_usd: '0.0025' }),
        ],
      }),
    ]);
  expect([first.calls[0]!.id < second.calls[0]!.id, second.next_cursor]).toEqual([true, null]);
  const missing = await world.server.call('GET', '/sessions/sess_01KR3ZH48KGGGGGGGGGGGGGGGG/calls');
  expect(missing.status).toBe(404);
});

const BOTH = Object.entries(CASES).flatMap(([name, one]) => [true, false].map((stream) => ({ name, stream, one })));
// Promise 19.31: each round of a call has its own price, streamed and whole.
test.each(BOTH)('each round has its own price: $name (stream: $stream)', async ({ stream, one }) => {
  const [asked, answer, row] = one;
  expect(await bookedRow(asked, answer, stream)).toMatchObject({ usage_estimated: false, priced: true, ...row });
});
