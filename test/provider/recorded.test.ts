// Fifty real answers, read by the adapters and a second time by the test: whole, cut anywhere, and in pieces of any size.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type FakeProvider, type FakeRaw, startFakeProvider } from '../support/fake-provider.ts';
import { type Reading, readAnthropic, readChat } from './recorded-reading.ts';
import { bodySend, type Drained, drain, modelEntry, realAdapter, request } from './support.ts';

/** Kept beside the repository, not in it. */
const FOLDER = process.env.METIS_RECORDED ?? fileURLToPath(new URL('../../../shared/recorded', import.meta.url));
const CUT_EVERY = 50;
/** Of one body, unless all are asked for: the longest would be cut nearly nine thousand times, and every cut reads all that came before it. */
const MOST_CUTS = process.env.METIS_PROPERTY_RUNS === undefined ? 200 : Number.POSITIVE_INFINITY;
const NEWLINE = 0x0a;
const CUTS_TIMEOUT_MS = 120_000;

interface Recorded {
  readonly name: string;
  readonly type: 'anthropic' | 'openai' | 'openrouter';
  readonly status: number;
  readonly contentType: string;
  readonly body: string;
}

function load(): Recorded[] {
  if (!existsSync(FOLDER)) return [];
  return readdirSync(FOLDER, { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .flatMap(({ name: provider }) =>
      readdirSync(join(FOLDER, provider)).map((file): Recorded => {
        const { response } = JSON.parse(readFileSync(join(FOLDER, provider, file), 'utf8'));
        return {
          name: `${provider}/${file}`,
          type: provider === 'anthropic' || provider === 'openrouter' ? provider : 'openai',
          status: response.status,
          contentType: response.content_type,
          body: response.body,
        };
      }),
    );
}

const recorded = load();
const streams = recorded.filter((r) => r.contentType.includes('event-stream'));
/** Some were recorded several times over. */
const different = [...new Map(streams.map((r) => [r.body, r])).values()];
const read = (r: Recorded, body = r.body): Reading => (r.type === 'anthropic' ? readAnthropic(body) : readChat(body));
const ask = (r: Recorded) => request({ entry: modelEntry(`${r.type}:recorded`) });

function withoutIds(result: Drained): unknown[] {
  return (result.complete?.final_content ?? []).map((block) => {
    if (block.type !== 'tool_use') return block;
    const { id: _, ...rest } = block;
    return rest;
  });
}

function expectUsage(result: Drained, reading: Reading): void {
  const usage = result.complete?.usage ?? result.error?.usage ?? null;
  if (reading.usage === null) {
    if (usage !== null) expect(usage.usage_estimated).toBe(true);
    return;
  }
  expect(usage).toMatchObject({
    input_tokens: reading.usage.input,
    cached_input_tokens: reading.usage.cached,
    cache_creation_input_tokens: reading.usage.creation,
    cache_creation_1h_input_tokens: reading.usage.creation1h,
    reasoning_tokens: reading.usage.reasoning,
    usage_estimated: reading.usage.output === null,
  });
  if (reading.usage.output !== null) expect(usage!.output_tokens).toBe(reading.usage.output);
}

/** The adapter said what the reading says: whole, or broken off with everything that had arrived. */
function expectSame(result: Drained, reading: Reading): void {
  expect(withoutIds(result)).toEqual(reading.content);
  expectUsage(result, reading);
  if (reading.complete && !reading.error) {
    expect(result.error).toBeNull();
    expect(result.complete).toMatchObject({
      stop_reason: reading.stop,
      raw_stop_reason: reading.rawStop,
      served_model: reading.model,
    });
  } else {
    expect(result.error).not.toBeNull();
    if (!reading.error)
      expect(result.error).toMatchObject({ error_class: 'network', error_detail: 'stream_truncated' });
    if (result.events.length > 0) expect(result.complete!.stop_reason).toBe('error');
  }
}

describe.skipIf(recorded.length === 0)('recorded answers', () => {
  let server: FakeProvider;
  let next: FakeRaw;
  beforeAll(async () => {
    server = await startFakeProvider(() => next);
  });
  afterAll(() => server.close());
  const overHttp = (r: Recorded) =>
    realAdapter({
      type: r.type,
      baseUrl: r.type === 'anthropic' ? server.anthropicUrl : server.openaiUrl,
      maxRetries: 0,
    });

  test('all fifty are there and every one speaks one of the two wires', () => {
    expect(recorded).toHaveLength(50);
  });

  test.each(streams.map((r) => [r.name, r] as const))(
    '%s over HTTP: text, calls, thinking, stop reason and usage are those of the bytes',
    async (_, r) => {
      next = { raw: [r.body] };
      expectSame(await drain(overHttp(r), ask(r)), read(r));
    },
  );

  test.each(recorded.filter((r) => !streams.includes(r)).map((r) => [r.name, r] as const))(
    '%s, a refusal: its class follows its body and status',
    async (_, r) => {
      next = { status: r.status, headers: { 'content-type': r.contentType }, raw: [r.body] };
      const { events, error } = await drain(overHttp(r), ask(r));
      const expected = {
        400: ['invalid_request', null],
        404: ['invalid_request', 'model_not_found'],
        429: ['rate_limit', null],
      }[r.status]!;
      expect(events).toEqual([]);
      expect(error).toMatchObject({ error_class: expected[0], error_detail: expected[1], provider_status: r.status });
      expect(error!.message).toContain(JSON.parse(r.body).error.message.slice(0, 60));
    },
  );

  test('errors inside a stream are classified by their body, with the usage that came beside them', async () => {
    const failing = different.filter((r) => read(r).error);
    expect(failing.length).toBeGreaterThan(0);
    for (const r of failing) {
      const { error, events } = await drain(
        realAdapter({ type: r.type, send: bodySend([Buffer.from(r.body)]) }),
        ask(r),
      );
      expect(events).toEqual([]);
      expect(error).toMatchObject({ error_class: 'invalid_request', provider_status: 400, retry_count: 0 });
      if (read(r).usage !== null) expect(error!.usage!.output_tokens).toBe(read(r).usage!.output);
    }
  });

  test.each(different.map((r) => [r.name, r] as const))(
    '%s cut at every 50th byte, or in 200 places: never a hang, never a silent success, nothing received is lost',
    async (_, r) => {
      const bytes = Buffer.from(r.body);
      let reading = read(r, '');
      let readTo = 0;
      const step = Math.max(CUT_EVERY, Math.ceil(bytes.length / MOST_CUTS));
      for (let at = 0; at < bytes.length; at += step) {
        const piece = bytes.subarray(0, at);
        const result = await drain(realAdapter({ type: r.type, maxRetries: 0, send: bodySend([piece]) }), ask(r));
        // What follows the last line that says anything is a part of one, which changes no reading: most cuts.
        if (saysMore(bytes.subarray(readTo, at))) {
          reading = read(r, piece.toString('utf8'));
          readTo = piece.lastIndexOf(NEWLINE) + 1;
        }
        expectSame(result, reading);
      }
    },
    CUTS_TIMEOUT_MS,
  );

  test.each(different.slice(0, 12).map((r) => [r.name, r] as const))(
    '%s cut by a reset connection: everything before the cut is kept',
    async (_, r) => {
      const bytes = Buffer.from(r.body);
      for (const share of [0.4, 0.8]) {
        const piece = bytes.subarray(0, Math.floor(bytes.length * share));
        next = { raw: [piece], ending: 'reset' };
        const result = await drain(overHttp(r), ask(r));
        expect(result.error).toMatchObject({ error_class: 'network', retry_count: 0 });
        expect(withoutIds(result)).toEqual(
          read(r, piece.subarray(0, piece.lastIndexOf('\n') + 1).toString('utf8')).content,
        );
      }
    },
  );

  test.each(different.map((r) => [r.name, r] as const))(
    '%s in pieces of random size gives the same message',
    async (_, r) => {
      const bytes = Buffer.from(r.body);
      for (const seed of [1, 2, 3]) {
        const random = seeded(seed * 7919);
        const pieces: Buffer[] = [];
        for (let at = 0; at < bytes.length; ) {
          const size = 1 + Math.floor(random() * (seed === 1 ? 7 : 400));
          pieces.push(bytes.subarray(at, at + size));
          at += size;
        }
        expectSame(await drain(realAdapter({ type: r.type, send: bodySend(pieces) }), ask(r)), read(r));
      }
    },
  );
});

/** Whether bytes from the beginning of a line on hold a whole line, or a last one that could be read. */
function saysMore(bytes: Buffer): boolean {
  return bytes.includes(NEWLINE) || /[}\]]\s*$/.test(bytes.toString('latin1'));
}

function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}
