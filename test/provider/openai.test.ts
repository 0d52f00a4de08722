// OpenAI Chat Completions and its relatives: what is sent and what is made of the chunks (11.4, 11.6).
import { describe, expect, test } from 'vitest';
import { silentLogger } from '#core/ports/logger.ts';
import { createOpenAiEncoder, isStrict, type OpenAiOptions } from '#models/wire/openai-request.ts';
import { createResponsesEncoder } from '#models/wire/responses-request.ts';
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

const entry = modelEntry('openai:gpt');
const sse = (...chunks: (object | string)[]) =>
  chunks.map((c) => `data: ${typeof c === 'string' ? c : JSON.stringify(c)}\n\n`).join('');
const chunk = (delta: object, finish_reason: string | null = null) => ({
  model: 'gpt-x',
  choices: [{ index: 0, delta, finish_reason }],
});
const call = (fields: object) => chunk({ tool_calls: [fields] });
const usage = (value: object) => ({ choices: [], usage: value });
const receive = (body: string, log = silentLogger) =>
  drain(
    realAdapter({ type: 'openai', log, maxRetries: 0, send: bodySend([Buffer.from(body)]) }),
    request({ entry, messages: [user('a question')] }),
  );
const tools = async (...chunks: (object | string)[]) => {
  const { events, complete, error } = await receive(sse(...chunks));
  expect(error).toBeNull();
  return {
    stop: complete!.stop_reason,
    calls: complete!.final_content.flatMap((b) => (b.type === 'tool_use' ? [[b.name, b.input]] : [])),
    events,
  };
};
const done = (reason = 'stop') => [chunk({}, reason), '[DONE]'];

