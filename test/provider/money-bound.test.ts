// The money bound against the real wires: no request weighs more than was reserved for it (14 §2).
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { CanonicalRequest } from '../../src/domain/model-request.ts';
import { boundRequest } from '../../src/policy/context/estimate.ts';
import { silentLogger } from '../../src/ports/log.ts';
import { createAnthropicEncoder } from '../../src/wire/anthropic/encode-request.ts';
import { createOpenAiEncoder } from '../../src/wire/openai/encode-request.ts';
import { message, text, toolResult, toolUse } from '../support/messages.ts';
import { modelEntry, request } from './support.ts';

/** Fields that a model reads; the others steer the server. */
const READ = ['system', 'messages', 'tools', 'output_config', 'response_format'];
const wires = {
  anthropic: createAnthropicEncoder({ prompt_cache: false }, silentLogger),
  openai: createOpenAiEncoder('openai', {}, silentLogger),
};

function tokensOnWire(wire: keyof typeof wires, req: CanonicalRequest): number {
  const body = JSON.parse(wires[wire](req)) as Record<string, unknown>;
  const read = READ.filter((key) => key in body).map((key) => Buffer.byteLength(JSON.stringify(body[key])));
  return Math.ceil(read.reduce((sum, bytes) => sum + bytes, 0) / 2.5);
}

const schema = (words: string) => ({ type: 'object', properties: { found: { type: 'string', description: words } } });

describe('the money bound of a request', () => {
  for (const wire of ['anthropic', 'openai'] as const)
    for (const native of [true, false])
      it(`covers an answer's schema on the ${wire} wire, ${native ? 'in its own field' : 'in the text'}`, () => {
        const entry = modelEntry(`${wire}:m`, { capabilities: { supports_structured_output: native } });
        const req = request({ entry, rest: { output_schema: schema('a "quoted"\nline '.repeat(1200)) } });
        expect(boundRequest(req)).toBeGreaterThanOrEqual(tokensOnWire(wire, req));
        expect(boundRequest({ ...req, output_schema: null })).toBeLessThan(tokensOnWire(wire, req));
      });

  it('covers whatever texts, calls, results, tools and schema it is made of', () => {
    const words = fc.string({ unit: fc.constantFrom('a', '"', '\\', '\n', 'ü', '\u{1F600}', ' '), maxLength: 60 });
    const made = fc.record({
      system: fc.option(words),
      volatile: fc.option(words),
      said: words,
      calls: fc.array(fc.record({ name: words, input: words, result: words, failed: fc.boolean() }), { maxLength: 5 }),
      tools: fc.array(words, { maxLength: 5 }),
      schema: fc.option(words),
      native: fc.boolean(),
      wire: fc.constantFrom('anthropic' as const, 'openai' as const),
    });
    fc.assert(
      fc.property(made, ({ system, volatile, said, calls, tools, schema: demanded, native, wire }) => {
        const req = request({
          entry: modelEntry(`${wire}:m`, { capabilities: { supports_structured_output: native } }),
          messages: [
            message(1, 'user', [text(`x${said}`)]),
            ...calls.flatMap((c, i) => [
              message(2 * i + 2, 'assistant', [toolUse(i + 1, `t${c.name}`, { value: c.input })]),
              message(2 * i + 3, 'tool', [{ ...toolResult(i + 1, c.result), is_error: c.failed } as never]),
            ]),
          ],
          rest: {
            system_prompt: system,
            system_prompt_volatile: volatile,
            tools: tools.map((name) => ({ name, description: name, input_schema: { type: 'object' } })),
            output_schema: demanded === null ? null : schema(demanded),
          },
        });
        expect(boundRequest(req)).toBeGreaterThanOrEqual(tokensOnWire(wire, req));
      }),
      { numRuns: 500 },
    );
  });
});
