// Anthropic Messages: what is sent and what is made of the events (11.4, 11.5).
import { describe, expect, test } from 'vitest';
import { silentLogger } from '#core/ports/logger.ts';
import { createAnthropicEncoder } from '#models/wire/anthropic-request.ts';
import { createOpenAiEncoder } from '#models/wire/openai-request.ts';
import type { DocumentBlock, StoredMessage } from '#protocol/message.ts';
import type { CanonicalRequest } from '#protocol/model-call.ts';
import { message, text, toolUse, toolUseId } from '../support/messages.ts';
import {
  assistant,
  bodySend,
  bodyText,
  drain,
  modelEntry,
  realAdapter,
  recordingLog,
  request,
  user,
} from './support.ts';

const entry = modelEntry('anthropic:claude');
const sse = (...events: object[]) =>
  events.map((e) => `event: ${(e as { type: string }).type}\ndata: ${JSON.stringify(e)}\n\n`).join('');
const start = (usage: object = { input_tokens: 10, output_tokens: 1 }) => ({
  type: 'message_start',
  message: { model: 'claude-x', usage },
});
const open = (index: number, content_block: object) => ({ type: 'content_block_start', index, content_block });
const delta = (index: number, d: object) => ({ type: 'content_block_delta', index, delta: d });
const close = (index: number) => ({ type: 'content_block_stop', index });
const end = (stop_reason: string | null, usage: object = { output_tokens: 7 }) => [
  { type: 'message_delta', delta: { stop_reason }, usage },
  { type: 'message_stop' },
];
const receive = (body: string, log = silentLogger) =>
  drain(
    realAdapter({ type: 'anthropic', log, maxRetries: 0, send: bodySend([Buffer.from(body)]) }),
    request({ entry }),
  );
interface WireBlock {
  readonly [key: string]: unknown;
  readonly cache_control?: unknown;
}
interface WireBody {
  readonly [key: string]: unknown;
  readonly system?: WireBlock[];
  readonly tools?: WireBlock[];
  readonly messages: { readonly role: string; readonly content: WireBlock[] }[];
}
const encode = (req: CanonicalRequest, options = {}, log = silentLogger) =>
  JSON.parse(bodyText(createAnthropicEncoder(options, log)(req))) as WireBody;
const marks = (body: WireBody) =>
  [...(body.system ?? []), ...(body.tools ?? []), ...body.messages.flatMap((m) => m.content)].filter(
    (b) => b.cache_control,
  );

