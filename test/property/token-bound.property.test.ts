// No text makes an honest provider bill more than was reserved, whatever a real tokenizer makes of it (14 §2, §5).
import fc from 'fast-check';
import { countTokens } from 'gpt-tokenizer/encoding/o200k_base';
import { expect, it } from 'vitest';
import { collectTexts } from '#core/policy/pricing/prompt-tokens.ts';
import { toPusd, type Usd } from '#protocol/money.ts';
import type { Received, Said } from '../api/gateway/provider.ts';
import { type GatewayWorld, jsonOf, startGateway } from '../api/gateway/world.ts';

/** What providers add to every request unasked. */
const ADDED = 300;
const OUTPUT = 10;
const MODELS = { messages: 'claude-haiku-4-5', chat: 'gpt-5-mini' } as const;
/** Of so many pieces. */
type Writer = (random: () => number, pieces: number) => string;
const of =
  (one: (random: () => number) => string, between = ''): Writer =>
  (random, pieces) =>
    Array.from({ length: pieces }, () => one(random)).join(between);
const pick = (letters: string) => (random: () => number) => [...letters][Math.floor(random() * [...letters].length)]!;
const hex = pick('0123456789abcdef');
const digit = pick('0123456789');
const word = pick('abcdefghijklmnopqrstuvwxyz');
const times = (one: (random: () => number) => string, count: number) => (random: () => number) =>
  Array.from({ length: count }, () => one(random)).join('');

const WRITERS: Readonly<Record<string, Writer>> = {
  digits: of(digit, ' '),
  numbers: of(times(digit, 9), ', '),
  base64: of(times(pick('ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/'), 12)),
  uuids: of((random) => [8, 4, 4, 4, 12].map((n) => times(hex, n)(random)).join('-'), '\n'),
  csv: of((random) => `${times(digit, 5)(random)},${times(word, 3)(random)},"${times(digit, 2)(random)}"`, '\r\n'),
  cjk: of((random) => String.fromCodePoint(0x4e00 + Math.floor(random() * 0x5000))),
  emoji: of((random) => String.fromCodePoint(0x1f300 + Math.floor(random() * 0x2ff))),
  code: of(
    (random) => `if (${word(random)}[${digit(random)}] !== null) {\n\t\treturn !${times(word, 4)(random)};\n}`,
    '\n',
  ),
  prose: of((random) => times(word, 1 + Math.floor(random() * 9))(random), ' '),
  json: of((random) => `{"${word(random)}":[${digit(random)},{"${times(hex, 4)(random)}":null}]}`, ','),
  escapes: of(pick('"\\\n\t\u0001\u001f'), ''),
  scripts: of(pick('ÀאतמჀክ᠀ꙀﬀⰀ'), ''),
};
const NAMES = Object.keys(WRITERS);

/** The tokens that the provider bills: every text that it was sent, and what it adds. */
function billedTokens({ body }: Received): number {
  const { system, messages, tools, input } = body;
  const texts = collectTexts([system, messages, input]).concat(tools === undefined ? [] : JSON.stringify(tools));
  const count = (text: string) => countTokens(text, { disallowedSpecial: new Set(), allowedSpecial: new Set() });
  // A real provider sees neither roles nor types as texts; they stand for its frame around each part.
  return texts.reduce((sum, text) => sum + count(text), ADDED);
}

function answer(call: Received): Said {
  const tokens = billedTokens(call);
  const cached = call.bytes.includes('"cache_control"');
  return { text: 'ok', usage: { input: cached ? 0 : tokens, written: cached ? tokens : 0, output: OUTPUT } };
}

const seeded = (seed: number) => {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
};

