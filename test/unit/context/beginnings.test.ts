// What is kept of the beginning of a history, and what a request is made of when the history has grown (10 §1, 11.5, 11.6).
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { requestMessages } from '#core/policy/context/assemble.ts';
import { createBeginnings } from '#core/policy/context/beginnings.ts';
import { extendHistory, isSameLine } from '#core/policy/context/session-history.ts';
import { silentLogger } from '#core/ports/logger.ts';
import { createAnthropicEncoder } from '#models/wire/anthropic-request.ts';
import { createOpenAiEncoder } from '#models/wire/openai-request.ts';
import { createResponsesEncoder } from '#models/wire/responses-request.ts';
import type { ContentBlock, StoredMessage } from '#protocol/message.ts';
import type { CanonicalRequest } from '#protocol/model-call.ts';
import { bodyText, modelEntry, request } from '../../provider/support.ts';
import { message, text, ulidOf } from '../../support/messages.ts';

const said = (n: number) => message(n, n % 2 === 1 ? 'user' : 'assistant', [text(`text ${n}`)]);

describe('a beginning', () => {
  test('is found in a longer history, and not where one message in the middle is another', () => {
    const beginnings = createBeginnings<string>();
    const history = [1, 2, 3, 4].map(said);
    beginnings.keep(history.slice(0, 3), 'three');
    expect(beginnings.find(history)).toMatchObject({ count: 3, state: 'three' });
    expect(beginnings.find(history.slice(0, 2))).toBeNull();
    expect(beginnings.find([history[0]!, said(2), history[2]!, history[3]!])).toBeNull();
    expect(beginnings.find([])).toBeNull();
  });

  test('ends where it did when it was kept, though its array has grown since', () => {
    const beginnings = createBeginnings<string>();
    const history = [said(1), said(2)];
    beginnings.keep(history, 'two');
    history.push(said(3));
    expect(beginnings.find(history)).toMatchObject({ count: 2, state: 'two' });
  });
});

describe('histories of one line', () => {
  test('the store and a turn extend the same history by the same messages, the turn in its own array', () => {
    const all = [1, 2, 3, 4, 5].map(said);
    const stored = all.slice(0, 2);
    const turn = extendHistory(stored, all[2]!);
    const asked = extendHistory(stored, all[2]!);
    turn.push(all[3]!);
    const answered = extendHistory(asked, all[3]!);
    const next = extendHistory(answered, all[4]!);
    expect(isSameLine(next, turn, 4)).toBe(true);
    expect(isSameLine(next, stored, 2)).toBe(true);
    expect(isSameLine(next, all, 5)).toBe(false);
  });

  test('an array that has grown past the others is extended as one of them', () => {
    const all = [1, 2, 3, 4, 5, 6, 7].map(said);
    const turn = extendHistory(all.slice(0, 2), all[2]!);
    turn.push(all[3]!);
    const ahead = extendHistory(turn, all[4]!);
    turn.push(all[4]!, all[5]!);
    const next = extendHistory(turn, all[6]!);
    expect(isSameLine(next, ahead, 5)).toBe(true);
    const other = extendHistory(ahead, said(6));
    expect(isSameLine(next, other, 5)).toBe(true);
    expect(isSameLine(next, other, 6)).toBe(false);
  });

  test('however they are extended, those that are said to begin alike do', () => {
    const step = fc.record({ of: fc.nat(), message: fc.constantFrom(...[1, 2, 3].map(said)), grows: fc.boolean() });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 8 }), (steps) => {
        const histories: StoredMessage[][] = [[said(0)]];
        for (const { of, message, grows } of steps) {
          const history = histories[of % histories.length]!;
          if (grows) history.push(message);
          else histories.push(extendHistory(history, message));
          for (const a of histories)
            for (const b of histories)
              for (let count = 0; count <= Math.min(a.length, b.length); count += 1)
                if (isSameLine(a, b, count)) expect(a.slice(0, count)).toEqual(b.slice(0, count));
        }
      }),
    );
  });
});

