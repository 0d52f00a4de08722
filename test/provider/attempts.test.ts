// Attempts against a real server: errors, retries, timers, cancellation, and what is on the wire (11.1, 11.3, 11.7, 11.8).
import { getEventListeners } from 'node:events';
import { afterEach, describe, expect, test, vi } from 'vitest';
import type { Send } from '#models/http/provider-http.ts';
import { Cancelled, orAbort } from '#protocol/abort.ts';
import { displayKey } from '#server/credentials.ts';
import { type FakeAnswer, type FakeCall, type FakeProvider, startFakeProvider } from '../support/fake-provider.ts';
import {
  answer,
  bodySend,
  drain,
  fakeClock,
  modelEntry,
  type RealOptions,
  realAdapter,
  recordingLog,
  request,
  user,
} from './support.ts';

let server: FakeProvider | null = null;
afterEach(async () => {
  await server?.close();
  server = null;
});
async function serve(answers: (call: FakeCall) => FakeAnswer): Promise<FakeProvider> {
  server = await startFakeProvider(answers);
  return server;
}
const on = (provider: FakeProvider, over: Partial<RealOptions> = {}) => {
  const type = over.type ?? 'anthropic';
  return realAdapter({ ...over, type, baseUrl: type === 'anthropic' ? provider.anthropicUrl : provider.openaiUrl });
};
const ask = request({ entry: modelEntry('anthropic:claude'), messages: [user('hello')] });
const fine: FakeAnswer = { text: 'fine' };
/** Answers in order, the last one for ever. */
const inOrder =
  (...answers: FakeAnswer[]) =>
  (call: FakeCall) =>
    answers[Math.min(call.number, answers.length) - 1]!;

describe('retries', () => {
  // Promise 11.8: retry-after is obeyed.
  test('429 with retry-after: one sleep of that length, then the answer', async () => {
    const provider = await serve(
      inOrder(
        { status: 429, headers: { 'retry-after': '7' }, error: { type: 'rate_limit_error', message: 'slow' } },
        fine,
      ),
    );
    const { log, lines } = recordingLog();
    const clock = stepping();
    const { complete, text } = await drain(on(provider, { clock, log }), ask);
    expect(text).toBe('fine');
    expect(complete!.retry_count).toBe(1);
    expect(clock.sleeps()).toEqual([7000]);
    expect(complete!.latency_ms).toBeGreaterThanOrEqual(7000);
    expect(lines.filter((l) => l.level === 'warn')).toMatchObject([
      { fields: { attempt: 1, error_class: 'rate_limit', provider_status: 429 } },
    ]);
  });

  // Promise 11.8: retry-after is capped and read in all its forms.
  test.each([
    [{ 'retry-after': '300' }, 60_000],
    [{ 'retry-after-ms': '1500', 'retry-after': '9' }, 1500],
    [{ 'retry-after': new Date(1_700_000_000_000 + 4000).toUTCString() }, 4000],
    [{ 'retry-after': new Date(1_600_000_000_000).toUTCString() }, 0],
    [{ 'retry-after': 'soon' }, 1000],
    [{}, 1000],
  ])('a wait by the headers %j lasts %i ms', async (headers, expected) => {
    const provider = await serve(inOrder({ status: 503, headers, error: { message: 'x' } }, fine));
    const clock = stepping();
    await drain(on(provider, { clock }), ask);
    expect(clock.sleeps()).toEqual([expected]);
  });

  // Promise 11.8: overload is retried twice with jitter.
  test.each([
    [0, [750, 1500]],
    [0.999999, [1250, 2500]],
  ])(
    '529 three times: overloaded after two retries, with jitter of a quarter (random %f)',
    async (random, expected) => {
      const provider = await serve(() => ({ status: 529, error: { type: 'overloaded_error', message: 'busy' } }));
      const clock = stepping();
      const { events, error } = await drain(on(provider, { clock, random: () => random }), ask);
      expect(events).toEqual([]);
      expect(error).toMatchObject({
        error_class: 'rate_limit',
        error_detail: 'overloaded',
        retry_count: 2,
        retryable: true,
        provider_request_id: null,
      });
      expect(clock.sleeps().map(Math.round)).toEqual(expected);
      expect(provider.calls).toHaveLength(3);
    },
  );

  test('a sleep that would pass the total deadline is not begun', async () => {
    const provider = await serve(() => ({ status: 429, headers: { 'retry-after': '20' }, error: { message: 'x' } }));
    const clock = stepping();
    const { error } = await drain(on(provider, { clock, limits: { total: 10, connect: 5, idle: 5 } }), ask);
    expect(error).toMatchObject({ error_class: 'rate_limit', retry_count: 0, retry_after_seconds: 20 });
    expect(clock.sleeps()).toEqual([]);
  });
});

