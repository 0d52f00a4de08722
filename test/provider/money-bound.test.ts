// The money bound against the real wires: no request weighs more than was reserved for it (14 §2).
import { deflateSync } from 'node:zlib';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { requestPrompt } from '#core/policy/context/request-prompt.ts';
import { computeTokenBound, selectNewText } from '#core/policy/pricing/prompt-tokens.ts';
import { silentLogger } from '#core/ports/logger.ts';
import { createAnthropicEncoder } from '#models/wire/anthropic-request.ts';
import { createOpenAiEncoder } from '#models/wire/openai-request.ts';
import type { CanonicalRequest } from '#protocol/model-call.ts';
import { message, text, toolResult, toolUse } from '../support/messages.ts';
import { bodyText, modelEntry, request } from './support.ts';

function boundRequest(req: CanonicalRequest, model: Parameters<typeof computeTokenBound>[1]): number {
  return computeTokenBound(selectNewText(requestPrompt(req), null), model, 0);
}

/** Fields that a model reads; the others steer the server. */
const READ = ['system', 'messages', 'tools', 'output_config', 'response_format'];
const wires = {
  anthropic: createAnthropicEncoder({ prompt_cache: false }, silentLogger),
  openai: createOpenAiEncoder('openai', {}, silentLogger),
};

function tokensOnWire(wire: keyof typeof wires, req: CanonicalRequest): number {
  const body = JSON.parse(bodyText(wires[wire](req))) as Record<string, unknown>;
  const read = READ.filter((key) => key in body).map((key) => Buffer.byteLength(JSON.stringify(body[key])));
  return read.reduce((sum, bytes) => sum + bytes, 0);
}

/** How the pages of a file lie in it: each an object, one object that stands in the tree many times, or out of sight. */
type Form = 'own' | 'shared' | 'packed';

/** A PDF document of so many pages, each of which shows the same text, compressed as every program writes it. */
function pdfOf(pages: number, words: string, form: Form): Buffer {
  const kids = Array.from({ length: pages }, (_, i) => (form === 'shared' ? 4 : i + 4));
  const page = '<</Type/Page/Parent 2 0 R/Contents 3 0 R/MediaBox[0 0 9 9]>>';
  const objects = new Map([
    [1, '<</Type/Catalog/Pages 2 0 R>>'],
    [2, `<</Type/Pages/Count ${pages}/Kids[${kids.map((n) => `${n} 0 R`).join(' ')}]>>`],
    ...kids.map((n): [number, string] => [n, page]),
  ]);
  const stream = (n: number, keys: string, data: string) => {
    const packed = deflateSync(data);
    const head = `${n} 0 obj<<${keys}/Filter/FlateDecode/Length ${packed.length}>>stream\n`;
    return Buffer.concat([Buffer.from(head), packed, Buffer.from('\nendstream endobj\n')]);
  };
  const bodies = [...objects.values()];
  const places = [...objects.keys()].map((n, i) => `${n} ${bodies.slice(0, i).join('').length}`).join(' ');
  const tree =
    form === 'packed'
      ? stream(pages + 5, `/Type/ObjStm/N ${objects.size}/First ${places.length}`, places + bodies.join(''))
      : Buffer.from([...objects].map(([n, body]) => `${n} 0 obj${body}endobj\n`).join(''));
  const end = Buffer.from('trailer<</Root 1 0 R>>\n%%EOF\n');
  return Buffer.concat([Buffer.from('%PDF-1.7\n'), stream(3, '', `BT(${words})Tj ET`), tree, end]);
}

const schema = (words: string) => ({ type: 'object', properties: { found: { type: 'string', description: words } } });

const within = (window: number) => ({ max_context_tokens: window, max_image_tokens: 1500 });
const ENDLESS = within(Infinity);

describe('the money bound of a request', () => {
  for (const wire of ['anthropic', 'openai'] as const)
    for (const native of [true, false])
      it(`covers an answer's schema on the ${wire} wire, ${native ? 'in its own field' : 'in the text'}`, () => {
        const entry = modelEntry(`${wire}:m`, { capabilities: { supports_structured_output: native } });
        const req = request({ entry, rest: { output_schema: schema('a "quoted"\nline '.repeat(1200)) } });
        expect(boundRequest(req, ENDLESS)).toBeGreaterThanOrEqual(tokensOnWire(wire, req));
        expect(boundRequest({ ...req, output_schema: null }, ENDLESS)).toBeLessThan(tokensOnWire(wire, req));
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
        expect(boundRequest(req, ENDLESS)).toBeGreaterThanOrEqual(tokensOnWire(wire, req));
      }),
      { numRuns: 500 },
    );
  });

  describe('with a PDF document', () => {
    const file = (data: Buffer) => ({
      type: 'document' as const,
      source: { kind: 'base64' as const, data: data.toString('base64') },
      media_type: 'application/pdf',
      name: 'deck.pdf',
    });
    const carrying = (data: Buffer) => request({ messages: [message(1, 'user', [text('judge'), file(data)])] });
    /** As the providers do: a page's picture (up to 3.75 megapixels at 750 a token) and its text, of each page; nothing for what is beyond the window. */
    const billed = (pages: number, words: string, { picture, window }: { picture: number; window: number }) => {
      const tokens = pages * (picture + Math.ceil(words.length / 4));
      return tokens > window ? 0 : tokens;
    };

    it.each([
      ['100 pages in 3 kB', 'shared', 3_000],
      ['100 pages that cannot be seen', 'packed', 3_000],
      ['100 pages of their own', 'own', 12_000],
    ] as const)('%s are bounded by what a provider may bill for them, not by their bytes', (_, form, most) => {
      const data = pdfOf(100, 'a word '.repeat(1700), form);
      expect(data.length).toBeLessThan(most);
      const bill = billed(100, 'a word '.repeat(1700), { picture: 5000, window: 1_000_000 });
      expect(bill).toBeGreaterThan(100 * (1500 + 1500));
      expect(boundRequest(carrying(data), within(1_000_000))).toBeGreaterThanOrEqual(bill);
      expect(boundRequest(carrying(data), within(200_000))).toBe(200_000);
    });

    // Promise 14.11: A PDF document is bounded by what its pages may be billed, however few bytes they take.
    it('covers the bill by page of whatever pages, texts, pictures and window', () => {
      const made = fc.record({
        pages: fc.integer({ min: 1, max: 600 }),
        length: fc.integer({ min: 0, max: 20_000 }),
        form: fc.constantFrom<Form>('own', 'shared', 'packed'),
        picture: fc.integer({ min: 0, max: 5000 }),
        window: fc.constantFrom(100_000, 200_000, 1_000_000),
      });
      fc.assert(
        fc.property(made, ({ pages, length, form, picture, window }) => {
          const words = 'w'.repeat(length);
          const bound = boundRequest(carrying(pdfOf(pages, words, form)), within(window));
          expect(bound).toBeGreaterThanOrEqual(billed(pages, words, { picture, window }));
          expect(bound).toBeLessThanOrEqual(window);
        }),
        { numRuns: 100 },
      );
    });
  });
});