describe('chunks', () => {
  const expected = [
    ['read', { path: 'a' }],
    ['list', { depth: 2 }],
  ];

  // Promise 11.6: interleaved calls are assembled whole, indices never fall.
  test('two interleaved calls, each in pieces, name first and id once, become two complete calls', async () => {
    const { calls, stop, events } = await tools(
      call({ index: 0, id: 'c0', function: { name: 'read', arguments: '' } }),
      call({ index: 0, function: { arguments: '{"pa' } }),
      call({ index: 1, id: 'c1', function: { name: 'list', arguments: '{"de' } }),
      call({ index: 0, function: { arguments: 'th":"a"}' } }),
      call({ index: 1, function: { arguments: 'pth":2}' } }),
      ...done(),
    );
    expect(calls).toEqual(expected);
    expect(stop).toBe('tool_use');
    expect(events.flatMap((e) => (e.type === 'tool.use_start' ? [e.provider_tool_id] : []))).toEqual(['c0', 'c1']);
  });

  // Promise 11.6: calls are assembled without index or id too.
  test.each([
    [
      'without index, by id',
      [
        { id: 'c0', function: { name: 'read', arguments: '{"path":' } },
        { id: 'c1', function: { name: 'list', arguments: '{"depth"' } },
        { id: 'c0', function: { arguments: '"a"}' } },
        { id: 'c1', function: { arguments: ':2}' } },
      ],
    ],
    [
      'without id',
      [
        { index: 0, function: { name: 'read', arguments: '{"path":' } },
        { index: 0, function: { arguments: '"a"}' } },
        { index: 1, function: { name: 'list', arguments: '{"depth":2}' } },
      ],
    ],
    [
      'without both',
      [
        { function: { name: 'read', arguments: '{"path":' } },
        { function: { arguments: '"a"}' } },
        { function: { name: 'list', arguments: '{"depth"' } },
        { function: { arguments: ':2}' } },
      ],
    ],
    [
      'all under index 0',
      [
        { index: 0, id: 'c0', function: { name: 'read', arguments: '{"path":"a"}' } },
        { index: 0, id: 'c1', function: { name: 'list', arguments: '{"depth":2}' } },
      ],
    ],
    [
      'with id and name repeated',
      [
        { index: 0, id: 'c0', function: { name: 'read', arguments: '{"path":' } },
        { index: 0, id: 'c0', function: { name: 'read', arguments: '"a"}' } },
        { index: 1, id: 'c1', function: { name: 'list', arguments: { depth: 2 } } },
      ],
    ],
  ])('%s the calls are the same', async (_, fragments) => {
    expect((await tools(...fragments.map(call), ...done())).calls).toEqual(expected);
  });

  test('arguments nested deeper than anything can store are malformed, as text and as a value', async () => {
    const deep = `{"a":${'['.repeat(6000)}${']'.repeat(6000)}}`;
    for (const given of [deep, 'DEEP']) {
      const fragment = call({ index: 0, id: 'c', function: { name: 't', arguments: given } });
      const { events, complete } = await receive(sse(fragment, ...done()).replace('"DEEP"', deep));
      expect(complete!.final_content).toMatchObject([{ type: 'tool_use', name: 't', input: {} }]);
      expect(events.find((e) => e.type === 'tool.use_end')).toMatchObject({
        input_error: expect.stringMatching(/^invalid_json: is nested deeper than 100 levels/),
      });
    }
  });

  test('an error nested deeper than anything can show is an error all the same', async () => {
    const deep = `{"type":"server_error","inner":${'['.repeat(6000)}${']'.repeat(6000)}}`;
    const { error } = await receive(`data: {"error":${deep}}\n\n`);
    expect(error).toMatchObject({
      error_class: 'server_error',
      message: 'an error that is nested deeper than 100 levels',
    });
  });

  test('text after a call is a block of its own, and the stop reason of a cut call stays', async () => {
    const { complete } = await receive(
      sse(
        chunk({ content: 'one' }),
        call({ index: 0, id: 'c', function: { name: 't', arguments: '{}' } }),
        chunk({ content: 'two' }),
        ...done('length'),
      ),
    );
    expect(complete).toMatchObject({
      stop_reason: 'max_tokens',
      final_content: [{ text: 'one' }, { name: 't' }, { text: 'two' }],
    });
  });

  test('a refusal is content, reasoning is not, and other choices are not read', async () => {
    const { text: said } = await receive(
      sse(
        chunk({ reasoning_content: 'hm', reasoning: 'hm' }),
        chunk({ refusal: 'no' }),
        { choices: [{ index: 1, delta: { content: 'X' } }] },
        chunk({ content: [{ type: 'text', text: '!' }] }),
        ...done('content_filter'),
      ),
    );
    expect(said).toBe('no!');
  });

  test('a body that ends after the finish_reason is whole, also without [DONE] or its last blank line', async () => {
    for (const body of [
      sse(chunk({ content: 'a' }), chunk({}, 'stop')),
      sse(chunk({ content: 'a' }), chunk({}, 'stop')).trimEnd(),
    ])
      expect((await receive(body)).complete).toMatchObject({ stop_reason: 'end_turn', raw_stop_reason: 'stop' });
  });

  test('no finish_reason is a truncated stream, with [DONE] or without', async () => {
    for (const body of [sse(chunk({ content: 'a' })), sse(chunk({ content: 'a' }), '[DONE]')])
      expect((await receive(body)).error).toMatchObject({ error_class: 'network', error_detail: 'stream_truncated' });
  });

  test('an error in a chunk is classified by its own code', async () => {
    const failing = async (error: unknown) => (await receive(sse(chunk({ content: 'a' }), { error }))).error;
    expect(await failing({ code: 502, message: 'bad gateway' })).toMatchObject({ error_class: 'server_error' });
    expect(await failing({ code: 429, message: 'slow down' })).toMatchObject({ error_class: 'rate_limit' });
    expect(await failing({ type: 'server_error', message: 'x' })).toMatchObject({ error_class: 'server_error' });
    expect(await failing({ message: 'odd' })).toMatchObject({ error_class: 'other' });
    expect((await receive(sse(chunk({ content: 'a' }), chunk({}, 'error')))).error).toMatchObject({
      error_class: 'server_error',
    });
  });
});

