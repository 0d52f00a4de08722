// Hostile and odd bodies: spliced right or refused, never a request other than the client's (19 §2.2, §2.7).
import http from 'node:http';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { applySplices, findObjectMembers } from '#core/policy/gateway/json-members.ts';
import { readRequestFacts } from '#core/policy/gateway/request-facts.ts';
import { CLIENT_BODY } from '#core/policy/parsing/text-limits.ts';
import { claudeCode, jsonOf, startGateway } from './world.ts';

const OPUS = 'claude-opus-4-7';
const bytes = (text: string) => Buffer.from(text);

describe('the members of an object', () => {
  test('are where JSON has them, for any object that JSON can write', () => {
    const json = fc.json({ maxDepth: 4 });
    const spaces = fc.stringMatching(/^[ \n\r\t]{0,3}$/);
    fc.assert(
      fc.property(fc.dictionary(fc.string(), json, { maxKeys: 6 }), spaces, (object, gap) => {
        const entries = Object.entries(object);
        const text = `${gap}{${entries.map(([key, value]) => `${gap}${JSON.stringify(key)}${gap}:${gap}${value}${gap}`).join(',')}}${gap}`;
        const found = findObjectMembers(bytes(text), CLIENT_BODY);
        if (!found.ok) throw new Error(found.error);
        expect(
          found.value.map(({ key, from, to }) => [key, JSON.parse(bytes(text).subarray(from, to).toString())]),
        ).toEqual(entries.map(([key, value]) => [key, JSON.parse(value)]));
        const splices = found.value.slice(0, 3).map(({ from, to }, i) => ({ from, to, text: `"new ${i}"` }));
        // In whatever order they were found.
        const after = JSON.parse(Buffer.concat(applySplices(bytes(text), splices.toReversed())).toString());
        const wanted = Object.fromEntries(
          entries.map(([key, value], i) => [key, i < 3 ? `new ${i}` : JSON.parse(value)]),
        );
        expect(after).toEqual(wanted);
      }),
    );
  });

  test('garbage of any bytes is a fault or a parse, never a throw and never endless', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 300 }), fc.string(), (raw, text) => {
        for (const one of [Buffer.from(raw), bytes(`{"model":${text}`), bytes(`{${text}}`)])
          expect(typeof readRequestFacts('messages', one).ok).toBe('boolean');
      }),
    );
  });
});

test('a body of usual length goes out as one piece, and of a long one nothing is copied that stays as it is', () => {
  const bodyOf = (length: number) => bytes(`{"model":"a","x":"${'y'.repeat(length)}"}`);
  const changed = { from: 9, to: 12, text: '"bc"' };
  expect(applySplices(bodyOf(100_000), [changed]).map(String)).toEqual([`{"model":"bc","x":"${'y'.repeat(100_000)}"}`]);
  const long = bodyOf(1_000_000);
  const pieces = applySplices(long, [changed]);
  expect(Buffer.concat(pieces).toString()).toBe(`{"model":"bc","x":"${'y'.repeat(1_000_000)}"}`);
  expect(pieces.at(-1)!.buffer).toBe(long.buffer);
});

test.each([
  ['a truncated body', '{"model":"claude-opus-4-7","messages":[{"role":"us'],
  ['a key that is there twice', '{"model":"claude-haiku-4-5","model":"claude-opus-4-7","max_tokens":5}'],
  ['a key that is there twice, once in escapes', '{"model":"claude-haiku-4-5","mod\\u0065l":"claude-opus-4-7"}'],
  ['no object', '["model"]'],
  ['an empty body', ''],
  ['a name that is no name', '{"model":{"a":1},"max_tokens":5}'],
  ['a name with spaces', '{"model":"a b","max_tokens":5}'],
  ['nesting without end', `{"model":"claude-opus-4-7","x":${'['.repeat(100_000)}`],
  ['nesting beyond the limit', `{"model":"claude-opus-4-7","x":${'['.repeat(200)}${']'.repeat(200)}}`],
  ['something behind the object', '{"model":"claude-opus-4-7"} {"model":"x"}'],
])('%s is refused in the envelope of the wire, and nothing is sent', async (_, body) => {
  const { post, provider } = await startGateway();
  const answer = await post('/v1/messages', body, claudeCode('s1'));
  expect([answer.status, await jsonOf(answer)]).toMatchObject([
    400,
    { type: 'error', error: { type: 'invalid_request_error' } },
  ]);
  expect(answer.headers.get('x-should-retry')).toBe('false');
  expect(provider.received).toEqual([]);
});