describe('events', () => {
  // Promise 11.1: a text and a tool call arrive in order, their fragments byte for byte.
  test('text and a tool call: order, indices, and input deltas byte for byte', async () => {
    const { events, complete } = await receive(
      sse(
        start(),
        { type: 'ping' },
        open(0, { type: 'text', text: '' }),
        delta(0, { type: 'text_delta', text: 'I will ' }),
        delta(0, { type: 'text_delta', text: 'look.' }),
        close(0),
        open(1, { type: 'tool_use', id: 'toolu_1', name: 'read_file', input: {} }),
        delta(1, { type: 'input_json_delta', partial_json: '' }),
        delta(1, { type: 'input_json_delta', partial_json: '{"path" :' }),
        delta(1, { type: 'input_json_delta', partial_json: ' "a.ts"}' }),
        close(1),
        ...end('tool_use'),
      ),
    );
    expect(events.map((e) => [e.type, 'content_block_index' in e ? e.content_block_index : null])).toEqual([
      ['message.start', null],
      ['text.delta', 0],
      ['text.delta', 0],
      ['tool.use_start', 1],
      ['tool.use_input_delta', 1],
      ['tool.use_input_delta', 1],
      ['tool.use_end', 1],
      ['message.complete', null],
    ]);
    expect(events.flatMap((e) => (e.type === 'tool.use_input_delta' ? [e.partial_json] : []))).toEqual([
      '{"path" :',
      ' "a.ts"}',
    ]);
    expect(events[3]).toMatchObject({
      tool_name: 'read_file',
      provider_tool_id: 'toolu_1',
      tool_use_id: expect.stringMatching(/^tu_/),
    });
    expect(complete).toMatchObject({ stop_reason: 'tool_use', served_model: 'claude-x' });
  });

  // Promise 11.4: cumulative counts replace earlier ones.
  test('later counts replace earlier ones, class by class', async () => {
    const { complete } = await receive(
      sse(
        start({
          input_tokens: 10,
          cache_read_input_tokens: 3,
          cache_creation_input_tokens: 2,
          cache_creation: { ephemeral_1h_input_tokens: 1 },
          output_tokens: 1,
        }),
        ...end('end_turn', { output_tokens: 7, input_tokens: null, output_tokens_details: { thinking_tokens: 4 } }),
      ),
    );
    expect(complete!.usage).toEqual({
      input_tokens: 10,
      output_tokens: 7,
      cached_input_tokens: 3,
      cache_creation_input_tokens: 2,
      cache_creation_1h_input_tokens: 1,
      reasoning_tokens: 4,
      usage_estimated: false,
    });
  });

  test('an empty message has a start and an end, and no blocks', async () => {
    const { events, complete } = await receive(
      sse(start(), open(0, { type: 'text', text: '' }), close(0), ...end('end_turn')),
    );
    expect(events.map((e) => e.type)).toEqual(['message.start', 'message.complete']);
    expect(complete!.final_content).toEqual([]);
  });

  test('malformed arguments give an empty input and say why; an empty string is an empty object', async () => {
    const call = (json: string) =>
      receive(
        sse(
          start(),
          open(0, { type: 'tool_use', id: 'x', name: 't' }),
          delta(0, { type: 'input_json_delta', partial_json: json }),
          close(0),
          ...end('tool_use'),
        ),
      );
    const ended = async (json: string) => (await call(json)).events.find((e) => e.type === 'tool.use_end');
    expect(await ended('{"a":')).toMatchObject({
      final_input: {},
      input_error: expect.stringMatching(/^invalid_json: /),
    });
    expect(await ended('[1]')).toMatchObject({ final_input: {}, input_error: 'invalid_json: not an object' });
    expect(await ended('')).toMatchObject({ final_input: {}, input_error: null });
  });

  test('arguments nested deeper than anything can store are malformed, as text and as a value; the counts stay', async () => {
    const deep = `{"a":${'['.repeat(6000)}${']'.repeat(6000)}}`;
    const asText = [
      open(0, { type: 'tool_use', id: 'x', name: 't' }),
      delta(0, { type: 'input_json_delta', partial_json: deep }),
    ];
    const asValue = [open(0, { type: 'tool_use', id: 'x', name: 't', input: 'DEEP' as never })];
    for (const events of [asText, asValue]) {
      const { complete, error, ...rest } = await receive(
        sse(start(), ...events, close(0), ...end('tool_use')).replace('"DEEP"', deep),
      );
      expect(error).toBeNull();
      expect(rest.events.find((e) => e.type === 'tool.use_end')).toMatchObject({
        final_input: {},
        input_error: expect.stringMatching(/^invalid_json: is nested deeper than 100 levels/),
      });
      expect(complete).toMatchObject({ final_content: [{ input: {} }], usage: { input_tokens: 10, output_tokens: 7 } });
    }
  });

  test('blocks that overlap on the wire come out one after the other, complete', async () => {
    const { events, complete } = await receive(
      sse(
        start(),
        open(0, { type: 'tool_use', id: 'a', name: 'one' }),
        open(1, { type: 'tool_use', id: 'b', name: 'two' }),
        delta(1, { type: 'input_json_delta', partial_json: '{"b":' }),
        delta(0, { type: 'input_json_delta', partial_json: '{"a":1}' }),
        delta(1, { type: 'input_json_delta', partial_json: '2}' }),
        close(1),
        close(0),
        ...end('end_turn'),
      ),
    );
    expect(complete).toMatchObject({
      stop_reason: 'tool_use',
      raw_stop_reason: 'end_turn',
      final_content: [
        { name: 'one', input: { a: 1 } },
        { name: 'two', input: { b: 2 } },
      ],
    });
    expect(events.filter((e) => e.type === 'tool.use_end')).toHaveLength(2);
  });

  test.each([
    ['pause_turn', 'tool_use'],
    ['stop_sequence', 'stop_sequence'],
  ])('stop reason %s becomes %s and is kept raw', async (raw, mapped) => {
    const { complete } = await receive(sse(start(), ...end(raw)));
    expect(complete).toMatchObject({ stop_reason: mapped, raw_stop_reason: raw });
  });

  // Promise 22.7: a refusal, an overflow in mid-answer and a stop reason that is not known are failures, with their cost.
  test.each([
    ['refusal', 'invalid_request', 'content_refused', 'declined'],
    ['model_context_window_exceeded', 'invalid_request', 'model_context_window_exceeded', 'context window'],
    ['something_new', 'other', 'unknown_stop_reason', '"something_new"'],
  ])('stop reason %s is a failure that keeps its usage', async (raw, error_class, error_detail, words) => {
    const { error, complete } = await receive(sse(start(), ...end(raw)));
    expect(error).toMatchObject({ error_class, error_detail, retryable: false });
    expect(error!.message).toContain(words);
    const usage = complete?.usage ?? error!.usage;
    expect(usage).toMatchObject({ usage_estimated: false });
  });

  test('a delta for a block that was never opened is a fault, not lost text', async () => {
    const { error } = await receive(sse(start(), delta(3, { type: 'text_delta', text: 'lost' }), ...end('end_turn')));
    expect(error).toMatchObject({ error_class: 'network', error_detail: 'malformed_event' });
  });
});