describe('usage', () => {
  // Promise 01.10: cached prompt tokens reported inside the prompt count are taken out of it.
  // Promise 11.5: the three input classes are disjoint.
  test('cached and written tokens are taken out of the prompt count; the last report wins', async () => {
    const { complete } = await receive(
      sse(
        chunk({ content: 'a' }),
        ...done().slice(0, 1),
        usage({ prompt_tokens: 1, completion_tokens: 1 }),
        usage({
          prompt_tokens: 194,
          completion_tokens: 5,
          prompt_tokens_details: { cached_tokens: 100, cache_write_tokens: 50 },
          completion_tokens_details: { reasoning_tokens: 2 },
          cost: 3,
        }),
        '[DONE]',
      ),
    );
    expect(complete!.usage).toEqual({
      input_tokens: 44,
      output_tokens: 5,
      cached_input_tokens: 100,
      cache_creation_input_tokens: 50,
      cache_creation_1h_input_tokens: 0,
      reasoning_tokens: 2,
      usage_estimated: false,
    });
  });

  // Promise 11.5: an impossible cached count clamps with one warning.
  test('more cached than prompt tokens: none is left, with one warning', async () => {
    const { log, lines } = recordingLog();
    const { complete } = await receive(
      sse(
        ...done().slice(0, 1),
        usage({ prompt_tokens: 10, completion_tokens: 1, prompt_tokens_details: { cached_tokens: 12 } }),
      ),
      log,
    );
    expect(complete!.usage).toMatchObject({ input_tokens: 0, cached_input_tokens: 12 });
    expect(lines.filter((l) => l.level === 'warn')).toHaveLength(1);
  });

  // Promise 11.5: DeepSeek's cached count is taken out of the prompt count.
  test('cached tokens without details, as DeepSeek gives them, are taken out of the prompt count', async () => {
    const deepseek = {
      prompt_tokens: 100,
      completion_tokens: 1,
      prompt_cache_hit_tokens: 80,
      prompt_cache_miss_tokens: 20,
    };
    const { complete } = await receive(sse(...done().slice(0, 1), usage(deepseek)));
    expect(complete!.usage).toMatchObject({ input_tokens: 20, cached_input_tokens: 80, usage_estimated: false });
  });

  // Promise 11.5: unreported usage is estimated and never zero.
  test('no usage is estimated, never zero, with one warning for each model', async () => {
    const { log, lines } = recordingLog();
    const adapter = realAdapter({
      type: 'openai',
      log,
      send: bodySend([Buffer.from(sse(chunk({ content: 'twelve chars' }), ...done()))]),
    });
    for (let i = 0; i < 3; i++) {
      const { complete } = await drain(adapter, request({ entry, messages: [user('x'.repeat(41))] }));
      expect(complete!.usage).toMatchObject({ input_tokens: 10, output_tokens: 3, usage_estimated: true });
    }
    expect(lines.filter((l) => l.level === 'warn')).toHaveLength(1);
  });
});

