// A call through the gateway: the same bytes there and back, and one exact row behind them (19 §2.2).
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { deflateRawSync, gzipSync } from 'node:zlib';
import { describe, expect, onTestFinished, test } from 'vitest';
import { registryAt } from '../../support/registry-at.ts';
import { claudeCode, startGateway } from './world.ts';

/** What clients of each wire send, with what nobody here has heard of. */
const BODIES = {
  '/v1/messages?beta=true': {
    model: 'claude-opus-4-7',
    body: '{"model": "claude-opus-4-7", "max_tokens": 1.0e2, "stream":STREAM, "system":[{"type":"text","text":"be brief","cache_control":{"type":"ephemeral"}}],"messages":[{"role":"user","content":"\\u00e9\\ud83d\\ude00 \\"quoted\\" {\\"model\\":\\"other\\"}"}],"temperature":1.0,"x_unknown":{"deep":[1,2,{"model":"no"}]}}',
  },
  '/v1/chat/completions': {
    model: 'gpt-5',
    body: '{ "messages": [ {"role":"user","content":"model\\": \\"x"} ], "model":"gpt-5","stream":STREAM,"stream_options":{"include_usage":true,"x":1.0},"max_completion_tokens": 50 ,"metadata":{"a":"b"}}',
  },
  '/v1/responses': {
    model: 'gpt-5',
    body: '{"input":[{"role":"user","content":[{"type":"input_text","text":"hi"}]}],"store":false,"stream":STREAM,\n"model":"gpt-5","reasoning":{"effort":"low"},"max_output_tokens":64,"unknown":[1.0,-0,1e2]}',
  },
} as const;

describe.each(Object.entries(BODIES))('%s', (path, { body, model }) => {
  // Promise 19.1: each wire, stream and not, with unknown fields and headers, escapes and `1.0`: same bytes at the provider and at the client.
  // Promise 19.2: each wire's counts give the exact row, and group_by=door sums it.
  test.each([true, false])(
    'same bytes at the provider, same bytes at the client, one exact row (stream: %s)',
    async (stream) => {
      const { provider, post, server } = await startGateway(() => ({ usage: { input: 90, cached: 10, output: 20 } }));
      const sent = body.replace('STREAM', String(stream));
      const headers = { 'x-unknown': 'kept', 'x-metis-session': 'one', cookie: 'secret=1' };
      const response = await post(path, sent, headers);
      expect(response.status).toBe(200);
      expect(await response.text()).toBe(provider.sent[0]);
      const [call] = provider.received;
      expect(call!.bytes.toString()).toBe(sent);
      expect(call!.path).toBe(path);
      expect(call!.headers).toMatchObject({ 'x-unknown': 'kept', 'accept-encoding': 'identity' });
      for (const name of Object.keys(call!.headers)) expect(name).not.toMatch(/^(x-metis-|cookie)/);
      const [session] = (await server.client.listSessions({ door: 'gateway' })).sessions;
      expect(response.headers.get('x-metis-session')).toBe(session!.id);
      expect(response.headers.get('x-metis-model')).toMatch(new RegExp(`:${model}$`));
      const rows = server.events.flatMap((event) => (event.type === 'llm.call_completed' ? [event.payload] : []));
      expect(rows).toEqual([
        expect.objectContaining({
          input_tokens: 90,
          cached_input_tokens: 10,
          output_tokens: 20,
          usage_estimated: false,
          stop_reason: 'end_turn',
          purpose: 'gateway',
          message_id: null,
          priced: true,
        }),
      ]);
      const { data } = await server.client.getCost({ group_by: 'door', from: 'all' });
      expect(data).toEqual([expect.objectContaining({ door: 'gateway', cost_usd: rows[0]!.cost_usd, call_count: 1 })]);
      expect(session).toMatchObject({
        door: 'gateway',
        client: 'node',
        client_ref: 'one',
        cost_so_far_usd: rows[0]!.cost_usd,
        last_model: rows[0]!.model,
        status: 'idle',
      });
      expect(server.events.map(({ type }) => type)).toEqual([
        'session.created',
        'route.decided',
        'llm.call_started',
        'llm.call_completed',
      ]);
    },
  );
});

test('the official clients read their answers, streamed and whole', async () => {
  const { anthropic, openai } = await startGateway();
  const messages = [{ role: 'user' as const, content: 'hi' }];
  const claude = anthropic(claudeCode('s1'));
  const asked = { model: 'claude-opus-4-7', max_tokens: 100, messages };
  expect((await claude.messages.create(asked)).content).toMatchObject([{ text: 'hello' }]);
  expect((await claude.messages.stream(asked).finalMessage()).content).toMatchObject([{ text: 'hello' }]);
  const gpt = openai();
  const chat = await gpt.chat.completions.create({ model: 'gpt-5', messages });
  expect(chat.choices[0]?.message.content).toBe('hello');
  let said = '';
  const chunks = [];
  for await (const chunk of await gpt.chat.completions.create({ model: 'gpt-5', messages, stream: true })) {
    chunks.push(chunk);
    said += chunk.choices[0]?.delta.content ?? '';
  }
  expect(said).toBe('hello');
  expect(chunks.every((chunk) => chunk.choices.length > 0)).toBe(true);
  expect((await gpt.responses.create({ model: 'gpt-5', input: 'hi' })).output_text).toBe('hello');
  const types: string[] = [];
  for await (const event of await gpt.responses.create({ model: 'gpt-5', input: 'hi', stream: true }))
    types.push(event.type);
  expect(types.at(-1)).toBe('response.completed');
});

