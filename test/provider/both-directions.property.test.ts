// What is said on a wire is heard as it was meant, in both directions and however the bytes are cut (11.4 to 11.6).
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { silentLogger } from '#core/ports/logger.ts';
import { createAnthropicEventEncoder, readAnthropicRequest } from '#models/wire/anthropic-client.ts';
import { createAnthropicEncoder } from '#models/wire/anthropic-request.ts';
import { createOpenAiEventEncoder, readOpenAiRequest } from '#models/wire/openai-client.ts';
import { createOpenAiEncoder } from '#models/wire/openai-request.ts';
import type { ToolUseId } from '#protocol/ids.ts';
import type { ContentBlock, StopReason } from '#protocol/message.ts';
import { NO_TOKENS } from '#protocol/usage.ts';
import { type AnswerBlock, answerEvents } from '../support/answer-events.ts';
import { message, text, toolUse, toolUseId } from '../support/messages.ts';
import { bodySend, bodyText, drain, modelEntry, realAdapter, request } from './support.ts';

const WIRES = {
  anthropic: {
    encode: createAnthropicEncoder({}, silentLogger),
    read: readAnthropicRequest,
    events: createAnthropicEventEncoder,
    rawStops: { end_turn: 'end_turn', max_tokens: 'max_tokens', stop_sequence: 'stop_sequence', tool_use: 'tool_use' },
  },
  openai: {
    encode: createOpenAiEncoder('openai', {}, silentLogger),
    read: readOpenAiRequest,
    events: createOpenAiEventEncoder,
    rawStops: { end_turn: 'stop', max_tokens: 'length', tool_use: 'tool_calls' },
  },
} as const;
const wire = fc.constantFrom('anthropic' as const, 'openai' as const);
const callIds = (id: string) => id as ToolUseId;

const words = fc.string({ unit: fc.constantFrom('a', '"', '\\', '\n', 'ü', '\u{1F600}', ' ', 'data:'), maxLength: 30 });
const said = words.map((value) => `x${value}`);
const name = fc.stringMatching(/^[a-z_]{1,12}$/).filter((text) => text !== '__proto__');
const count = fc.nat(100_000);
const object = fc.dictionary(name, fc.oneof(words, fc.integer(), fc.boolean(), fc.constant(null)), { maxKeys: 3 });

describe('an answer', () => {
  /** Cuts a text into non-empty pieces of code units: a provider cuts where it likes. */
  const pieces = (value: fc.Arbitrary<string>) =>
    fc
      .tuple(value, fc.integer({ min: 1, max: 7 }))
      .map(([whole, size]) => whole.match(new RegExp(`[^]{1,${size}}`, 'g')) ?? []);
  const block = fc.oneof(
    fc.record({ kind: fc.constant('text' as const), pieces: pieces(said) }),
    fc.record({ kind: fc.constant('thinking' as const), pieces: pieces(words), signature: said }),
    fc.record({ kind: fc.constant('redacted' as const), data: said }),
    fc.record({
      kind: fc.constant('tool' as const),
      name,
      id: name,
      pieces: pieces(object.map((o) => JSON.stringify(o))),
    }),
  );
  /** Call ids are unique; the one wire has no thinking, and no border between two texts. */
  function sayable(blocks: readonly AnswerBlock[], on: keyof typeof WIRES): AnswerBlock[] {
    const kept = on === 'anthropic' ? blocks : blocks.filter((b) => b.kind === 'text' || b.kind === 'tool');
    return kept
      .filter((b, i) => on === 'anthropic' || b.kind !== 'text' || kept[i - 1]?.kind !== 'text')
      .map((b, i) => (b.kind === 'tool' ? { ...b, id: `${b.id}_${i}` } : b));
  }
  const usage = fc.record({ input: count, cached: count, creation: count, output: count, reasoning: count });

  test('is heard event by event as it was said', async () => {
    const made = fc.record({
      wire,
      blocks: fc.array(block, { maxLength: 5 }),
      stop: fc.constantFrom<StopReason>('end_turn', 'max_tokens', 'stop_sequence'),
      usage,
      cuts: fc.array(fc.nat(4000), { maxLength: 12 }),
    });
    await fc.assert(
      fc.asyncProperty(made, async (it) => {
        const { rawStops, events } = WIRES[it.wire];
        const blocks = sayable(it.blocks, it.wire);
        const calls = blocks.some((b) => b.kind === 'tool');
        const wanted = it.stop in rawStops ? it.stop : 'end_turn';
        const stop =
          calls && wanted === 'end_turn'
            ? 'tool_use'
            : it.wire === 'openai' && calls && wanted !== 'max_tokens'
              ? 'tool_use'
              : wanted;
        const { input, cached, creation, output, reasoning } = it.usage;
        const tokens = {
          ...NO_TOKENS,
          input_tokens: input,
          cached_input_tokens: cached,
          cache_creation_input_tokens: creation,
          cache_creation_1h_input_tokens: it.wire === 'anthropic' ? Math.floor(creation / 2) : 0,
          output_tokens: output,
          reasoning_tokens: reasoning,
        };
        const entry = modelEntry(`${it.wire}:m`);
        const rawStop = (rawStops as Partial<Record<StopReason, string>>)[stop] ?? null;
        const x = answerEvents(entry.id, blocks, { stop, rawStop, usage: tokens });
        const bytes = Buffer.from(x.flatMap(events({ id: 'm1', model: 'm', usage: null })).join(''));
        const adapter = realAdapter({ type: it.wire, maxRetries: 0, send: bodySend(cut(bytes, it.cuts)) });
        const heard = await drain(adapter, request({ entry }));
        expect(heard.error).toBeNull();
        const expected = x.filter((event) => event.type !== 'redacted');
        expect(heard.events.map(withoutIds)).toEqual(expected.map(withoutIds));
      }),
      { numRuns: 300 },
    );
  });

  test('that broke off has no end on either wire', () => {
    for (const { events } of Object.values(WIRES)) {
      const x = answerEvents('m', [{ kind: 'text', pieces: ['ha', 'lf'] }], {
        stop: 'error',
        rawStop: null,
        usage: null,
      });
      const body = x.flatMap(events({ id: 'm1', model: 'm', usage: null })).join('');
      expect(body).toContain('"lf"');
      expect(body).not.toMatch(/message_stop|\[DONE\]/);
    }
  });
});

