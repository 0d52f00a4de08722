// The way of one piece of an answer: as soon as its bytes are here, in one pass, without a promise (11.2).
import { createHook } from 'node:async_hooks';
import { expect, test } from 'vitest';
import type { HttpResponse, Send } from '#models/http/provider-http.ts';
import type { StreamEvent } from '#protocol/model-call.ts';
import { answer, modelEntry, realAdapter, request, user } from './support.ts';

const ask = request({ entry: modelEntry('anthropic:claude'), messages: [user('hello')] });
const event = (data: object) => Buffer.from(`data: ${JSON.stringify(data)}\n\n`);
const BEGIN = Buffer.concat([
  event({ type: 'message_start', message: { id: 'm', model: 'claude' } }),
  event({ type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } }),
]);
const piece = (text: string) => event({ type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text } });
const END = Buffer.concat([
  event({ type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 3 } }),
  event({ type: 'message_stop' }),
]);

/** A response whose pieces are those that the test hands in. */
function handing() {
  let take: ((bytes: Uint8Array) => boolean) | null = null;
  let stop: (ended: boolean) => void = () => {};
  const reading = new Promise<boolean>((resolve) => {
    stop = resolve;
  });
  let opened = () => {};
  const isOpen = new Promise<void>((resolve) => {
    opened = resolve;
  });
  const send: Send = async ({ signal }) => {
    const response: HttpResponse = {
      ...answer({ signal }, async () => null),
      readPieces(wanted) {
        take = wanted;
        opened();
        return reading;
      },
    };
    return response;
  };
  return {
    send,
    isOpen,
    hand(bytes: Uint8Array) {
      const more = take!(bytes);
      if (!more) stop(false);
      return more;
    },
  };
}

test('a piece is delivered before the call that handed in its bytes returns, and makes no promise', async () => {
  const provider = handing();
  const events: StreamEvent[] = [];
  const done = realAdapter({ type: 'anthropic', send: provider.send, joinTextDeltas: true }).stream(
    ask,
    new AbortController().signal,
    (one) => events.push(one),
  );
  await provider.isOpen;
  expect(provider.hand(BEGIN)).toBe(true);
  let promises = 0;
  const hook = createHook({
    init(_, type) {
      if (type === 'PROMISE') promises += 1;
    },
  }).enable();
  const seen = ['a', 'b', 'c'].map((text) => {
    provider.hand(piece(text));
    return events.at(-1);
  });
  hook.disable();
  expect(seen).toMatchObject(['a', 'b', 'c'].map((text) => ({ type: 'text.delta', text })));
  expect(promises).toBe(0);
  expect(provider.hand(END)).toBe(false);
  await done;
  expect(events.at(-1)).toMatchObject({ type: 'message.complete', final_content: [{ type: 'text', text: 'abc' }] });
});

test('texts that one piece brings are one delta, and what follows the end of the message is not read', async () => {
  const provider = handing();
  const events: StreamEvent[] = [];
  const done = realAdapter({ type: 'anthropic', send: provider.send, joinTextDeltas: true }).stream(
    ask,
    new AbortController().signal,
    (one) => events.push(one),
  );
  await provider.isOpen;
  expect(provider.hand(Buffer.concat([BEGIN, piece('a'), piece('b'), END, piece('c')]))).toBe(false);
  await done;
  expect(events.map(({ type }) => type)).toEqual(['message.start', 'text.delta', 'message.complete']);
  expect(events[1]).toMatchObject({ text: 'ab' });
});

test('an answer that comes whole is known to be whole before its first event, one that comes in pieces is not', async () => {
  async function read(...pieces: readonly Buffer[]): Promise<readonly string[]> {
    const provider = handing();
    const events: string[] = [];
    const done = realAdapter({ type: 'anthropic', send: provider.send, joinTextDeltas: true }).stream(
      ask,
      new AbortController().signal,
      ({ type }, isWhole) => events.push(`${type} ${isWhole === true}`),
    );
    await provider.isOpen;
    for (const bytes of pieces) provider.hand(bytes);
    await done;
    return events.slice(0, -1);
  }
  expect(await read(Buffer.concat([BEGIN, piece('a'), END]))).toEqual(['message.start true', 'text.delta true']);
  const parts = ['message.start false', 'text.delta false', 'text.delta false'];
  expect(await read(Buffer.concat([BEGIN, piece('a')]), Buffer.concat([piece('b'), END]))).toEqual(parts);
});

test('a piece that is no event of the wire fails the call after what came before it', async () => {
  const provider = handing();
  const events: StreamEvent[] = [];
  const done = realAdapter({ type: 'anthropic', send: provider.send, joinTextDeltas: true }).stream(
    ask,
    new AbortController().signal,
    (one) => events.push(one),
  );
  await provider.isOpen;
  expect(provider.hand(Buffer.concat([BEGIN, piece('a'), Buffer.from('data: {"type":\n\n')]))).toBe(false);
  await expect(done).rejects.toMatchObject({ error_class: 'network', error_detail: 'malformed_event' });
  expect(events.map(({ type }) => type)).toEqual(['message.start', 'text.delta', 'message.complete']);
  expect(events.at(-1)).toMatchObject({ stop_reason: 'error', final_content: [{ type: 'text', text: 'a' }] });
});