describe('classes', () => {
  // Promise 11.9: errors that cannot heal are classified and asked once.
  test.each([
    [401, { type: 'authentication_error', message: 'no' }, 'auth', null],
    [403, { message: 'no' }, 'auth', 'forbidden'],
    [
      403,
      { type: 'permission_error', message: 'Your account has no access to claude-opus-4-7' },
      'auth',
      'model_denied',
    ],
    [
      403,
      { type: 'permission_error', message: 'Your API key does not have permission to use the specified resource.' },
      'auth',
      'model_denied',
    ],
    [
      403,
      { message: 'Project `p` does not have access to model `gpt-5`', code: 'model_not_found' },
      'auth',
      'model_denied',
    ],
    [403, { type: 'permission_error', message: 'OAuth is not allowed for this organization.' }, 'auth', null],
    [403, { code: 'invalid_api_key', message: 'This key cannot use the model.' }, 'auth', null],
    [403, { message: 'Country, region, or territory not supported' }, 'auth', null],
    [
      403,
      { code: 403, message: 'x/y requires moderation. Your input was flagged.' },
      'invalid_request',
      'content_refused',
    ],
    [402, { code: 402, message: 'You can only afford 12 tokens; use fewer max_tokens.' }, 'auth', 'credit_too_low'],
    [
      404,
      { type: 'api_error', message: 'model "x" not found, try pulling it first' },
      'invalid_request',
      'model_not_found',
    ],
    [404, { type: 'not_found_error', message: 'File not found: model.pdf' }, 'invalid_request', 'not_found'],
    [
      404,
      { type: 'invalid_request_error', code: 'previous_response_not_found', message: 'model x not found' },
      'invalid_request',
      'not_found',
    ],
    [404, { code: 404, message: 'No endpoints found that support image input' }, 'invalid_request', 'not_found'],
    [404, { code: 404, message: 'No endpoints found for x/y.' }, 'invalid_request', 'model_not_found'],
    [402, { message: 'pay' }, 'auth', 'quota_exhausted'],
    [429, { type: 'insufficient_quota', code: 'insufficient_quota', message: 'pay' }, 'auth', 'quota_exhausted'],
    [
      400,
      { type: 'invalid_request_error', code: 'context_length_exceeded', message: 'long' },
      'context_overflow',
      null,
    ],
    [400, { type: 'invalid_request_error', message: 'Prompt is too long: 210000 tokens' }, 'context_overflow', null],
    [400, { type: 'invalid_request_error', message: 'max_tokens: must be positive' }, 'invalid_request', null],
    [413, { type: 'request_too_large', message: 'big' }, 'context_overflow', null],
    [404, { type: 'not_found_error', message: 'model: nope' }, 'invalid_request', 'model_not_found'],
    [422, { message: 'odd' }, 'invalid_request', null],
    [300, 'which', 'other', null],
  ])('%i %j is %s and is asked once', async (status, error, errorClass, detail) => {
    const provider = await serve(() => ({
      status,
      error,
      headers: { 'request-id': 'req_7', location: 'http://127.0.0.1:1/' },
    }));
    const result = await drain(on(provider), ask);
    expect(result.error).toMatchObject({
      error_class: errorClass,
      error_detail: detail,
      provider_status: status,
      retryable: false,
      provider_request_id: 'req_7',
    });
    expect(result.events).toEqual([]);
    expect(provider.calls).toHaveLength(1);
  });

  test.each([
    [500, { type: 'api_error', message: 'x' }, 'server_error'],
    [504, 'gateway timeout', 'server_error'],
    [408, { message: 'x' }, 'network'],
  ])('%i %j is %s and is tried again', async (status, error, errorClass) => {
    const provider = await serve(() => ({ status, error }));
    const result = await drain(on(provider, { clock: stepping() }), ask);
    expect(result.error).toMatchObject({ error_class: errorClass, retry_count: 2 });
    expect(provider.calls).toHaveLength(3);
  });

  test('an answer that is JSON instead of a stream is no success', async () => {
    const provider = await serve(() => ({ raw: ['{"content":[]}'], headers: { 'content-type': 'application/json' } }));
    expect((await drain(on(provider), ask)).error).toMatchObject({
      error_class: 'other',
      error_detail: 'not_a_stream',
    });
    await provider.close();
    server = null;
    const failing = await serve(() => ({
      raw: ['{"error":{"type":"overloaded_error","message":"x"}}'],
      headers: { 'content-type': 'application/json' },
    }));
    expect((await drain(on(failing, { clock: stepping() }), ask)).error).toMatchObject({
      error_class: 'rate_limit',
      error_detail: 'overloaded',
    });
  });

  test('a redirect is not followed: the key goes nowhere else, and nothing is tried again', async () => {
    const elsewhere = await startFakeProvider(() => fine);
    const headers = { location: `${elsewhere.anthropicUrl}/v1/messages` };
    try {
      const provider = await serve(() => ({ status: 307, headers, error: { message: 'moved' } }));
      const { error } = await drain(on(provider), ask);
      expect(error).toMatchObject({ error_class: 'other', error_detail: 'redirected', retry_count: 0 });
      expect(error!.message).toContain('base_url');
      expect([provider.calls.length, elsewhere.calls.length]).toEqual([1, 0]);
    } finally {
      await elsewhere.close();
    }
  });

  test('a server that is not there is a network failure with the reason of the system', async () => {
    const { error } = await drain(
      realAdapter({ type: 'anthropic', baseUrl: 'http://127.0.0.1:1', maxRetries: 0 }),
      ask,
    );
    expect(error).toMatchObject({ error_class: 'network' });
  });
});