test('a model in a string, in another object or behind escapes is not the model; the one that is, is replaced', async () => {
  const { post, provider } = await startGateway();
  const bodies = [
    [
      '{"messages":[{"role":"user","content":"{\\"model\\":\\"opus\\"}"}],"metadata":{"model":"opus"},"model":"opus","max_tokens":5}',
      '"model":"opus","max',
    ],
    ['{"mod\\u0065l":"op\\u0075s","max_tokens":5,"messages":[]}', ':"op\\u0075s"'],
    ['{"max_tokens":5,"messages":[],"tools":[{"name":"\\\\\\"model\\\\\\":"}],  "model"  :  "opus"  }', '"opus"  }'],
  ] as const;
  for (const [body, place] of bodies) {
    expect((await post('/v1/messages', body, claudeCode('s1'))).status).toBe(200);
    const sent = provider.received.at(-1)!.bytes.toString();
    const name = place.replace('"opus"', `"${OPUS}"`).replace('"op\\u0075s"', `"${OPUS}"`);
    expect(sent).toBe(body.replace(place, name));
  }
});

test('bytes that are no UTF-8 go on as they came', async () => {
  const { post, provider } = await startGateway();
  const body = Buffer.concat([
    bytes(`{"model":"${OPUS}","max_tokens":5,"x":"`),
    Buffer.from([0xff, 0xfe, 0xc3]),
    bytes('"}'),
  ]);
  expect((await post('/v1/messages', body)).status).toBe(200);
  expect(provider.received[0]!.bytes.equals(body)).toBe(true);
});

test('a path written with escapes goes to the same path, and no other', async () => {
  const { post, provider } = await startGateway();
  expect((await post('/v1/m%65ssages?beta=true', { model: OPUS, max_tokens: 5 })).status).toBe(200);
  expect((await post('/v1/messages/count%5Ftokens', { model: OPUS })).status).toBe(200);
  expect(provider.received.map(({ path }) => path)).toEqual(['/v1/messages?beta=true', '/v1/messages/count_tokens']);
});

// Promise 19.15: 33 MiB are 413.
test('33 MiB are too much, 31 MiB pass', async () => {
  const { post, provider } = await startGateway();
  const of = (mebibytes: number) => `{"model":"${OPUS}","max_tokens":5,"x":"${'x'.repeat(mebibytes * 1024 * 1024)}"}`;
  const large = await post('/v1/messages', of(33));
  expect([large.status, (await jsonOf(large)).error.type]).toEqual([413, 'request_too_large']);
  expect((await post('/v1/messages', of(31))).status).toBe(200);
  expect(provider.received).toHaveLength(1);
});

test.each([['"3"'], ['0'], ['1.5'], ['[2]']])('as many answers as %s are no count', async (n) => {
  const { post, provider } = await startGateway();
  const answer = await post('/v1/chat/completions', `{"model":"gpt-5","messages":[],"n":${n}}`);
  expect([answer.status, (await jsonOf(answer)).error.message]).toEqual([400, 'n: must be a whole number from 1']);
  expect((await post('/v1/chat/completions', '{"model":"gpt-5","messages":[],"n":null}')).status).toBe(200);
  expect(provider.received).toHaveLength(1);
});

test('a base URL with /v1 in a client that adds it is told so in its envelope', async () => {
  const { post } = await startGateway();
  const answer = await post('/v1/v1/messages', { model: OPUS });
  expect([answer.status, (await jsonOf(answer)).error]).toEqual([
    404,
    { type: 'not_found_error', message: 'this client adds /v1 to its base URL by itself: set it without /v1' },
  ]);
});

test('both official clients read one model, and a name that is not listed is 404 in their envelope', async () => {
  const { anthropic, openai, server } = await startGateway();
  const opus = (await openai().models.list()).data.find(({ id }) => id === OPUS);
  expect(await openai().models.retrieve(OPUS)).toEqual(opus);
  expect(await anthropic().models.retrieve(OPUS)).toMatchObject({ id: OPUS, type: 'model' });
  const message = 'no model "a/b"; GET /v1/models shows what there is';
  await expect(openai().models.retrieve('a/b')).rejects.toMatchObject({ status: 404, error: { message } });
  await expect(anthropic().models.retrieve('a/b')).rejects.toMatchObject({
    status: 404,
    error: { error: { type: 'not_found_error', message } },
  });
  expect((await jsonOf(await fetch(`${server.url}/v1/models/a/b`))).error.message).toBe(message);
});

// Promise 19.30: a model by each of its names.
test('a model is read by each name that a call may ask for it by', async () => {
  const { anthropic, openai } = await startGateway();
  const names = ['opus', `${OPUS}-20260101`, `${OPUS}[1m]`, `${OPUS}-20260101[1m]`, `anthropic:${OPUS}`];
  for (const name of names) {
    expect(await anthropic().models.retrieve(name)).toMatchObject({ id: OPUS, type: 'model' });
    expect(await openai().models.retrieve(name)).toMatchObject({ id: OPUS, object: 'model' });
  }
  expect(await openai().models.retrieve('gpt-5-20260101')).toMatchObject({ id: 'gpt-5' });
  expect(await openai().models.retrieve('auto')).toMatchObject({ id: 'claude-auto' });
  await expect(openai().models.retrieve('gpt-5-2026')).rejects.toMatchObject({ status: 404 });
});