describe('thinking', () => {
  const body = sse(
    start(),
    open(0, { type: 'thinking', thinking: '', signature: '' }),
    delta(0, { type: 'thinking_delta', thinking: 'hm' }),
    delta(0, { type: 'signature_delta', signature: 'sig' }),
    delta(0, { type: 'signature_delta', signature: 'nature' }),
    close(0),
    open(1, { type: 'redacted_thinking', data: 'opaque' }),
    close(1),
    open(2, { type: 'thinking', thinking: '' }),
    delta(2, { type: 'signature_delta', signature: 'only' }),
    close(2),
    open(3, { type: 'text', text: 'said' }),
    close(3),
    ...end('end_turn'),
  );

  // Promise 11.2: thinking, signatures and redacted blocks survive the round trip to their provider.
  test('signature, redacted data and order survive the way in and the way out to the same provider', async () => {
    const { complete } = await receive(body);
    expect(complete!.final_content).toEqual([
      { type: 'thinking', text: 'hm', signature: 'signature' },
      { type: 'redacted_thinking', data: 'opaque' },
      { type: 'thinking', text: '', signature: 'only' },
      { type: 'text', text: 'said' },
    ]);
    const sent = encode(request({ entry, messages: [user('q'), assistant(...complete!.final_content), user('more')] }));
    expect(sent.messages[1]).toEqual({
      role: 'assistant',
      content: [
        { type: 'thinking', thinking: 'hm', signature: 'signature' },
        { type: 'redacted_thinking', data: 'opaque' },
        { type: 'thinking', thinking: '', signature: 'only' },
        { type: 'text', text: 'said' },
      ],
    });
  });

  // Promise 11.2: another provider is not sent thinking; each dropped block is one warning.
  test('to another provider thinking is not sent, with one warning for each block', async () => {
    const { log, lines } = recordingLog();
    const history = [
      user('q'),
      assistant(
        { type: 'thinking', text: 'hm', signature: 's' },
        { type: 'redacted_thinking', data: 'd' },
        text('said'),
      ),
    ];
    const other = createOpenAiEncoder('openai', {}, log);
    const body_ = bodyText(other(request({ entry: modelEntry('openai:gpt'), messages: history })));
    expect(body_).not.toMatch(/hm|redacted/);
    const dropped = lines.filter((l) => l.message === 'canonical.block_dropped');
    expect(dropped).toHaveLength(2);
    expect(dropped[0]).toMatchObject({
      level: 'warn',
      fields: {
        session_id: history[1]!.session_id,
        message_id: history[1]!.id,
        block_type: 'thinking',
        reason: expect.any(String),
      },
    });
    const foreign = message(2, 'assistant', [{ type: 'thinking', text: 'hm', signature: 's' }, text('x')], {
      provider: 'elsewhere',
    });
    expect(encode(request({ entry, messages: [user('q'), foreign] })).messages[1]!.content).toHaveLength(1);
    expect(
      encode(
        request({
          entry,
          messages: [user('q'), assistant({ type: 'thinking', text: 'hm', signature: null }, text('x'))],
        }),
      ).messages[1]!.content,
    ).toHaveLength(1);
  });
});