describe('a stream that breaks off', () => {
  const overloaded = 'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"busy"}}\n\n';
  const head =
    'data: {"type":"message_start","message":{"model":"m","usage":{"input_tokens":12,"output_tokens":1}}}\n\ndata: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}\n\n';
  const said = 'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"partial"}}\n\n';

  // Promise 11.10: a stream that breaks off keeps its partial message and is not retried.
  test.each([
    ['a reset', { raw: [head, said], ending: 'reset' }, 'network', undefined],
    ['an early end', { raw: [head, said] }, 'network', 'stream_truncated'],
    ['an error event', { raw: [head, said, overloaded] }, 'rate_limit', 'overloaded'],
    ['bytes that are no JSON', { raw: [head, said, 'data: {oops}\n\n'] }, 'network', 'malformed_event'],
  ] as const)(
    'after a delta, by %s: the partial message, then the error, one request',
    async (_, answer, errorClass, detail) => {
      const provider = await serve(() => answer);
      const { events, complete, error } = await drain(on(provider), ask);
      expect(events.map((e) => e.type)).toEqual(['message.start', 'text.delta', 'message.complete']);
      expect(complete).toMatchObject({
        stop_reason: 'error',
        final_content: [{ type: 'text', text: 'partial' }],
        usage: { input_tokens: 12, output_tokens: 2, usage_estimated: true },
      });
      expect(error).toMatchObject({
        error_class: errorClass,
        retry_count: 0,
        provider_request_id: 'req_1',
        usage: { input_tokens: 12 },
      });
      if (detail !== undefined) expect(error!.error_detail).toBe(detail);
      expect(provider.calls).toHaveLength(1);
    },
  );

  // Promise 11.10: a failure before the first event is retried.
  test.each([
    ['a reset', { raw: [head], ending: 'reset' }],
    ['an early end', { raw: [head] }],
    ['an error event', { raw: [head, overloaded] }],
  ] as const)('before any delta, by %s: tried again', async (_, answer) => {
    const provider = await serve(inOrder(answer, fine));
    const { text, complete } = await drain(on(provider, { clock: stepping() }), ask);
    expect(text).toBe('fine');
    expect(complete!.retry_count).toBe(1);
  });

  test('counts that came before the first delta travel with the error', async () => {
    const provider = await serve(() => ({ raw: [head, overloaded] }));
    const { events, error } = await drain(on(provider, { clock: stepping() }), ask);
    expect(events).toEqual([]);
    expect(error!.usage).toMatchObject({ input_tokens: 12 });
  });
});

