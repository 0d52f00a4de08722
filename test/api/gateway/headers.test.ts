// Names that no header can hold, and headers of a provider that speak for this server's address (19 §2.2).
import { expect, test } from 'vitest';
import type { HttpResponse } from '#models/http/provider-http.ts';
import { registryAt } from '../../support/registry-at.ts';
import { jsonOf, startGateway } from './world.ts';

const OPUS = 'claude-opus-4-7';
const ask = (model: string, rest: object = {}) => ({
  model,
  max_tokens: 50,
  messages: [{ role: 'user', content: 'hi' }],
  ...rest,
});
const ends = (type: string) => type === 'llm.call_completed' || type === 'llm.call_failed';

// Promise 19.32: a name that no header can hold is refused before anything is sent.
test.each([
  ['of another script', '模型-1'],
  ['with a control character', `${OPUS}\u0000`],
  ['with an invisible character', `${OPUS}\u200b`],
  ['with half a character', '\ud800'],
  ['with a line break', `${OPUS}\r\nx-metis-session: other`],
])('a name %s that no registry lists is refused at once, on every wire, before anything is sent', async (_, model) => {
  const world = await startGateway();
  for (const path of ['/v1/messages', '/v1/messages/count_tokens', '/v1/chat/completions', '/v1/responses']) {
    const answer = await world.post(path, ask(model, { stream: true }));
    expect([path, answer.status]).toEqual([path, 400]);
    expect((await jsonOf(answer)).error.message).toMatch(/model/);
  }
  expect(world.provider.received).toEqual([]);
  expect(world.server.engine.gateway.calls.size).toBe(0);
});

test('a model that the registry names in another script answers, its id written so that a header can hold it', async () => {
  const world = await startGateway(undefined, {
    registry: registryAt(
      { anthropicUrl: 'http://127.0.0.1:9', openaiUrl: 'http://127.0.0.1:9/v1' },
      '  anthropic:模型: { capabilities: { max_context_tokens: 1000, max_output_tokens: 100 } }',
    ),
    send: async () => answerWith([['content-type', 'application/json']]),
  });
  for (const path of ['/v1/messages', '/v1/messages/count_tokens']) {
    const answer = await world.post(path, ask('模型'));
    expect([answer.status, answer.headers.get('x-metis-model')]).toEqual([
      200,
      `anthropic:${encodeURIComponent('模型')}`,
    ]);
    await answer.text();
  }
});

function answerWith(headers: HttpResponse['headers'], status = 200): HttpResponse {
  const pieces = [Buffer.from('{"content":[],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}')];
  return {
    status,
    headers,
    header: (name) => headers.find(([one]) => one === name)?.[1] ?? null,
    readPiece: async () => pieces.shift() ?? null,
    readPieces: () => Promise.reject(new Error('the gateway reads piece by piece')),
    isEnded: () => pieces.length === 0,
    cancel: () => {},
  };
}

// Promise 19.32: an answer that cannot be handed on ends, settled and logged.
test('an answer whose head cannot be written ends for the client, and its call is settled and logged', async () => {
  const world = await startGateway(undefined, { send: async () => answerWith([['bad name', 'x']]) });
  for (const path of ['/v1/messages', '/v1/messages/count_tokens'])
    await expect(world.post(path, ask(OPUS))).rejects.toThrow();
  await world.server.until(() => world.server.events.find(({ type }) => ends(type)));
  expect(world.server.events.filter(({ type }) => ends(type))).toHaveLength(1);
  expect(world.server.engine.gateway.calls.size).toBe(0);
  expect(world.server.log.filter(({ msg }) => msg === 'an answer broke off')).toHaveLength(2);
});

// Promise 19.32: a provider's headers do not speak for this server.
test('headers of a provider that speak for an address or its pages stay away, those about the answer pass', async () => {
  const bad = {
    'access-control-allow-origin': '*',
    'access-control-allow-credentials': 'true',
    'alt-svc': 'h3=":443"',
    'cache-control': 'public, max-age=9999',
    'clear-site-data': '"*"',
    connection: 'keep-alive, x-of-the-connection',
    'content-security-policy': "default-src 'none'",
    'content-security-policy-report-only': "default-src 'none'",
    'cross-origin-opener-policy': 'same-origin',
    expires: 'Thu, 01 Jan 2099 00:00:00 GMT',
    link: '</x>; rel=preload',
    location: 'https://elsewhere.example/',
    nel: '{}',
    refresh: '0; url=https://elsewhere.example/',
    'report-to': '{}',
    'set-cookie': 'a=b',
    'strict-transport-security': 'max-age=99999',
    'www-authenticate': 'Basic',
    'x-frame-options': 'DENY',
    'x-metis-model': 'false',
    'x-metis-not-taken': '1',
    'x-metis-session': 'sess_false',
    'x-of-the-connection': 'x',
  };
  const good = {
    'request-id': 'req_1',
    'anthropic-ratelimit-requests-remaining': '7',
    'x-unknown': 'kept',
    etag: '"1"',
  };
  const world = await startGateway(({ body }) => ({
    headers: { ...bad, ...good },
    ...(body.max_tokens === 1 ? { status: 429, raw: '{}' } : {}),
  }));
  const session = /^sess_[0-9A-Z]{26}$/;
  for (const [path, rest] of [
    ['/v1/messages', {}],
    ['/v1/messages', { stream: true }],
    ['/v1/messages', { max_tokens: 1 }],
    ['/v1/messages/count_tokens', {}],
    ['/v1/chat/completions', {}],
    ['/v1/responses', { stream: true }],
  ] as const) {
    const answer = await world.post(path, ask(path.includes('messages') ? OPUS : 'gpt-5', rest));
    const headers = Object.fromEntries(answer.headers);
    await answer.text();
    expect(headers).toMatchObject({ ...good, 'cache-control': 'no-store', 'x-content-type-options': 'nosniff' });
    for (const [name, value] of Object.entries(bad)) expect([name, headers[name]]).not.toEqual([name, value]);
    for (const name of [
      'access-control-allow-origin',
      'clear-site-data',
      'content-security-policy',
      'x-metis-not-taken',
    ])
      expect([name, headers[name]]).toEqual([name, undefined]);
    if (!path.endsWith('count_tokens')) expect(headers['x-metis-session']).toMatch(session);
  }
});