// Promise 19.3: a chat stream without include_usage is set upstream, not shown downstream, and booked exactly.
test('a chat stream without include_usage is asked for counts that its client does not see', async () => {
  const { provider, post, server } = await startGateway(() => ({ usage: { input: 5, output: 6 } }));
  const bodies = [
    '{"model":"gpt-5","stream":true,"messages":[]}',
    '{"model":"gpt-5","stream":true,"stream_options":{},"messages":[]}',
    '{"model":"gpt-5","stream":true,"stream_options":{"include_usage":false,"x":1.0},"messages":[]}',
    '{"model":"gpt-5","stream":true,"stream_options":null,"messages":[]}',
  ];
  for (const body of bodies) {
    const said = await (await post('/v1/chat/completions', body)).text();
    expect(said).not.toContain('"usage"');
    expect(said).toContain('[DONE]');
  }
  expect(provider.received.map(({ bytes }) => bytes.toString())).toEqual([
    '{"stream_options":{"include_usage":true},"model":"gpt-5","stream":true,"messages":[]}',
    '{"model":"gpt-5","stream":true,"stream_options":{"include_usage":true},"messages":[]}',
    '{"model":"gpt-5","stream":true,"stream_options":{"include_usage":true,"x":1.0},"messages":[]}',
    '{"model":"gpt-5","stream":true,"stream_options":{"include_usage":true},"messages":[]}',
  ]);
  for (const event of server.events)
    if (event.type === 'llm.call_completed')
      expect(event.payload).toMatchObject({ input_tokens: 5, output_tokens: 6, usage_estimated: false });
});

// Promise 19.2: an answer cut by the provider is a destroyed socket and a cancelled row by estimate.
test('an answer that the provider breaks off reaches the client as broken off, and is booked by estimate', async () => {
  const { post, server } = await startGateway(() => ({ breaks: true, usage: null }));
  const body = { model: 'gpt-5', stream: true, messages: [{ role: 'user', content: 'x'.repeat(400) }] };
  const response = await post('/v1/chat/completions', body);
  await expect(response.text()).rejects.toThrow();
  const booked = await server.event('llm.call_completed');
  expect(booked.payload).toMatchObject({ stop_reason: 'cancelled', error_class: 'network', usage_estimated: true });
  expect(booked.payload.output_tokens).toBe(Math.ceil('hello'.length / 4));
});

// Promise 19.12: the provider's 429, its retry-after and body arrive unchanged after one request.
test("a provider's refusal arrives unchanged after one request, and counts for routing", async () => {
  const raw = '{"type":"error","error":{"type":"rate_limit_error","message":"slow down, you"}}';
  const { provider, post, server } = await startGateway(() => ({
    status: 429,
    headers: { 'retry-after': '7', 'x-ratelimit': '3' },
    raw,
  }));
  const response = await post('/v1/messages', { model: 'claude-opus-4-7', max_tokens: 5, messages: [] });
  expect(response.status).toBe(429);
  expect(response.headers.get('retry-after')).toBe('7');
  expect(response.headers.get('x-ratelimit')).toBe('3');
  expect(await response.text()).toBe(raw);
  expect(provider.received).toHaveLength(1);
  const failed = await server.event('llm.call_failed');
  expect(failed.payload).toMatchObject({
    error_class: 'rate_limit',
    error_message_redacted: 'the provider answered 429 (rate_limit_error)',
    retry_count: 0,
  });
});

test.each([
  ['GZIP', gzipSync, null],
  ['x-gzip', gzipSync, null],
  // Nobody here decodes it: the client is told what it gets.
  ['unheard-of', deflateRawSync, 'unheard-of'],
])('an answer that the provider encodes unasked, as %s, can be read by the client', async (coding, encode, told) => {
  const whole = '{"type":"message","content":[],"stop_reason":"end_turn","usage":{"input_tokens":7,"output_tokens":3}}';
  const bytes = encode(whole);
  const provider = createServer((request, response) => {
    request.resume();
    response.writeHead(200, { 'content-type': 'application/json', 'content-encoding': coding });
    response.end(bytes);
  });
  onTestFinished(() => {
    provider.closeAllConnections();
    provider.close();
  });
  await once(provider.listen(0, '127.0.0.1'), 'listening');
  const url = `http://127.0.0.1:${(provider.address() as AddressInfo).port}`;
  const { post, server } = await startGateway(undefined, {
    registry: registryAt({ anthropicUrl: url, openaiUrl: url }),
  });
  const response = await post('/v1/messages', { model: 'claude-opus-4-7', max_tokens: 5, messages: [] });
  expect(response.headers.get('content-encoding')).toBe(told);
  expect(Buffer.from(await response.arrayBuffer())).toEqual(told === null ? Buffer.from(whole) : bytes);
  const { payload } = await server.event('llm.call_completed');
  expect(payload.usage_estimated).toBe(told !== null);
});
