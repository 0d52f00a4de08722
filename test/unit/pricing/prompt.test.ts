// What is known of a prompt, and the bound of the rest: never below what a provider counts (14 §2).
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createKnownPrompts, lookUpPrompt, rememberPrompt } from '#core/engine/state/memory.ts';
import { computeTokenBound, type Prompt, selectNewText } from '#core/policy/pricing/prompt-tokens.ts';
import type { SessionId } from '#protocol/ids.ts';

const WINDOW = { max_context_tokens: Infinity, max_image_tokens: 1000 };
const session = (n: number) => `sess_${n}` as SessionId;

/** A part of so many bytes, of which a provider counts `tokens`. */
const part = (name: string, bytes: number) => ({ key: name, bytes, images: 0, unbounded: false, texts: null });
const HEAD = Array.from({ length: 5 }, (_, i) => part(`h${i}`, 900 + i * 700));
const MESSAGES = Array.from({ length: 8 }, (_, i) => part(`m${i}`, 100 + ((i * 37) % 11) * 400));
/** Less than its bytes, another share for each part, model and settings. */
const tokensOf = ({ key, bytes }: { key: unknown; bytes: number }, salt: number) =>
  Math.floor((bytes * (20 + ((String(key).charCodeAt(1) * 31 + salt * 17) % 80))) / 100);

const promptOf = (head: readonly number[], messages: readonly number[], settings = ''): Prompt => ({
  settings,
  head: [...new Set(head)].map((i) => HEAD[i]!),
  messages: messages.map((i) => MESSAGES[i]!),
  frame_bytes: 50,
  unkeyed: { bytes: 0, images: 0 },
  unbounded: false,
});
const counted = ({ head, messages }: Prompt, salt: number) =>
  [...head, ...messages].reduce((sum, one) => sum + tokensOf(one, salt), 0);

function boundOf(memory: ReturnType<typeof createKnownPrompts>, id: number, model: string, prompt: Prompt) {
  const { known, trace } = lookUpPrompt(memory, session(id), model, prompt);
  const bounds = [null, ...known].map((one) => computeTokenBound(selectNewText(prompt, one), WINDOW, 0));
  return { bound: Math.min(...bounds), known, trace };
}

