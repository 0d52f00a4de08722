// What a provider sends too much of ends its answer, in whatever field it arrives, and nothing makes its reading slow (11.3).
import { describe, expect, it } from 'vitest';
import { silentLogger } from '#core/ports/logger.ts';
import { createAnthropicDecoder } from '#models/wire/anthropic-stream.ts';
import { createAssembly } from '#models/wire/assembly.ts';
import { classify, readWireError, WireFault } from '#models/wire/fault.ts';
import { createOpenAiDecoder } from '#models/wire/openai-stream.ts';
import { createResponsesDecoder } from '#models/wire/responses-stream.ts';
import { createIdGenerator } from '#protocol/ids.ts';

const WIRES = { anthropic: createAnthropicDecoder, openai: createOpenAiDecoder, responses: createResponsesDecoder };

function decoder(wire: keyof typeof WIRES) {
  const assembly = createAssembly(
    `${wire}:m`,
    createIdGenerator(() => 0, Math.random),
  );
  const { event } = WIRES[wire](assembly, silentLogger);
  return { assembly, event: (value: object) => event(JSON.stringify(value)), raw: event };
}

/** The fault that ends it; null when all of it was taken. */
function faultOf(feed: () => void) {
  try {
    feed();
    return null;
  } catch (error) {
    if (!(error instanceof WireFault)) throw error;
    return [error.fault.error_class, error.fault.error_detail];
  }
}
const milliseconds = (work: () => void) => {
  const from = process.cpuUsage();
  work();
  return process.cpuUsage(from).user / 1000;
};

const MIB = 'x'.repeat(1024 * 1024);
const call = (fragment: object) => ({ choices: [{ index: 0, delta: { tool_calls: [fragment] } }] });
const block = (i: number, content_block: object) => ({ type: 'content_block_start', index: i, content_block });
const delta = (rest: object) => ({ type: 'content_block_delta', index: 0, delta: rest });

const item = (i: number, one: object) => ({ type: 'response.output_item.done', output_index: i, item: one });
const fragment = (text: string) => ({ type: 'response.output_text.delta', output_index: 0, delta: text });
const added = (i: number, one: object) => ({ type: 'response.output_item.added', output_index: i, item: one });

type Flood = readonly [string, keyof typeof WIRES, (i: number) => object];
const FLOODS: readonly Flood[] = [
  ['redacted data', 'anthropic', (i) => block(i, { type: 'redacted_thinking', data: MIB })],
  ['signatures', 'anthropic', (i) => block(i, { type: 'thinking', thinking: '', signature: MIB })],
  [
    'one growing signature',
    'anthropic',
    (i) => (i === 0 ? block(0, { type: 'thinking' }) : delta({ type: 'signature_delta', signature: MIB })),
  ],
  ['names of tools', 'anthropic', (i) => block(i, { type: 'tool_use', name: MIB, id: `${i}` })],
  ['ids of calls', 'anthropic', (i) => block(i, { type: 'tool_use', name: 'a', id: MIB })],
  ['whole inputs of open calls', 'anthropic', (i) => block(i, { type: 'tool_use', name: 'a', input: { a: MIB } })],
  ['names of tools', 'openai', (i) => call({ index: i, function: { name: MIB } })],
  ['ids of calls', 'openai', (i) => call({ id: `${i}${MIB}`, function: { name: 'a' } })],
  ['arguments', 'openai', (i) => call({ index: i, function: { name: 'a', arguments: MIB } })],
  ['reasoning', 'responses', (i) => item(i, { type: 'reasoning', encrypted_content: MIB })],
  ['one growing text', 'responses', (i) => (i === 0 ? added(0, { type: 'message' }) : fragment(MIB))],
  ['names of tools', 'responses', (i) => added(i, { type: 'function_call', name: MIB })],
  ['arguments as values', 'openai', (i) => call({ index: i, function: { name: 'a', arguments: { a: MIB } } })],
];

describe('an answer larger than 64 MiB', () => {
  it.each(FLOODS)('of %s on the %s wire is refused', (_, wire, made) => {
    const { event } = decoder(wire);
    expect(
      faultOf(() => {
        for (let i = 0; i < 70; i++) event(made(i));
      }),
    ).toEqual(['other', 'response_too_large']);
  });

  it('keeps no long name, id or model', () => {
    const { assembly, event } = decoder('openai');
    const long = MIB.slice(0, 500_000);
    event({ model: long, ...call({ index: 0, id: long, function: { name: long } }) });
    expect(assembly.slots[0]).toMatchObject({ name: long.slice(0, 256), providerId: null });
    expect(assembly.servedModel).toBeNull();
  });
});