describe('cache breakpoints', () => {
  const full = (messages: readonly StoredMessage[]) =>
    request({ entry, messages, tools: ['a', 'b'], volatile: 'today', rest: { system_prompt: 'be good' } });
  const history = [user('one'), assistant(text('two')), user('three')];

  // Promise 11.3: three cache breakpoints, never on the volatile text.
  test('exactly three marks: last tool, stable system, last block; none on the volatile text', () => {
    const body = encode(full(history));
    expect(marks(body)).toHaveLength(3);
    expect(body.system).toEqual([
      { type: 'text', text: 'be good', cache_control: { type: 'ephemeral' } },
      { type: 'text', text: 'today' },
    ]);
    expect(body.tools!.map((t) => t.cache_control !== undefined)).toEqual([false, true]);
    expect(body.messages.at(-1)!.content.at(-1)).toMatchObject({ text: 'three', cache_control: { type: 'ephemeral' } });
  });

  // Promise 11.3: prompt caching can be switched off.
  test('prompt_cache: false sends none, cache_ttl is passed on', () => {
    expect(marks(encode(full(history), { prompt_cache: false }))).toEqual([]);
    for (const block of marks(encode(full(history), { cache_ttl: '1h' })))
      expect(block.cache_control).toEqual({ type: 'ephemeral', ttl: '1h' });
  });

  // Promise 11.3: a breakpoint never lands on thinking.
  test('a last block that cannot carry a mark passes it to the block before it, or nobody', () => {
    const thinking = { type: 'thinking', text: 'hm', signature: 's' } as const;
    const before = encode(full([user('q'), assistant(text('said'), thinking)]));
    expect(before.messages[1]!.content.map((b) => b.cache_control !== undefined)).toEqual([true, false]);
    expect(marks(encode(full([user('q'), assistant(thinking)])))).toHaveLength(2);
  });

  // Promise 22.7: nothing that the newer API version rejects is sent to it.
  test('the newer version gets no temperature and no document of an assistant', () => {
    const document = {
      type: 'document',
      media_type: 'application/pdf',
      name: 'a',
      source: { kind: 'base64', data: 'QQ==' },
    };
    const asked = request({
      entry: modelEntry('anthropic:m', { capabilities: { accepted_document_media_types: ['application/pdf'] } }),
      messages: [user('q'), assistant(text('said'), document as DocumentBlock), user('r')],
      rest: { temperature: 0.5 },
    });
    const body = (api_version?: string) => JSON.stringify(encode(asked, { api_version }));
    expect(body()).toContain('"temperature":0.5');
    expect(body('2023-06-01')).toContain('"type":"document"');
    expect(body('2026-10-21')).not.toMatch(/temperature|top_p|top_k|"type":"document"/);
  });

  test('a growing history keeps every byte before it, and marks leave no trace', () => {
    const encode = createAnthropicEncoder({}, silentLogger);
    const encoder = (req: CanonicalRequest) => bodyText(encode(req));
    const first = encoder(full(history));
    const more = [...history, assistant(text('four')), user('five')];
    const second = encoder(full(more));
    expect(second).toBe(bodyText(createAnthropicEncoder({}, silentLogger)(full(more))));
    expect(encoder(full(history))).toBe(first);
    const unmarked = first.slice(0, first.lastIndexOf(',"cache_control"'));
    expect(second.startsWith(unmarked)).toBe(true);
  });
});