describe('the bound of a prompt', () => {
  // Promise 14.14: What is known and new text together are never below what an honest provider counts.
  it('is never below what an honest provider counts, whatever it reported of other prompts before', () => {
    const index = (n: number) => fc.integer({ min: 0, max: n - 1 });
    const call = fc.record({
      session: index(2),
      model: index(2),
      setting: index(2),
      head: fc.array(index(HEAD.length), { maxLength: 4 }),
      messages: fc.array(index(MESSAGES.length), { maxLength: 6 }),
      /** Goes on from the last prompt of the session. */
      grows: fc.boolean(),
    });
    let saved = 0;
    fc.assert(
      fc.property(fc.array(call, { minLength: 2, maxLength: 12 }), (calls) => {
        const memory = createKnownPrompts();
        const last = new Map<number, readonly number[]>();
        for (const one of calls) {
          const before = one.grows ? (last.get(one.session) ?? []) : [];
          const messages = [...before, ...one.messages];
          last.set(one.session, messages);
          const prompt = promptOf(one.head, messages, String(one.setting));
          const salt = one.model * 2 + one.setting;
          const { bound, known, trace } = boundOf(memory, one.session, `a:m${one.model}`, prompt);
          const tokens = counted(prompt, salt);
          expect(bound).toBeGreaterThanOrEqual(tokens);
          for (const known_ of known)
            expect(computeTokenBound(selectNewText(prompt, known_), WINDOW, 0)).toBeGreaterThanOrEqual(tokens);
          saved += known.length;
          rememberPrompt(memory, trace, tokens);
        }
      }),
      { numRuns: 2000 },
    );
    expect(saved).toBeGreaterThan(1000);
  });

  // Promise 14.14: A reservation is what was reported of the longest prefix, and the bytes of what is new.
  it('is what was reported of the longest prefix, and the bytes of what is new', () => {
    const memory = createKnownPrompts();
    const first = promptOf([0, 1], [1, 2]);
    expect(boundOf(memory, 1, 'a:m', first).bound).toBe(900 + 1600 + MESSAGES[1]!.bytes + MESSAGES[2]!.bytes + 50 + 32);
    rememberPrompt(memory, boundOf(memory, 1, 'a:m', first).trace, 1234);
    expect(boundOf(memory, 1, 'a:m', promptOf([0, 1], [1, 2, 3])).bound).toBe(1234 + 32 + MESSAGES[3]!.bytes);
    // A new tool is new text.
    expect(boundOf(memory, 1, 'a:m', promptOf([0, 1, 2], [1, 2])).bound).toBe(1234 + 16 + HEAD[2]!.bytes);
    // Its system text and tools are known in another session, its messages are not.
    const other = boundOf(memory, 2, 'a:m', promptOf([0, 1], [4])).bound;
    expect(other).toBe(1234 + 32 + MESSAGES[4]!.bytes);
  });

  it('takes of what other sessions reported of a part the least', () => {
    const memory = createKnownPrompts();
    for (const [id, tokens] of [
      [1, 900],
      [2, 500],
      [3, 700],
    ] as const)
      rememberPrompt(memory, boundOf(memory, id, 'a:m', promptOf([4], [id])).trace, tokens);
    expect(boundOf(memory, 4, 'a:m', promptOf([4], [])).bound).toBe(516);
  });

  // Promise 14.14: Nothing is known of an edited message, another model and other settings.
  it('knows nothing of an edited message, of another model and of other settings', () => {
    const memory = createKnownPrompts();
    const first = promptOf([0], [1, 2]);
    rememberPrompt(memory, boundOf(memory, 1, 'a:m', first).trace, 10);
    expect(boundOf(memory, 1, 'a:m', promptOf([0], [3, 2])).known).toEqual([]);
    expect(boundOf(memory, 1, 'a:m', promptOf([0], [1])).known).toEqual([]);
    expect(boundOf(memory, 1, 'a:other', first).known).toEqual([]);
    expect(boundOf(memory, 1, 'a:m', promptOf([0], [1, 2], 'thinking')).known).toEqual([]);
    expect(boundOf(memory, 1, 'a:m', first).known).toHaveLength(1);
  });

  it('is the window where a new part has no bound, and not where that part is known', () => {
    const memory = createKnownPrompts();
    const model = { max_context_tokens: 100_000, max_image_tokens: 1000 };
    const plain = promptOf([0], [1]);
    const prompt = { ...plain, messages: [{ ...part('pdf', 10), unbounded: true }] };
    expect(computeTokenBound(selectNewText(prompt, null), model, 0)).toBe(100_000);
    rememberPrompt(memory, lookUpPrompt(memory, session(1), 'a:m', prompt).trace, 7000);
    const { known } = lookUpPrompt(memory, session(1), 'a:m', prompt);
    expect(computeTokenBound(selectNewText(prompt, known[0]!), model, 0)).toBe(7016);
    expect(computeTokenBound({ ...selectNewText(plain, null), images: 3 }, model, 500)).toBe(
      900 + MESSAGES[1]!.bytes + 50 + 16 + 3500,
    );
    expect(computeTokenBound({ ...selectNewText(plain, null), unbounded: true }, model, 500)).toBe(100_000);
  });
});

describe('what is remembered', () => {
  it('is bounded by sessions and by prompts of a session, and what was used last stays', () => {
    const memory = createKnownPrompts();
    const learn = (id: number, messages: readonly number[]) =>
      rememberPrompt(memory, lookUpPrompt(memory, session(id), 'a:m', promptOf([], messages)).trace, 5);
    const knows = (id: number, messages: readonly number[]) =>
      lookUpPrompt(memory, session(id), 'a:m', promptOf([], messages)).known.length > 0;
    learn(0, [1]);
    for (let id = 1; id < 2048; id++) learn(id, [1]);
    expect(knows(0, [1])).toBe(true);
    learn(2048, [1]);
    expect([memory.sessions.size, knows(0, [1]), knows(1, [1]), knows(2, [1])]).toEqual([2048, true, false, true]);
    for (let i = 0; i < 9; i++) learn(5, [0, ...Array(i).fill(2)]);
    expect(memory.sessions.get(session(5))).toHaveLength(8);
    for (let i = 0; i < 5000; i++) {
      const big = { ...promptOf([], [1]), head: [part(`big${i}`, 2000)] };
      rememberPrompt(memory, lookUpPrompt(memory, session(1), 'a:m', big).trace, 5);
    }
    expect(memory.heads.size).toBe(4096);
  });
});