describe('a growing history', () => {
  const call = (n: number): ContentBlock => ({
    type: 'tool_use',
    id: `tu_${ulidOf(n)}` as never,
    name: 't',
    input: { n },
  });
  const result = (n: number, of: number): StoredMessage =>
    message(n, 'tool', [
      {
        type: 'tool_result',
        tool_use_id: `tu_${ulidOf(of)}` as never,
        content: [{ type: 'text', text: 'r' }],
        is_error: of % 2 === 0,
      },
    ]);
  /** Any order of what people, models and tools say: well-formed or not. */
  const histories = fc
    .array(fc.constantFrom('user', 'answer', 'call', 'calls', 'result', 'stray', 'system', 'half', 'blank'), {
      maxLength: 24,
    })
    .map((kinds) => {
      const open: number[] = [];
      return kinds.map((kind, i): StoredMessage => {
        const n = i + 1;
        if (kind === 'system') return message(n, 'system', [text(`rule ${n}`)]);
        if (kind === 'result' && open.length > 0) return result(n, open.shift()!);
        if (kind === 'result' || kind === 'stray') return result(n, 900 + n);
        if (kind === 'half') return message(n, 'user', [text(`half \ud83d of ${n}`)]);
        if (kind === 'blank') return message(n, 'assistant', [text(' ')]);
        if (kind === 'user' || kind === 'answer')
          return message(n, kind === 'user' ? 'user' : 'assistant', [text(`${n}`)]);
        const ids = kind === 'call' ? [n] : [n, n + 100];
        open.push(...ids);
        return message(n, 'assistant', [text('let me see'), ...ids.map(call)]);
      });
    });
  const created = {
    anthropic: () => createAnthropicEncoder({}, silentLogger),
    openai: () => createOpenAiEncoder('openai', {}, silentLogger),
    responses: () => createResponsesEncoder(silentLogger),
  };
  const encoders = Object.fromEntries(
    Object.entries(created).map(([wire, create]) => [
      wire,
      () => {
        const encode = create();
        return (ask: CanonicalRequest) => bodyText(encode(ask));
      },
    ]),
  ) as Record<keyof typeof created, () => (ask: CanonicalRequest) => string>;
  const wires = ['anthropic', 'openai', 'responses'] as const;
  /** Longer than what is copied to be sent. */
  const long = message(1, 'user', [text('long '.repeat(20_000))]);

  test.each(wires)('is sent on the %s wire from where it is kept once it is long, with nothing copied', (wire) => {
    const entry = modelEntry(`${wire}:m`);
    const encode = created[wire]();
    const history = [long, ...[2, 3, 4, 5].map(said)];
    const [first, second] = [3, 5].map((length) => encode(request({ entry, messages: history.slice(0, length) })));
    expect([first!.length, second!.length]).toEqual([3, 3]);
    expect(second![1]!.buffer === first![1]!.buffer).toBe(true);
    expect(encode(request({ entry, messages: [said(1)] }))).toHaveLength(1);
  });

  test.each(wires)('leaves a call that had no result on the %s wire as it was sent, when the result comes', (wire) => {
    const entry = modelEntry(`${wire}:m`);
    const encode = created[wire]();
    const history = [long, message(2, 'assistant', [call(2)]), result(3, 2), said(4)];
    const open = encode(request({ entry, messages: history.slice(0, 2) }));
    const before = bodyText(open);
    const answered = bodyText(encode(request({ entry, messages: history })));
    expect(before).toContain('interrupted');
    expect(bodyText(open)).toBe(before);
    expect(answered).toBe(encoders[wire]()(request({ entry, messages: history })));
  });

  // A request may still be on its way, or be sent again, when the history goes on: in one way or in several.
  test.each(wires)('leaves what was sent of it on the %s wire as it was, however it goes on', (wire) => {
    const entry = modelEntry(`${wire}:m`);
    const lengths = fc.array(fc.nat({ max: 24 }), { minLength: 2, maxLength: 8 });
    fc.assert(
      fc.property(histories, histories, lengths, (one, other, steps) => {
        const encode = created[wire]();
        const sent = steps.map((length, i) => {
          const messages = [long, ...one.slice(0, length), ...(i % 2 === 0 ? [] : other.slice(0, 2))];
          const pieces = encode(request({ entry, messages }));
          return { pieces, text: bodyText(pieces), fresh: encoders[wire]()(request({ entry, messages })) };
        });
        for (const { pieces, text: before, fresh } of sent) {
          expect(before).toBe(fresh);
          expect(bodyText(pieces)).toBe(before);
        }
      }),
      { numRuns: 40 },
    );
  });

  test.each(wires)(
    'is said on the %s wire, request by request, as by an encoder that never saw its beginning',
    (wire) => {
      const entry = modelEntry(`${wire}:m`);
      fc.assert(
        fc.property(histories, fc.infiniteStream(fc.nat({ max: 3 })), (history, steps) => {
          const growing = encoders[wire]();
          for (let length = 0; ; length += steps.next().value ?? 1) {
            const messages = history.slice(0, length);
            const ask = request({ entry, messages });
            expect(growing(ask)).toBe(encoders[wire]()(request({ entry, messages })));
            expect(growing(ask)).not.toMatch(/\\ud8/);
            if (length >= history.length) return;
          }
        }),
        { numRuns: 60 },
      );
    },
  );

  test('is checked from where it was well-formed, with the same outcome', () => {
    fc.assert(
      fc.property(histories, (history) => {
        const fresh = (messages: readonly StoredMessage[]) => requestMessages(messages.map((m) => ({ ...m })));
        for (let length = 0; length <= history.length; length += 1) {
          const messages = history.slice(0, length);
          expect(requestMessages(messages)).toEqual(fresh(messages));
        }
      }),
      { numRuns: 60 },
    );
  });

  test('another message in the middle is said, though what stands around it was said before', () => {
    const entry = modelEntry('anthropic:m');
    const history = [1, 2, 3, 4, 5].map(said);
    const encode = encoders.anthropic();
    encode(request({ entry, messages: history.slice(0, 4) }));
    const shortened = history.with(2, message(3, 'user', [text('[elided]')]));
    expect(encode(request({ entry, messages: shortened }))).toContain('[elided]');
  });
});