describe('history', () => {
  const calls = assistant(toolUse(1, 'a'), toolUse(2, 'b'));
  const result = (n: number, value: string, is_error = false) =>
    message(n + 10, 'tool', [
      {
        type: 'tool_result',
        tool_use_id: toolUseId(n),
        content: value === '' ? [] : [{ type: 'text', text: value }],
        is_error,
      },
    ]);

  test('a call that may use no tool keeps the tools, and so the cached prefix, and forbids them', () => {
    const one = { entry, messages: [user('q')], tools: ['t'] };
    const forbidden = { ...encode(request(one)), tool_choice: { type: 'none' } };
    expect(encode(request({ ...one, rest: { tool_choice: 'none' } }))).toEqual(forbidden);
    expect(encode(request({ ...one, tools: [], rest: { tool_choice: 'none' } }))).not.toHaveProperty('tool_choice');
  });

  test('results of one message and the user text after them form one user message, results first', () => {
    const body = encode(
      request({ entry, messages: [user('q'), calls, result(1, 'r1'), result(2, '', false), user('next')] }),
    );
    expect(body.messages.map((m) => m.role)).toEqual(['user', 'assistant', 'user']);
    expect(body.messages[2]!.content).toMatchObject([
      { type: 'tool_result', tool_use_id: toolUseId(1), content: [{ type: 'text', text: 'r1' }], is_error: false },
      { type: 'tool_result', tool_use_id: toolUseId(2) },
      { type: 'text', text: 'next' },
    ]);
    expect(body.messages[2]!.content[1]).not.toHaveProperty('content');
  });

  // Promise 11.13: a call without result gets a synthetic one (Anthropic).
  test('a call without result gets a synthetic error result, before anything else', () => {
    const body = encode(request({ entry, messages: [user('q'), calls, result(1, 'r1'), user('next')] }));
    expect(body.messages[2]!.content).toMatchObject([
      { tool_use_id: toolUseId(1) },
      {
        tool_use_id: toolUseId(2),
        is_error: true,
        content: [{ text: 'Tool call was interrupted before it produced a result.' }],
      },
      { text: 'next' },
    ]);
    expect(encode(request({ entry, messages: [user('q'), calls] })).messages[2]!.content).toHaveLength(2);
  });

  // Promise 11.14: a failed result is marked (Anthropic).
  test('a failed result says so', () => {
    const body = encode(request({ entry, messages: [user('q'), calls, result(1, 'bad', true), result(2, 'ok')] }));
    expect(body.messages[2]!.content.map((b) => b.is_error)).toEqual([true, false]);
  });

  test('a result without its call is dropped, blank texts and empty messages too', () => {
    const { log, lines } = recordingLog();
    const body = encode(
      request({ entry, messages: [user('q'), result(9, 'stray'), assistant(text('  \n')), user('go')] }),
      {},
      log,
    );
    expect(body.messages.map((m) => m.content)).toMatchObject([[{ text: 'q' }], [{ text: 'go' }]]);
    expect(lines.map((l) => l.fields.block_type)).toEqual(['tool_result']);
  });

  test('images and documents go as base64, and not at all to a model that takes none', () => {
    const image = { type: 'image', source: { kind: 'base64', data: 'AAAA' }, media_type: 'image/png' } as const;
    const pdf = {
      type: 'document',
      source: { kind: 'base64', data: 'BBBB' },
      media_type: 'application/pdf',
      name: 'a.pdf',
    } as const;
    const messages = [message(1, 'user', [text('see'), image, pdf])];
    expect(encode(request({ entry, messages })).messages[0]!.content).toMatchObject([
      { type: 'text' },
      { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'AAAA' } },
      { type: 'document', source: { type: 'base64', media_type: 'application/pdf', data: 'BBBB' } },
    ]);
    const blind = modelEntry('anthropic:blind', {
      capabilities: { supports_images: false, accepted_document_media_types: [] },
    });
    expect(encode(request({ entry: blind, messages })).messages[0]!.content).toHaveLength(1);
  });

  test('system messages join the stable text; a schema goes native or into the volatile text', () => {
    const rest = {
      system_prompt: 'S',
      system_prompt_volatile: 'V',
      output_schema: { type: 'object' },
      temperature: 0.5,
      stop_sequences: ['x'],
    };
    const messages = [message(1, 'system', [text('inline')]), user('q')];
    const body = encode(request({ entry, messages, rest }));
    expect(body.system!.map((b) => b.text)).toEqual(['S\n\ninline', 'V']);
    expect(body).toMatchObject({
      output_config: { format: { type: 'json_schema', schema: { type: 'object' } } },
      temperature: 0.5,
      stop_sequences: ['x'],
      max_tokens: 1000,
      stream: true,
      model: 'claude',
    });
    const plain = modelEntry('anthropic:plain', {
      thinking: { type: 'enabled', budget_tokens: 1024 },
      capabilities: { supports_structured_output: false },
    });
    const without = encode(request({ entry: plain, messages, rest }));
    expect(without.system![1]!.text).toMatch(/^V\n\n.*JSON Schema, [^\n]*:\n\{"type":"object"\}$/s);
    expect(without).toMatchObject({ thinking: { type: 'enabled', budget_tokens: 1024 } });
    expect(without).not.toHaveProperty('output_config');
    expect(without).not.toHaveProperty('temperature');
  });

  // Promise 22.1: an effort is output_config.effort on Anthropic's wire.
  test('an effort stands in output_config, beside a format, and with the thinking of the entry', () => {
    const adaptive = modelEntry('anthropic:claude', { thinking: { type: 'adaptive' } });
    const encoded = encode(request({ entry: adaptive, rest: { effort: 'low' } }));
    expect(encoded).toMatchObject({ output_config: { effort: 'low' }, thinking: { type: 'adaptive' } });
    const formatted = encode(request({ entry, rest: { effort: 'max', output_schema: { type: 'object' } } }));
    const format = { type: 'json_schema', schema: { type: 'object' } };
    expect(formatted).toMatchObject({ output_config: { effort: 'max', format } });
    expect(encode(request({ entry }))).not.toHaveProperty('output_config');
  });
});