describe('a request', () => {
  const call = fc.record({ name, input: object, result: said, failed: fc.boolean() });
  const exchange = fc.record({
    said,
    image: fc.boolean(),
    answered: fc.option(said),
    calls: fc.array(call, { maxLength: 3 }),
  });
  const made = fc.record({
    wire,
    system: fc.option(said),
    volatile: fc.option(said),
    exchanges: fc.array(exchange, { minLength: 1, maxLength: 4 }),
    tools: fc.uniqueArray(name, { maxLength: 3 }),
    stops: fc.array(said, { maxLength: 4 }),
    temperature: fc.option(fc.constantFrom(0, 0.5, 1)),
    schema: fc.option(object),
    limit: fc.integer({ min: 1, max: 100_000 }),
  });

  test('is read by the listener as its sender meant it', () => {
    fc.assert(
      fc.property(made, (it) => {
        let calls = 0;
        const messages = it.exchanges.flatMap((e) => {
          const first = calls;
          calls += e.calls.length;
          const image: ContentBlock = {
            type: 'image',
            source: { kind: 'base64', data: 'AAAA' },
            media_type: 'image/png',
          };
          const answer = [
            ...(e.answered === null ? [] : [text(e.answered)]),
            ...e.calls.map((c, i) => toolUse(first + i, c.name, c.input)),
          ];
          return [
            message(1, 'user', [text(e.said), ...(e.image ? [image] : [])]),
            ...(answer.length === 0 ? [] : [message(2, 'assistant', answer)]),
            ...e.calls.map((c, i) =>
              message(3, 'tool', [
                {
                  type: 'tool_result',
                  tool_use_id: toolUseId(first + i),
                  content: [{ type: 'text', text: c.result }],
                  is_error: it.wire === 'anthropic' && c.failed,
                },
              ]),
            ),
          ];
        });
        const tools = it.tools.map((tool) => ({
          name: tool,
          description: `does ${tool}`,
          input_schema: { type: 'object' },
        }));
        const x = request({
          entry: modelEntry(`${it.wire}:m`),
          messages,
          rest: {
            tools,
            system_prompt: it.system,
            system_prompt_volatile: it.volatile,
            stop_sequences: it.stops,
            temperature: it.temperature,
            output_schema: it.schema,
            max_output_tokens: it.limit,
          },
        });
        const read = WIRES[it.wire].read(bodyText(WIRES[it.wire].encode(x)), callIds);
        const system = [it.system, it.volatile].filter((part) => part !== null);
        expect(read).toEqual({
          ok: true,
          value: {
            model: 'm',
            system: system.length === 0 ? null : system.join('\n\n'),
            messages: messages.map(({ role, content }) => ({ role, content })),
            tools,
            max_output_tokens: it.limit,
            stop_sequences: it.stops,
            temperature: it.temperature,
            output_schema: it.schema,
          },
        });
      }),
      { numRuns: 300 },
    );
  });

  const body = { model: 'm', max_tokens: 1 };
  const said_ = (content: unknown, rest: object = {}) =>
    JSON.stringify({ ...body, messages: [{ role: 'user', content }], ...rest });
  test.each([
    ['anthropic', 'not JSON', '{', 'body: is not valid JSON'],
    ['anthropic', 'nesting without end', '['.repeat(100_000), 'body: is nested deeper than 128 levels'],
    ['anthropic', 'no list of messages', JSON.stringify(body), 'messages: '],
    ['anthropic', 'a block of no known type', said_([{ type: 'video' }]), 'messages.0.content'],
    [
      'openai',
      'an image from elsewhere',
      said_([{ type: 'image_url', image_url: { url: 'http://a/b.png' } }]),
      'messages.0.content',
    ],
    [
      'openai',
      'arguments that are no object',
      JSON.stringify({
        ...body,
        messages: [{ role: 'assistant', tool_calls: [{ id: 'a', function: { name: 'f', arguments: '[1' } }] }],
      }),
      'messages.0.tool_calls.0.function.arguments: invalid_json',
    ],
  ] as const)('on the %s wire with %s is refused in one line that names the field', (on, _, sent, line) => {
    const read = WIRES[on].read(sent, callIds);
    expect(read).toEqual({ ok: false, error: expect.stringContaining(line) });
    expect((read as { error: string }).error).not.toContain('\n');
  });
});

/** Bytes cut at these places, taken modulo their number. */
function cut(bytes: Buffer, at: readonly number[]): Uint8Array[] {
  const places = [...new Set([0, ...at.map((place) => place % bytes.length), bytes.length])].sort((a, b) => a - b);
  return places.slice(1).map((end, i) => new Uint8Array(bytes.subarray(places[i]!, end)));
}

/** What an adapter makes itself: our ids, the time, and the name and id that it read. */
function withoutIds(event: object): unknown {
  const own = ['message_id', 'tool_use_id', 'latency_ms', 'served_model', 'response_id'];
  return JSON.parse(JSON.stringify(event), (key, value) =>
    own.includes(key) || (key === 'id' && String(value).startsWith('tu_')) ? undefined : value,
  );
}
