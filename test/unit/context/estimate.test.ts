// The token guess of 10 §1 and the money bound of 14 §2.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { codePoints } from '#core/policy/context/message-size.ts';
import { requestPrompt, type SentParts } from '#core/policy/context/request-prompt.ts';
import { estimateRequest, estimateText } from '#core/policy/context/token-estimate.ts';
import { computeTokenBound, selectNewText } from '#core/policy/pricing/prompt-tokens.ts';
import type { ContentBlock, StoredMessage } from '#protocol/message.ts';
import { message, text, toolResult, toolUse } from '../../support/messages.ts';

const EMPTY = { system_prompt: null, system_prompt_volatile: null, messages: [], tools: [], output_schema: null };
const image: ContentBlock = {
  type: 'image',
  source: { kind: 'base64', data: 'A'.repeat(100_000) },
  media_type: 'image/png',
};

describe('codePoints', () => {
  it('counts what a person counts as characters, lone surrogates included', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: fc.oneof(fc.string({ unit: 'binary', maxLength: 1 }), fc.constant('\uD83D')) }),
        (s) => {
          expect(codePoints(s)).toBe([...s].length);
        },
      ),
    );
    expect(codePoints('a\u{1F600}b\uD83D')).toBe(4);
  });
});

describe('estimateText', () => {
  it('is a quarter of the code points, rounded down, never below one', () => {
    expect(estimateText('')).toBe(1);
    expect(estimateText('a'.repeat(7))).toBe(1);
    expect(estimateText('\u{1F600}'.repeat(8))).toBe(2);
    expect(estimateText('abc', 'defgh')).toBe(2);
  });
});

describe('estimateRequest', () => {
  const size = (content: ContentBlock[]) => estimateRequest({ ...EMPTY, messages: [message(1, 'user', content)] });

  it('adds both system texts, every block and every tool by the weights of the estimate', () => {
    const input = { path: 'a.ts' };
    const schema = { type: 'object' };
    const demanded = { type: 'object', properties: { n: {} } };
    const counted =
      400 +
      80 +
      1000 +
      200 +
      'read_file'.length +
      JSON.stringify(input).length +
      16 +
      48 +
      1024 +
      7 +
      JSON.stringify(schema).length +
      JSON.stringify(demanded).length;
    const request = {
      system_prompt: 's'.repeat(400),
      system_prompt_volatile: 'v'.repeat(80),
      messages: [
        message(1, 'user', [text('u'.repeat(1000)), image]),
        message(2, 'assistant', [
          { type: 'thinking', text: 't'.repeat(200), signature: 'x'.repeat(5000) },
          toolUse(1, 'read_file', input),
        ]),
        message(3, 'tool', [toolResult(1, 'r'.repeat(48))]),
      ],
      tools: [{ name: 'not_counted', description: 'd'.repeat(7), input_schema: schema }],
      output_schema: demanded,
    };
    expect(estimateRequest(request)).toBe(Math.floor(counted / 4));
    expect(estimateRequest(EMPTY)).toBe(1);
  });

  it('weighs images inside a tool result like any image', () => {
    const result: ContentBlock = { ...toolResult(1, ''), content: [image] } as ContentBlock;
    expect(size([result])).toBe((1024 + 16) / 4);
  });
});

function boundRequest(request: SentParts, model: Parameters<typeof computeTokenBound>[1]): number {
  return computeTokenBound(selectNewText(requestPrompt(request), null), model, 0);
}

describe('the bound of a request of which nothing is known', () => {
  const MODEL = { max_context_tokens: Infinity, max_image_tokens: 1500 };
  const bound = (request: SentParts) => boundRequest(request, MODEL);

  it('is at least the UTF-8 bytes of all texts', () => {
    const words = 'grüße '.repeat(1000);
    const bytes = Buffer.byteLength(words);
    const most = bound({ ...EMPTY, system_prompt: words, messages: [message(1, 'user', [text(words)])] });
    expect(most).toBeGreaterThanOrEqual(2 * bytes);
    expect(most).toBeLessThan(2 * bytes + 150);
  });

  it('takes the tokens its model bills for an image at most instead of its base64 text', () => {
    const without = bound({ ...EMPTY, messages: [message(1, 'user', [text('x')])] });
    const inMessage = bound({ ...EMPTY, messages: [message(2, 'user', [text('x'), image])] });
    expect(inMessage).toBe(without + 1500);
    const seen = { ...EMPTY, messages: [message(2, 'user', [text('x'), image])] };
    expect(boundRequest(seen, { ...MODEL, max_image_tokens: 4784 })).toBe(without + 4784);
    expect(boundRequest(seen, { max_image_tokens: 75_000, max_context_tokens: 8192 })).toBe(8192);
    const result: ContentBlock = {
      type: 'tool_result',
      tool_use_id: toolUse(1).id,
      content: [image, image],
      is_error: false,
    };
    const plain: ContentBlock = { ...result, content: [] };
    const inResult = bound({ ...EMPTY, messages: [message(3, 'tool', [result])] });
    expect(inResult).toBe(bound({ ...EMPTY, messages: [message(4, 'tool', [plain])] }) + 3000);
  });

  it('knows a message that a view shortens for another one, and the same message again', () => {
    const keyOf = (content: ContentBlock[]) =>
      requestPrompt({ ...EMPTY, messages: [message(1, 'tool', content)] }).messages[0]!.key;
    expect(keyOf([toolResult(1, 'r'.repeat(3000))])).toBe(keyOf([toolResult(1, 'r'.repeat(3000))]));
    expect(keyOf([toolResult(1, '[elided]')])).not.toBe(keyOf([toolResult(1, 'r'.repeat(3000))]));
    expect(keyOf([text('[image omitted]')])).not.toBe(keyOf([image]));
  });

  it('counts tool names, descriptions and schemas', () => {
    const tool = { name: 'n'.repeat(50), description: 'd'.repeat(100), input_schema: { type: 'object' } };
    expect(bound({ ...EMPTY, tools: [tool] })).toBeGreaterThanOrEqual(50 + 100 + 17);
  });
});

it('a history that grows is summed up anew only where it is new, to the same figure', () => {
  const history = [message(1, 'user', [text('a'.repeat(40))])];
  const of = (messages: readonly StoredMessage[]) => estimateRequest({ ...EMPTY, messages });
  expect(of(history)).toBe(10);
  history.push(message(2, 'assistant', [text('b'.repeat(80))]), message(3, 'user', [text('c'.repeat(8))]));
  expect(of(history)).toBe(32);
  expect(of(history)).toBe(of([...history]));
});