describe('timers', () => {
  // Promise 11.11: a silent stream ends in its idle time.
  test('headers and then silence: idle timeout in its time', async () => {
    const provider = await serve(() => ({ raw: [], ending: 'stall' }));
    const begun = performance.now();
    const { error } = await drain(on(provider, { maxRetries: 0, limits: { total: 20, connect: 20, idle: 0.3 } }), ask);
    expect(error).toMatchObject({ error_class: 'network', error_detail: 'timeout_idle' });
    expect(performance.now() - begun).toBeLessThan(2000);
    await provider.calls[0]!.disconnected;
  });

  test.each(['data: {"choices":[]}\n\n', ': waiting\n\n'])('%j without end is too large an answer', async (piece) => {
    const pieces = Array.from({ length: 700 }, () => Buffer.from(piece.repeat(1000)));
    const { error } = await drain(
      realAdapter({ type: 'openai', send: bodySend(pieces), maxRetries: 0 }),
      request({ model: 'openai:m' }),
    );
    expect(error).toMatchObject({ error_class: 'other', error_detail: 'response_too_large' });
  });

  test('bytes that never become an event do not keep a stream alive, comments do', async () => {
    const clock = fakeClock();
    const arrived: Buffer[] = [];
    let wake: () => void = () => {};
    const push = (text: string) => {
      arrived.push(Buffer.from(text));
      wake();
    };
    const dripping: Send = async ({ signal }) =>
      answer({ signal }, async () => {
        if (arrived.length === 0)
          await new Promise<void>((resolve) => {
            wake = resolve;
          });
        return arrived.shift() ?? null;
      });
    const running = drain(
      realAdapter({
        type: 'openai',
        clock,
        send: dripping,
        maxRetries: 0,
        limits: { total: 60, connect: 5, idle: 10 },
      }),
      ask,
    );
    for (let i = 0; i < 3; i++) {
      await clock.advance(8000);
      push(': alive\n\n');
    }
    let settled = false;
    running.then(
      () => (settled = true),
      () => {},
    );
    await clock.advance(6000);
    push('data: {"a":');
    expect(settled).toBe(false);
    await clock.advance(4001);
    expect((await running).error).toMatchObject({ error_detail: 'timeout_idle' });
  });

  test('no head of a response: connect timeout, tried again', async () => {
    const clock = fakeClock();
    let attempts = 0;
    const silent: Send = ({ signal }) => {
      attempts++;
      return orAbort(new Promise(() => {}), signal);
    };
    const running = drain(realAdapter({ type: 'openai', clock, send: silent, maxRetries: 1 }), ask);
    await clock.advance(30_000);
    await clock.advance(1000);
    await clock.advance(30_000);
    expect((await running).error).toMatchObject({
      error_class: 'network',
      error_detail: 'timeout_connect',
      retry_count: 1,
    });
    expect(attempts).toBe(2);
  });

  test('the total deadline ends a stream that still speaks, and nothing is tried again', async () => {
    const clock = fakeClock();
    const pings: Send = async ({ signal }) =>
      answer(
        { signal },
        () =>
          new Promise((resolve) => {
            const ping = clock.after(5000, () => resolve(Buffer.from(': ping\n\n')));
            signal.addEventListener('abort', () => ping.cancel());
          }),
      );
    const running = drain(
      realAdapter({ type: 'openai', clock, send: pings, limits: { total: 30, connect: 5, idle: 10 } }),
      ask,
    );
    await clock.advance(30_000);
    expect((await running).error).toMatchObject({
      error_class: 'network',
      error_detail: 'timeout_total',
      retry_count: 0,
    });
  });
});

describe('texts that arrive together', () => {
  test.each(['anthropic', 'openai'] as const)(
    'are one delta (%s), and what stands between them is not passed',
    async (type) => {
      const said = { text: 'aaaa bbbb cccc', delta: 4, tool_calls: [{ name: 'write', input: { path: 'a' } }] };
      const provider = await serve(() => ({ ...said, split: (bytes) => [bytes] }));
      const ask = request({ entry: modelEntry(`${type}:m`) });
      const { events, complete } = await drain(on(provider, { type, joinTextDeltas: true }), ask);
      expect(events.filter((event) => event.type === 'text.delta').map((event) => event.text)).toEqual([
        'aaaa bbbb cccc',
      ]);
      expect(complete!.final_content).toMatchObject([{ type: 'text', text: 'aaaa bbbb cccc' }, { type: 'tool_use' }]);
      const apart = await drain(on(provider, { type }), ask);
      expect(apart.events.filter((event) => event.type === 'text.delta')).toHaveLength(4);
    },
  );
});