const step = fc.record({
  kind: fc.constantFrom(...NAMES),
  pieces: fc.integer({ min: 1, max: 1500 }),
  seed: fc.integer({ min: 1, max: 2 ** 30 }),
  /** Changes an earlier message, so that no prefix is known. */
  edits: fc.boolean(),
  /** Calls at once with the same text. */
  together: fc.integer({ min: 1, max: 3 }),
  marked: fc.boolean(),
});
const plan = fc.record({
  wire: fc.constantFrom('messages' as const, 'chat' as const),
  steps: fc.array(step, { minLength: 1, maxLength: 5 }),
  cap: fc.integer({ min: 300, max: 60_000 }).map((millionths) => (millionths / 1e6).toFixed(6)),
});
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;
const textOf = ({ kind, pieces, seed }: Step) => WRITERS[kind]!(seeded(seed), pieces);
const runs = (count: number) => ({
  numRuns: Number(process.env.METIS_PROPERTY_RUNS ?? count),
  interruptAfterTimeLimit: 90_000,
  endOnFailure: true,
});

async function startWorld(): Promise<GatewayWorld> {
  const config = {
    gateway: { min_output_tokens: 1, wait_seconds: 1 },
    turn: { max_llm_calls: 50, max_output_tokens: OUTPUT, timeout_seconds: null },
  };
  return startGateway(answer, { config });
}

// Promise 14.13: No text passes a cap of the gateway, as a real tokenizer counts it.
it('a client that sends whatever texts through the gateway, in turn and at once, never passes its cap', async () => {
  const world = await startWorld();
  const statuses = new Set<number>();
  let session = 0;
  await fc.assert(
    fc.asyncProperty(plan, async ({ wire, steps, cap }) => {
      const ref = `s${session++}`;
      const messages: object[] = [];
      for (const one of steps) {
        const text = textOf(one);
        if (one.edits && messages.length > 0) messages[0] = { role: 'user', content: text.slice(0, 100) };
        const mark = wire === 'messages' && one.marked ? { cache_control: { type: 'ephemeral' } } : {};
        messages.push({ role: 'user', content: [{ type: 'text', text, ...mark }] });
        const bound = wire === 'messages' ? { max_tokens: OUTPUT } : { max_completion_tokens: OUTPUT };
        const body = { model: MODELS[wire], ...bound, messages };
        const route = wire === 'messages' ? '/v1/messages' : '/v1/chat/completions';
        const headers = { 'x-metis-session': ref, 'x-metis-budget-usd': cap };
        const answers = await Promise.all(Array.from({ length: one.together }, () => world.post(route, body, headers)));
        for (const got of answers) {
          statuses.add(got.status);
          await jsonOf(got);
        }
        messages.push({ role: 'assistant', content: 'ok' });
      }
      const { sessions } = await world.server.client.listSessions({ door: 'gateway' });
      const own = sessions.find(({ client_ref }) => client_ref === ref)!;
      expect(toPusd(own.cost_so_far_usd as Usd)).toBeLessThanOrEqual(toPusd(cap as Usd));
      expect(own.budget).toMatchObject({ reserved_usd: '0' });
    }),
    runs(25),
  );
  // Or nothing was put to the test.
  expect([...statuses].sort()).toEqual([200, 402]);
}, 120_000);

// Promise 14.13: No text passes a cap of a session of our own, as a real tokenizer counts it.
it('a session of our own that is given whatever texts never passes its cap', async () => {
  const world = await startWorld();
  const { server, folder } = world;
  let refused = 0;
  let ended = 0;
  await fc.assert(
    fc.asyncProperty(plan, async ({ wire, steps, cap }) => {
      const model = wire === 'messages' ? 'haiku' : 'mini';
      // Above what the tools of a request need.
      const limit = (Number(cap) + (wire === 'messages' ? 0.03 : 0.01)).toFixed(6);
      const id = await server.session(folder, model, { max_cost_usd: limit, on_reached: 'stop' });
      for (const one of steps) {
        const turn = await server.turn(id, textOf(one)).catch(() => null);
        if (turn?.stop_reason === 'end_turn') ended++;
        else refused++;
      }
      const view = await server.client.getSession(id);
      expect(toPusd(view.cost_so_far_usd as Usd)).toBeLessThanOrEqual(toPusd(limit as Usd));
      expect(view.budget).toMatchObject({ reserved_usd: '0' });
    }),
    runs(15),
  );
  expect(refused).toBeGreaterThan(0);
  expect(ended).toBeGreaterThan(0);
}, 120_000);