describe('request', () => {
  const encode = (req: CanonicalRequest, options: OpenAiOptions = {}, type: 'openai' | 'openrouter' = 'openai') =>
    JSON.parse(bodyText(createOpenAiEncoder(type, options, silentLogger)(req))) as Record<string, unknown> & {
      messages: Record<string, unknown>[];
    };

  test('a call that may use no tool keeps the tools and forbids them', () => {
    const one = { entry, messages: [user('q')], tools: ['t'] };
    const open = encode(request(one));
    expect(encode(request({ ...one, rest: { tool_choice: 'none' } }))).toEqual({ ...open, tool_choice: 'none' });
    expect(encode(request({ ...one, tools: [], rest: { tool_choice: 'none' } }))).not.toHaveProperty('tool_choice');
  });

  // Promise 11.13: the same (Chat Completions).
  // Promise 11.14: a failed result is prefixed (Chat Completions).
  test('roles, calls, results, images: the whole mapping', () => {
    const image = { type: 'image', source: { kind: 'base64', data: 'AAAA' }, media_type: 'image/png' } as const;
    const body = encode(
      request({
        entry,
        tools: ['t'],
        volatile: 'V',
        rest: { system_prompt: 'S', stop_sequences: ['1', '2', '3', '4', '5'], temperature: 0 },
        messages: [
          user('plain'),
          message(2, 'user', [text('see'), image]),
          assistant(text('a'), text('b'), toolUse(1, 't', { x: 1 })),
          message(3, 'tool', [
            {
              type: 'tool_result',
              tool_use_id: toolUseId(1),
              content: [{ type: 'text', text: 'r' }, image],
              is_error: true,
            },
          ]),
          assistant(toolUse(2)),
        ],
      }),
    );
    expect(body).toMatchObject({
      model: 'gpt',
      stream: true,
      stream_options: { include_usage: true },
      max_completion_tokens: 1000,
      stop: ['1', '2', '3', '4'],
      temperature: 0,
    });
    expect(body.tools).toEqual([
      { type: 'function', function: { name: 't', description: 'does t', parameters: { type: 'object' } } },
    ]);
    expect(body.messages).toEqual([
      { role: 'system', content: 'S\n\nV' },
      { role: 'user', content: 'plain' },
      {
        role: 'user',
        content: [
          { type: 'text', text: 'see' },
          { type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } },
        ],
      },
      {
        role: 'assistant',
        content: 'a\nb',
        tool_calls: [{ id: toolUseId(1), type: 'function', function: { name: 't', arguments: '{"x":1}' } }],
      },
      { role: 'tool', tool_call_id: toolUseId(1), content: '[tool error] r\n[image]' },
      {
        role: 'assistant',
        content: null,
        tool_calls: [{ id: toolUseId(2), type: 'function', function: { name: 'read_file', arguments: '{}' } }],
      },
      {
        role: 'tool',
        tool_call_id: toolUseId(2),
        content: '[tool error] Tool call was interrupted before it produced a result.',
      },
    ]);
  });

  test('options change the fields they name; extra_body is merged last but never asks for choices', () => {
    const local = modelEntry('openai:gpt', {
      extra_body: { n: 3, stream: false, temperature: 1, reasoning_effort: 'low' },
    });
    const body = encode(request({ entry: local, rest: { temperature: 0 } }), {
      stream_usage: false,
      max_tokens_field: 'max_tokens',
    });
    expect(body).toMatchObject({ max_tokens: 1000, temperature: 1, reasoning_effort: 'low', stream: true });
    for (const key of ['n', 'stream_options', 'max_completion_tokens']) expect(body).not.toHaveProperty(key);
  });

  // Promise 22.1: an effort is reasoning_effort for OpenAI and reasoning.effort for OpenRouter.
  test('an effort is reasoning_effort for OpenAI, and joins what else an entry says of reasoning for OpenRouter', () => {
    expect(encode(request({ entry, rest: { effort: 'low' } }))).toMatchObject({ reasoning_effort: 'low' });
    expect(encode(request({ entry }))).not.toHaveProperty('reasoning_effort');
    const routed = modelEntry('openrouter:anthropic/claude', { extra_body: { reasoning: { exclude: true } } });
    const body = encode(request({ entry: routed, rest: { effort: 'xhigh' } }), {}, 'openrouter');
    expect(body).toMatchObject({ reasoning: { exclude: true, effort: 'xhigh' } });
    expect(body).not.toHaveProperty('reasoning_effort');
  });

  // Promise 22.1: an effort is reasoning.effort over Responses.
  test('over Responses an effort is reasoning.effort, beside what an entry has of reasoning', () => {
    const thinking = modelEntry('openai:gpt', { extra_body: { reasoning: { summary: 'auto' } } });
    const encodeResponses = (effort: 'low' | null) =>
      JSON.parse(bodyText(createResponsesEncoder(silentLogger)(request({ entry: thinking, rest: { effort } }))));
    expect(encodeResponses('low').reasoning).toEqual({ summary: 'auto', effort: 'low' });
    expect(encodeResponses(null).reasoning).toEqual({ summary: 'auto' });
  });

  test('a schema is strict only when every object in it is closed and complete', () => {
    const closed = {
      type: 'object',
      additionalProperties: false,
      required: ['a'],
      properties: {
        a: { type: 'array', items: { type: 'object', additionalProperties: false, required: [], properties: {} } },
      },
    };
    expect(isStrict(closed)).toBe(true);
    expect(isStrict({ ...closed, required: [] })).toBe(false);
    expect(isStrict({ ...closed, properties: { a: { type: 'object', properties: {} } } })).toBe(false);
    const body = encode(request({ entry, rest: { output_schema: closed } }));
    expect(body.response_format).toEqual({
      type: 'json_schema',
      json_schema: { name: 'response', schema: closed, strict: true },
    });
  });

  test('OpenRouter marks the stable system text for upstreams that need it, and nothing else', () => {
    const rest = { system_prompt: 'S', system_prompt_volatile: 'V' };
    const marked = encode(
      request({ entry: modelEntry('openrouter:anthropic/claude'), rest, tools: ['t'] }),
      {},
      'openrouter',
    );
    expect(marked.messages[0]).toEqual({
      role: 'system',
      content: [
        { type: 'text', text: 'S', cache_control: { type: 'ephemeral' } },
        { type: 'text', text: 'V' },
      ],
    });
    expect(JSON.stringify(marked).match(/cache_control/g)).toHaveLength(1);
    expect(marked).not.toHaveProperty('provider');
    const plain = encode(request({ entry: modelEntry('openrouter:deepseek/v3'), rest }), {}, 'openrouter');
    expect(plain.messages[0]).toEqual({ role: 'system', content: 'S\n\nV' });
  });
});