describe('cancellation', () => {
  // Promise 11.12: cancelling closes the open call and the socket within 100 ms.
  test.each(['anthropic', 'openai'] as const)(
    'in mid-call (%s): the open call is closed, the socket too, within 100 ms',
    async (type) => {
      const provider = await serve(() => ({
        tool_calls: [{ name: 'write', input: { path: 'a', content: 'x'.repeat(200) } }],
        after: 6,
        ending: 'stall',
      }));
      const abort = new AbortController();
      let abortedAt = 0;
      let deltas = 0;
      const { events, complete, error } = await drain(
        on(provider, { type }),
        request({ entry: modelEntry(`${type}:m`) }),
        abort.signal,
        (event) => {
          if (event.type === 'tool.use_input_delta' && ++deltas === 2) {
            abortedAt = performance.now();
            abort.abort(new Cancelled('user_cancel'));
          }
        },
      );
      const took = performance.now() - abortedAt;
      await provider.calls[0]!.disconnected;
      expect(performance.now() - abortedAt).toBeLessThan(100);
      expect(took).toBeLessThan(100);
      expect(events.slice(-2)).toMatchObject([
        { type: 'tool.use_end', final_input: {}, input_error: 'incomplete' },
        { type: 'message.complete', stop_reason: 'cancelled' },
      ]);
      expect(deltas).toBe(2);
      expect(complete!.final_content).toMatchObject([{ type: 'tool_use', name: 'write', input: {} }]);
      expect(error).toMatchObject({ error_class: 'cancelled', retryable: false });
    },
  );

  test('while nothing arrives, the message so far is closed at once', async () => {
    const provider = await serve(() => ({ text: 'one two three four five six', after: 3, ending: 'stall' }));
    const abort = new AbortController();
    let text = '';
    const { complete, error } = await drain(on(provider), ask, abort.signal, (event) => {
      if (event.type === 'text.delta') text += event.text;
      // Behind the last piece, when the reader waits for more.
      if (text.endsWith('fo')) setImmediate(() => abort.abort());
    });
    expect(complete).toMatchObject({ stop_reason: 'cancelled', final_content: [{ text: 'one two three fo' }] });
    expect(error!.error_class).toBe('cancelled');
  });

  test('no event follows an abort, even when whole events had already arrived', async () => {
    const provider = await serve(() => ({ text: 'aaaa bbbb cccc', delta: 4, split: (bytes) => [bytes] }));
    const abort = new AbortController();
    const { complete } = await drain(on(provider), ask, abort.signal, (event) => {
      if (event.type === 'text.delta') abort.abort();
    });
    expect(complete).toMatchObject({ stop_reason: 'cancelled', final_content: [{ text: 'aaaa' }] });
  });

  // Promise 11.12: cancelling a retry sleep sends nothing more.
  test('during the sleep before a retry: no further request', async () => {
    const provider = await serve(() => ({ status: 503, error: { message: 'x' } }));
    const clock = fakeClock();
    const abort = new AbortController();
    const running = drain(on(provider, { clock }), ask, abort.signal);
    while (!clock.asked.includes(1000)) await new Promise((resolve) => setImmediate(resolve));
    abort.abort();
    expect((await running).error).toMatchObject({ error_class: 'cancelled' });
    expect(provider.calls).toHaveLength(1);
  });

  // Promise 11.12: an aborted signal sends nothing.
  test('before the start: no request at all', async () => {
    const provider = await serve(() => fine);
    const { events, error } = await drain(on(provider), ask, AbortSignal.abort());
    expect(events).toEqual([]);
    expect(error).toMatchObject({ error_class: 'cancelled' });
    expect(provider.calls).toHaveLength(0);
  });

  test('that the receiver of a piece aborts closes the connection, and nothing more is delivered', async () => {
    const provider = await serve(() => ({ text: 'x'.repeat(100), after: 4, ending: 'stall' }));
    const abort = new AbortController();
    const { events } = await drain(on(provider), ask, abort.signal, ({ type }) => {
      if (type === 'text.delta') abort.abort();
    });
    await provider.calls[0]!.disconnected;
    expect(events.map(({ type }) => type)).toEqual(['message.start', 'text.delta', 'message.complete']);
  });

  test('a finished call leaves no listener on the signal of its caller', async () => {
    const provider = await serve(() => fine);
    const { signal } = new AbortController();
    await drain(on(provider), ask, signal);
    expect(getEventListeners(signal, 'abort')).toHaveLength(0);
  });
});

