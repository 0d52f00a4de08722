// Turns over the wires of providers: OpenAI Responses with its reasoning items, and answers that Anthropic pauses.
import { expect, it } from 'vitest';
import type { Send } from '#models/http/provider-http.ts';
import { bodySend, type RealOptions, realAdapter } from '../provider/support.ts';
import { type EngineOptions, startEngine } from '../support/engine.ts';
import { restart } from '../support/moments.ts';

type Json = Readonly<Record<string, unknown>>;

const sse = (events: readonly Json[]) => events.map((e) => `data: ${JSON.stringify(e)}\n\n`).join('');

/** A provider that answers each request with the next body, the last one again and again. */
function wireProvider(over: Omit<RealOptions, 'send'>, bodies: readonly (readonly Json[])[]) {
  const asked: { readonly url: string; readonly headers: unknown; readonly body: Json }[] = [];
  const send: Send = async (request) => {
    const bytes = Buffer.concat([...request.body]);
    asked.push({ url: request.url, headers: request.headers, body: JSON.parse(bytes.toString()) as Json });
    const body = bodies[Math.min(asked.length, bodies.length) - 1]!;
    return bodySend([Buffer.from(sse(body))])(request);
  };
  const options: EngineOptions = {
    scenario: { version: 1, rules: [] },
    files: { 'a.txt': 'alpha' },
    provider: () => realAdapter({ ...over, maxRetries: 0, send }),
  };
  return { asked, options };
}

const usage = { input_tokens: 100, output_tokens: 20, output_tokens_details: { reasoning_tokens: 12 } };
const cachedUsage = { ...usage, input_tokens_details: { cached_tokens: 60 } };
const reasoning = { type: 'reasoning', id: 'rs_1', summary: [], encrypted_content: 'opaque+/=' };
const created = { type: 'response.created', response: { id: 'resp_1', model: 'gpt-x' } };
const call = { type: 'function_call', id: 'fc_1', call_id: 'call_1', name: 'read_file' };
const readsFile: Json[] = [
  created,
  { type: 'response.output_item.added', output_index: 0, item: { ...reasoning, encrypted_content: '' } },
  { type: 'response.output_item.done', output_index: 0, item: { ...reasoning, status: 'completed' } },
  { type: 'response.output_item.added', output_index: 1, item: { ...call, arguments: '' } },
  { type: 'response.function_call_arguments.delta', output_index: 1, delta: '{"path":' },
  { type: 'response.function_call_arguments.delta', output_index: 1, delta: '"a.txt"}' },
  { type: 'response.output_item.done', output_index: 1, item: { ...call, arguments: '{"path":"a.txt"}' } },
  { type: 'response.completed', response: { id: 'resp_1', model: 'gpt-x', status: 'completed', usage } },
];
const answers = (text: string): Json[] => [
  created,
  { type: 'response.output_item.added', output_index: 0, item: { type: 'message', id: 'm_1', content: [] } },
  { type: 'response.output_text.delta', output_index: 0, content_index: 0, delta: text },
  { type: 'response.output_item.done', output_index: 0, item: { type: 'message', content: [{ text }] } },
  { type: 'response.completed', response: { status: 'completed', usage: cachedUsage } },
];

// Promise 22.8: over Responses, reasoning items go back as they came, after a restart too; what caches and budgets count is right.
it('over Responses a reasoning item goes back before the call it led to, as it came, after a restart too', async () => {
  const { asked, options } = wireProvider({ type: 'openai', responses: true }, [
    readsFile,
    answers('alpha'),
    answers('b'),
  ]);
  const t = await startEngine(options);
  const session = await t.session();
  const turn = await t.run(session, 'read a.txt');
  expect(turn).toMatchObject({ status: 'completed', stop_reason: 'end_turn', llm_call_count: 2 });
  // 100 + 40 tokens of input, 60 cached, 2 × 20 of output, at $15, $1.50 and $75 a million.
  expect(turn.total_cost_usd).toBe('0.00519');
  expect(asked[0]!.url).toMatch(/\/responses$/);
  expect(asked[0]!.body).toMatchObject({ stream: true, store: false, include: ['reasoning.encrypted_content'] });
  const replayed = (at: number) => (asked[at]!.body.input as Json[]).slice(1, 4);
  expect(replayed(1)).toEqual([
    reasoning,
    { type: 'function_call', call_id: expect.any(String), name: 'read_file', arguments: '{"path":"a.txt"}' },
    { type: 'function_call_output', call_id: expect.any(String), output: expect.stringContaining('alpha') },
  ]);
  const [, made, result] = replayed(1);
  expect(made!.call_id).toBe(result!.call_id);

  const next = await restart(t, options);
  await next.run(session, 'and again');
  expect(replayed(2)).toEqual(replayed(1));
});

it('over Responses an answer cut off by its length ends as max_tokens, a filtered one as a failure', async () => {
  const incomplete = (reason: string): Json[] => [
    ...answers('al').slice(0, 3),
    { type: 'response.incomplete', response: { status: 'incomplete', incomplete_details: { reason }, usage } },
  ];
  for (const [reason, end] of [
    ['max_output_tokens', { status: 'completed', stop_reason: 'max_tokens', total_cost_usd: '0.003' }],
    ['content_filter', { status: 'failed', error_code: 'provider_error', total_cost_usd: '0.003' }],
  ] as const) {
    const { options } = wireProvider({ type: 'openai', responses: true }, [incomplete(reason)]);
    const t = await startEngine(options);
    expect(await t.run(await t.session(), 'go')).toMatchObject(end);
  }
});

const paused = (text: string): Json[] => [
  { type: 'message_start', message: { id: 'msg', model: 'claude', usage: { input_tokens: 100, output_tokens: 1 } } },
  { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } },
  { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text } },
  { type: 'content_block_stop', index: 0 },
  { type: 'message_delta', delta: { stop_reason: 'pause_turn' }, usage: { output_tokens: 20 } },
  { type: 'message_stop' },
];
const ended = (text: string): Json[] =>
  paused(text).map((e) => (e.type === 'message_delta' ? { ...e, delta: { stop_reason: 'end_turn' } } : e));

// Promise 22.7: a paused answer is continued with what came of it, up to five times; then the turn fails.
it('a paused answer is continued up to five times, each a call of its own, and then fails the turn', async () => {
  const once = wireProvider({ type: 'anthropic' }, [paused('one'), ended('two')]);
  const t = await startEngine(once.options);
  expect(await t.run(await t.session(), 'go')).toMatchObject({ status: 'completed', llm_call_count: 2 });
  expect(once.asked[1]!.body.messages).toMatchObject([
    { role: 'user' },
    { role: 'assistant', content: [{ type: 'text', text: 'one' }] },
  ]);

  const always = wireProvider({ type: 'anthropic' }, [paused('again')]);
  const u = await startEngine(always.options);
  const turn = await u.run(await u.session(), 'go');
  expect(turn).toMatchObject({ status: 'failed', error_code: 'provider_error', llm_call_count: 6 });
  expect(turn.error_message).toContain('paused its answer');
});