// Promise 19.30: WebSockets.
test.each([
  ['/v1/responses', {}, { error: { code: 'validation_error', type: 'invalid_request_error', param: null } }],
  ['/v1/messages', {}, { type: 'error', error: { type: 'invalid_request_error' } }],
  ['/v1/realtime', {}, { error: { code: 'validation_error' } }],
  ['/v1/realtime', { 'x-api-key': 'k' }, { type: 'error' }],
])('a WebSocket at %s with %j is refused in the envelope of its client', async (target, headers, expected) => {
  const { server } = await startGateway();
  const answer = await new Promise<{ status: number | undefined; body: string }>((resolve, reject) => {
    const upgrade = { connection: 'Upgrade', upgrade: 'websocket', 'sec-websocket-version': '13', ...headers };
    const request = http.get(`${server.url}${target}`, {
      headers: { ...upgrade, 'sec-websocket-key': 'dGhlIHNhbXBsZSBub25jZQ==' },
    });
    request.once('error', reject).once('response', async (response) => {
      const pieces: Buffer[] = [];
      for await (const piece of response) pieces.push(piece as Buffer);
      resolve({ status: response.statusCode, body: Buffer.concat(pieces).toString() });
    });
  });
  expect([answer.status, JSON.parse(answer.body)]).toMatchObject([400, expected]);
});

// Promise 19.30: other paths.
test('other paths are 404 in the envelope of the wire, and 0 streams switch the gateway off', async () => {
  const { post, server, provider } = await startGateway();
  const embeddings = await post('/v1/embeddings', { model: 'x' });
  expect([embeddings.status, await jsonOf(embeddings)]).toEqual([
    404,
    { error: { message: expect.any(String), type: 'invalid_request_error', param: null, code: 'not_found' } },
  ]);
  const missing = (target: string, headers: Record<string, string> = {}) =>
    post(target, { model: 'x' }, headers).then(jsonOf);
  const anthropic = { type: 'error', error: { type: 'not_found_error' } };
  const openai = { error: { code: 'not_found', param: null } };
  expect(await missing('/v1/messages/batches')).toMatchObject(anthropic);
  expect(await missing('/v1/files', { 'anthropic-version': '2023-06-01' })).toMatchObject(anthropic);
  expect(await missing('/v1/files', { 'x-api-key': 'k' })).toMatchObject(anthropic);
  expect(await missing('/v1/responses/r1/input_items')).toMatchObject(openai);
  expect(await missing('/v1/v1/messages')).toMatchObject(anthropic);
  expect(await missing('/v1/v1/responses')).toMatchObject(openai);
  expect((await fetch(`${server.url}/v1/models/x`)).status).toBe(404);
  const off = await startGateway(undefined, { config: { gateway: { max_streams: 0 } } });
  expect((await off.post('/v1/messages', { model: OPUS })).status).toBe(404);
  expect(provider.received).toEqual([]);
});

test('one call more than gateway.max_streams is told to come again', async () => {
  let go = () => {};
  const held = new Promise<void>((resolve) => {
    go = resolve;
  });
  const { post, server } = await startGateway(() => ({ before: held }), { config: { gateway: { max_streams: 1 } } });
  const body = { model: OPUS, max_tokens: 5, messages: [] };
  const first = post('/v1/messages', body);
  await server.event('llm.call_started');
  const second = await post('/v1/messages', body);
  expect([second.status, second.headers.get('retry-after'), (await jsonOf(second)).error.type]).toEqual([
    429,
    '5',
    'rate_limit_error',
  ]);
  go();
  expect((await first).status).toBe(200);
});

// Promise 19.15: both SDKs read /v1/models, count_tokens leaves no row.
test('both official clients read the models; counting tokens leaves no row', async () => {
  const { anthropic, openai, server, provider } = await startGateway();
  const names = async (list: AsyncIterable<{ readonly id: string }>) => {
    const found: string[] = [];
    for await (const { id } of list) found.push(id);
    return found;
  };
  const expected = ['claude-opus-4-7', 'claude-haiku-4-5', 'gpt-5', 'gpt-5-mini', 'claude-auto'];
  expect(await names(await anthropic().models.list())).toEqual(expected);
  expect(await names(await openai().models.list())).toEqual(expected);
  const counted = await anthropic().messages.countTokens({
    model: 'opus',
    messages: [{ role: 'user', content: 'hi' }],
  });
  expect(counted.input_tokens).toBe(7);
  expect(provider.received[0]!.path).toBe('/v1/messages/count_tokens');
  expect(provider.received[0]!.body.model).toBe(OPUS);
  expect(server.events).toEqual([]);
  expect((await server.client.listSessions({})).sessions).toEqual([]);
});