describe('on the wire', () => {
  // Promise 11.18: no stray environment variable changes a request.
  test('exactly the configured address, key and version; extra headers are added', async () => {
    const provider = await serve(() => fine);
    vi.stubEnv('ANTHROPIC_CUSTOM_HEADERS', 'x-spy: 1');
    vi.stubEnv('OPENAI_ORG_ID', 'org-spy');
    try {
      await drain(
        on(provider, { key: 'k-1', headers: { 'X-Title': 'metis' }, options: { api_version: '2099-01-01' } }),
        ask,
      );
      await drain(on(provider, { type: 'openai', key: 'k-2' }), request({ entry: modelEntry('openai:gpt') }));
      await drain(on(provider, { type: 'openai', key: null }), request({ entry: modelEntry('openai:gpt') }));
    } finally {
      vi.unstubAllEnvs();
    }
    const [anthropic, openai, keyless] = provider.calls;
    expect(anthropic).toMatchObject({
      path: '/v1/messages',
      headers: { 'x-api-key': 'k-1', 'anthropic-version': '2099-01-01', 'x-title': 'metis' },
    });
    expect(openai).toMatchObject({ path: '/v1/chat/completions', headers: { authorization: 'Bearer k-2' } });
    expect(keyless!.headers.authorization).toBeUndefined();
    expect(JSON.stringify(provider.calls.map((c) => c.headers))).not.toContain('spy');
  });

  test('connections are kept for the next call', async () => {
    const provider = await serve(() => fine);
    for (let i = 0; i < 12; i++) {
      const type = i % 2 === 0 ? 'anthropic' : 'openai';
      expect((await drain(on(provider, { type }), request({ entry: modelEntry(`${type}:m`) }))).text).toBe('fine');
    }
    // A call may begin while the one before it still reads its last bytes.
    expect(provider.connections()).toBeLessThanOrEqual(2);
  });

  test('many calls at once on one adapter do not disturb one another', async () => {
    const provider = await serve((call) => ({
      text: `answer to ${call.user}`,
      delta: 3,
      usage: { output: call.user.length },
    }));
    const adapter = on(provider);
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, i) =>
        drain(adapter, request({ entry: modelEntry('anthropic:m'), messages: [user(`q${i}`)] })),
      ),
    );
    expect(answers.map((a) => a.text)).toEqual(Array.from({ length: 20 }, (_, i) => `answer to q${i}`));
  });

  test('a key that the provider repeats in its error is nowhere in the error or the log', async () => {
    const key = 'plain-secret-no-known-shape';
    const provider = await serve(() => ({ status: 503, error: { message: `key ${key} is odd, mail me@example.org` } }));
    const { log, lines } = recordingLog();
    const { error } = await drain(on(provider, { key, secrets: [key], log, clock: stepping() }), ask);
    expect(lines).toHaveLength(2);
    for (const text of [error!.message, JSON.stringify(error), JSON.stringify(lines)]) expect(text).not.toContain(key);
    expect(error!.message).toContain('[REDACTED]');
    expect(displayKey('twelve-chars')).toBe('***');
  });

  test('a key that the provider sends as the code of an error is nowhere in the error', async () => {
    const key = 'plain-secret-no-known-shape';
    const event = `data: ${JSON.stringify({ type: 'error', error: { message: 'no', code: key } })}\n\n`;
    const provider = await serve(() => ({ raw: [event] }));
    const { error } = await drain(on(provider, { key, secrets: [key] }), ask);
    expect(error).toMatchObject({ error_class: 'other', error_detail: '[REDACTED]', message: 'no' });
  });

  test('a huge error body is not read to its end', async () => {
    const provider = await serve(() => ({ status: 400, error: 'y'.repeat(3_000_000) }));
    const { error } = await drain(on(provider), ask);
    expect(error!.error_class).toBe('invalid_request');
    expect(error!.message.length).toBeLessThanOrEqual(2000);
  });
});

/** A clock on which sleeps pass at once and no timeout ever fires; remembers the sleeps. */
function stepping() {
  let now = 0;
  const slept: number[] = [];
  const timeouts = new Set([600_000, 30_000, 120_000, 10_000, 5000, 250]);
  return {
    now: () => 1_700_000_000_000,
    monotonic: () => now,
    after(ms: number, fn: () => void) {
      if (timeouts.has(ms)) return { cancel: () => {} };
      slept.push(ms);
      now += ms;
      queueMicrotask(fn);
      return { cancel: () => {} };
    },
    sleeps: () => slept,
  };
}