describe('an answer of very many parts', () => {
  it.each([
    ['openai', (i: number) => call({ index: i, function: { name: 'a', arguments: '{}' } }), 501],
    ['anthropic', (i: number) => block(i, { type: 'tool_use', name: 'a' }), 501],
    ['anthropic', (i: number) => block(i, { type: 'text', text: 'a' }), 5001],
    ['anthropic', (i: number) => block(i, { type: 'unknown' }), 262_145],
    ['responses', (i: number) => item(i, { type: 'function_call', name: 'a', arguments: '{}' }), 501],
    ['responses', (i: number) => item(i, { type: 'message', content: [{ text: 'a' }] }), 5001],
    ['responses', (i: number) => added(1e9 - i, { type: 'reasoning' }), 262_145],
  ] as const)('is refused on the %s wire', (wire, made, parts) => {
    const { event } = decoder(wire);
    for (let i = 0; i < parts - 1; i++) event(made(i));
    expect(faultOf(() => event(made(parts)))).toEqual(['other', 'response_too_large']);
  });

  it('of reasoning keeps as much as is placed at once', () => {
    const { assembly, event } = decoder('responses');
    for (let i = 0; i < 4000; i++) event(item(i, { type: 'message', content: [{ text: 'a' }] }));
    for (let i = 0; i < 10_000; i++) event(item(1e9 + i, { type: 'reasoning', encrypted_content: 'e' }));
    expect(milliseconds(() => event({ type: 'response.completed', response: {} }))).toBeLessThan(500);
    expect(assembly.providerRaw?.reasoning).toHaveLength(500);
  });

  it('is refused in one event too, at once', () => {
    const many = Array.from({ length: 60_000 }, (_, i) => ({ index: i, function: { name: 'a' } }));
    const data = JSON.stringify({ choices: [{ index: 0, delta: { tool_calls: many } }] });
    const { raw } = decoder('openai');
    expect(milliseconds(() => expect(faultOf(() => raw(data))).toEqual(['other', 'response_too_large']))).toBeLessThan(
      200,
    );
  });
});

describe('an event', () => {
  it.each([
    ['nested without end', '['.repeat(1_900_000)],
    ['nested to the end', `${'{"a":'.repeat(20_000)}1${'}'.repeat(20_000)}`],
    ['of many values', `[${'1,'.repeat(900_000)}1]`],
    ['of many characters', `"${MIB}${MIB}"`],
  ])('%s is refused at once', (_, data) => {
    for (const wire of ['anthropic', 'openai'] as const) {
      const { raw } = decoder(wire);
      const ms = milliseconds(() => expect(faultOf(() => raw(data))).toEqual(['other', 'response_too_large']));
      expect(ms).toBeLessThan(200);
    }
  });

  it('with arguments as deep as they are taken is read, however long they are', () => {
    let input: object = { text: 'y'.repeat(100_000) };
    for (let i = 0; i < 90; i++) input = { a: input };
    const { assembly, event } = decoder('openai');
    event(call({ index: 0, function: { name: 'a', arguments: input } }));
    expect(JSON.parse(assembly.slots[0]!.text)).toEqual(input);
  });
});

describe('calls that are told apart by their arguments', () => {
  it('cost no more the longer they grow', () => {
    const { assembly, event } = decoder('openai');
    event(call({ function: { name: 'r', arguments: `{"p":"${MIB}` } }));
    const fragments = Array.from({ length: 2000 }, () => ({ function: { name: 'y', arguments: 'b' } }));
    const ms = milliseconds(() => event({ choices: [{ index: 0, delta: { tool_calls: fragments } }] }));
    expect(ms).toBeLessThan(200);
    expect(assembly.slots).toHaveLength(1);
  });

  it.each([
    ['{"a":"}"', ',"b":1}', 1],
    ['{"a":"\\"}"}', '{"b":1}', 2],
    ['{"a":[{}]} ', '{"b":1}', 2],
    ['{"a":[{}]', '}', 1],
    ['{a}', '{"b":1}', 1],
    ['[1]', '{"b":1}', 1],
  ])('%s and %s', (first, second, parts) => {
    const { assembly, event } = decoder('openai');
    event(call({ function: { name: 'r', arguments: first } }));
    event(call({ function: { name: 'r', arguments: second } }));
    expect(assembly.slots).toHaveLength(parts);
  });
});

it("a failure's message is read as far as it is shown", () => {
  const body = { error: { type: 'invalid_request_error', message: 'context'.repeat(200_000) } };
  const ms = milliseconds(() => {
    const error = readWireError(body)!;
    expect(classify(error, 400)).toEqual(['invalid_request', null]);
    expect(error.message.length).toBeLessThan(5000);
  });
  expect(ms).toBeLessThan(100);
});

describe('hostile events of OpenAI Responses', () => {
  const end = { type: 'response.completed', response: { status: 'completed' } };
  const feed = (...events: readonly object[]) => {
    const { assembly, event } = decoder('responses');
    const fault = faultOf(() => {
      for (const one of events) event(one);
    });
    return { fault, stop: assembly.stop?.reason, texts: assembly.slots.map(({ text }) => text) };
  };

  it.each<unknown>([-1, 1e9, 1e308, null, '0', {}, [], true])(
    'an output_index of %j holds one text',
    (output_index) => {
      const events = [added(0, { type: 'message' }), fragment('a'), item(0, { type: 'message' }), end];
      expect(feed(...events.map((one) => ({ ...one, output_index })))).toEqual({
        fault: null,
        stop: 'end_turn',
        texts: ['a'],
      });
    },
  );

  it('deltas before their item, items without an end and a second end make one answer', () => {
    const second = { ...end, response: { status: 'completed', usage: { output_tokens: 7 } } };
    expect(
      feed(fragment('early'), added(0, { type: 'message' }), fragment('a'), end, second, fragment('late')),
    ).toEqual({
      fault: null,
      stop: 'end_turn',
      texts: ['a'],
    });
  });

  it.each<unknown>([null, 7, 'text', [], {}, { message: { a: 1 } }, { code: {}, message: null }, { message: MIB }])(
    'a failure that reports %j is a failure',
    (error) => {
      const { fault } = feed({ type: 'response.failed', response: { status: 'failed', error } });
      expect(fault?.[0]).toBe('other');
    },
  );

  it.each<unknown>([7, 'text', true, [], { usage: 'x' }, { usage: { input_tokens_details: 3 } }, { output: { a: 1 } }])(
    'an end with the response %j ends the answer',
    (response) => {
      expect(feed({ type: 'response.completed', response })).toMatchObject({ fault: null, stop: 'end_turn' });
    },
  );
});
