// No request whose bound is accepted is billed above its reservation, whatever its provider does with it (22 §3).
import fc from 'fast-check';
import { countTokens } from 'gpt-tokenizer/encoding/o200k_base';
import { describe, expect, it } from 'vitest';
import { createKnownPrompts, lookUpPrompt, rememberPrompt } from '#core/engine/state/memory.ts';
import { clientPrompt } from '#core/policy/gateway/client-prompt.ts';
import { computeLargestBill, findOutputBound, findUnboundedPart } from '#core/policy/gateway/largest-bill.ts';
import type { GatewayRegistry } from '#core/policy/gateway/model-names.ts';
import { getWireTools } from '#core/policy/gateway/provider-tools.ts';
import { readRequestFacts } from '#core/policy/gateway/request-facts.ts';
import { priceBill } from '#core/policy/pricing/call-bill.ts';
import { collectTexts, computeTokenBound, selectNewText } from '#core/policy/pricing/prompt-tokens.ts';
import type { ClientWire } from '#protocol/client-wire.ts';
import type { SessionId } from '#protocol/ids.ts';
import type { ModelEntry } from '#protocol/model.ts';
import { NO_TOKENS, type Terms, type TokenUsage } from '#protocol/usage.ts';
import { must } from '../support/engine.ts';
import { tableOf } from '../support/prices.ts';

const runs = (count: number) => ({
  numRuns: Number(process.env.METIS_PROPERTY_RUNS ?? count),
  interruptAfterTimeLimit: 60_000,
});
const WINDOW = 30_000;
/** The longest answer of each model. */
const MOST_OUTPUT: Readonly<Record<string, number>> = { small: 2000, large: 3000, other: 5000 };
const OVERHEAD = 1024;

const rates = (input: string, output: string, rest: object = {}) => ({
  input_per_mtok_usd: input,
  output_per_mtok_usd: output,
  cache_write_per_mtok_usd: String(Number(input) * 1.25),
  cache_write_1h_per_mtok_usd: String(Number(input) * 2),
  multipliers: {
    service_tier: { flex: '0.5', priority: '2' },
    speed: { fast: '3' },
    inference_geo: { us: '1.5' },
  },
  fees: { web_search: '10', web_search_call: '12', file_search_call: '2.5', code_interpreter_container: '30' },
  ...rest,
});
const PRICES = tableOf(
  JSON.stringify({
    pricing_version: 'bills',
    models: {
      'p:small': rates('1', '4', { long_context: [{ above_prompt_tokens: 20_000, ...stepRates() }] }),
      'p:large': rates('10', '40'),
      'p:other': rates('2', '60', { fees: { web_search: '20', web_search_call: '1' } }),
    },
  }),
);

function stepRates() {
  return { input_per_mtok_usd: '3', output_per_mtok_usd: '9', cache_write_per_mtok_usd: '4' };
}

const createEntry = (name: string): ModelEntry =>
  ({
    id: `p:${name}`,
    adapter: 'p',
    wire_name: name,
    pricing_id: `p:${name}`,
    tokenizer: null,
    capabilities: { max_context_tokens: WINDOW, max_output_tokens: MOST_OUTPUT[name], max_image_tokens: 1000 },
  }) as unknown as ModelEntry;
const MODELS = ['small', 'large', 'other'].map(createEntry);
const REGISTRY = {
  models: MODELS,
  adapters: new Map([['p', { type: 'openai', options: {}, overhead_tokens: OVERHEAD }]]),
} as unknown as GatewayRegistry;

const name = fc.constantFrom('small', 'large', 'other');
const uses = fc.integer({ min: 1, max: 15 });
const optional = <T>(value: fc.Arbitrary<T>) => fc.option(value, { nil: undefined });
const terms = {
  service_tier: optional(fc.constantFrom('flex', 'priority', 'default', 'auto')),
  speed: optional(fc.constantFrom('fast', 'standard')),
  inference_geo: optional(fc.constantFrom('us', 'global')),
};
const cached = { type: 'ephemeral' };
const text = fc.string({ maxLength: 3000, unit: 'grapheme' });

const messagesTool = fc.oneof(
  fc.record({ type: fc.constant('web_search_20250305'), name: fc.constant('s'), max_uses: uses }),
  fc.record({ type: fc.constant('web_fetch_20250910'), name: fc.constant('f'), max_uses: uses }),
  fc.record({ type: fc.constant('tool_search_tool_bm25'), name: fc.constant('t') }),
  fc.record({ type: fc.constant('bash_20250124'), name: fc.constant('bash') }),
  fc.record({
    type: fc.constant('advisor_20260301'),
    name: fc.constant('advisor'),
    model: name,
    max_uses: fc.integer({ min: 1, max: 3 }),
    max_tokens: optional(fc.integer({ min: 100, max: 2000 })),
    caching: optional(fc.constant(cached)),
  }),
);
const messages = fc.record({
  model: name,
  max_tokens: fc.integer({ min: 1, max: 2000 }),
  messages: text.map((content) => [{ role: 'user', content }]),
  system: optional(text.map((said) => [{ type: 'text', text: said, cache_control: cached }])),
  tools: optional(fc.array(messagesTool, { maxLength: 3 })),
  fallbacks: optional(
    fc.array(fc.record({ model: name, max_tokens: optional(fc.integer({ min: 1, max: 2000 })) }), { maxLength: 2 }),
  ),
  context_management: optional(
    fc.integer({ min: 1, max: 40_000 }).map((value) => ({
      edits: [{ type: 'compact_20260112', trigger: { type: 'input_tokens', value } }],
    })),
  ),
  compaction: optional(fc.constant({ type: 'summarize' })),
  ...terms,
});
const responses = fc.record({
  model: name,
  max_output_tokens: optional(fc.integer({ min: 1, max: 2000 })),
  input: text,
  max_tool_calls: optional(uses),
  tools: optional(
    fc.array(
      fc.constantFrom<object>(
        { type: 'web_search' },
        { type: 'file_search', vector_store_ids: ['v'] },
        { type: 'code_interpreter', container: { type: 'auto' } },
        { type: 'shell', environment: { type: 'container_auto' } },
        { type: 'function', name: 'f' },
        { type: 'namespace', name: 'n', tools: [{ type: 'web_search' }] },
        { type: 'mcp', server_label: 'm' },
      ),
      { maxLength: 3 },
    ),
  ),
  context_management: optional(
    fc.integer({ min: 1, max: 40_000 }).map((compact_threshold) => [{ type: 'compaction', compact_threshold }]),
  ),
  ...terms,
});
const chat = fc.record({
  model: name,
  max_completion_tokens: optional(fc.integer({ min: 1, max: 2000 })),
  n: optional(fc.integer({ min: 1, max: 4 })),
  best_of: optional(fc.integer({ min: 1, max: 4 })),
  prediction: optional(text.map((content) => ({ type: 'content', content }))),
  messages: text.map((content) => [{ role: 'user', content }]),
  models: optional(fc.array(name, { maxLength: 2 })),
  ...terms,
});
type Body = Readonly<Record<string, unknown>>;
const request = fc.oneof(
  messages.map((body) => ({ wire: 'messages' as const, body: body as Body })),
  responses.map((body) => ({ wire: 'responses' as const, body: body as Body })),
  chat.map((body) => ({ wire: 'chat' as const, body: body as Body })),
);

/** The reservation of a request; null where a limit refuses it. */
function reserve(wire: ClientWire, body: Body) {
  const bytes = Buffer.from(JSON.stringify(body));
  const facts = must(readRequestFacts(wire, bytes));
  const model = MODELS.find(({ wire_name }) => wire_name === facts.model)!;
  const asked = { prices: PRICES, registry: REGISTRY, model, facts };
  if (findUnboundedPart(asked) !== null) return null;
  const prompt = clientPrompt(bytes, facts);
  const prompt_tokens = computeTokenBound(selectNewText(prompt, null), model.capabilities, OVERHEAD);
  const output = findOutputBound(facts, model, { options: {} });
  return computeLargestBill({ ...asked, prompt, prompt_tokens }, output);
}

/** A provider that uses up every row: written independently of what is reserved, from the request as it is sent. */
function billAll(wire: ClientWire, body: Body, draw: () => number): bigint {
  const list = (value: unknown) => (Array.isArray(value) ? (value as Body[]) : []);
  const tools = list(body.tools).flatMap((tool) => [tool, ...list(tool.tools)]);
  const hosted = tools.filter(({ type }) => /^(web_|file_search|code_inter|shell|tool_search)/.test(String(type)));
  const advisors = tools.filter(({ type }) => String(type).startsWith('advisor'));
  const usesOf = new Map<string, number>();
  let samplings = 1;
  if (wire === 'responses' && hosted.length > 0) {
    const calls = body.max_tool_calls as number;
    samplings += calls;
    for (let i = 0; i < calls; i++) {
      const { type } = hosted[Math.floor(draw() * hosted.length)]!;
      const isContainer = type === 'code_interpreter' || type === 'shell';
      const tool = isContainer ? 'code_interpreter_container' : `${String(type)}_call`;
      usesOf.set(tool, (usesOf.get(tool) ?? 0) + 1);
    }
  } else if (hosted.length > 0) {
    for (const { type, max_uses } of hosted) {
      const counted = (max_uses as number | undefined) ?? 20;
      samplings += counted;
      if (String(type).startsWith('web_search')) usesOf.set('web_search', (usesOf.get('web_search') ?? 0) + counted);
    }
    samplings = Math.min(samplings, getWireTools('messages').samplings!);
  }
  const advices = advisors.reduce((sum, { max_uses }) => sum + (max_uses as number), 0);
  samplings += advices;
  const bound = (body.max_tokens ?? body.max_output_tokens ?? body.max_completion_tokens) as number | undefined;
  const most = (model: string) => bound ?? MOST_OUTPUT[model]!;
  // Rejected predictions are billed beside the answer.
  const predicted = countTokens(collectTexts([body.prediction]).join(' '));
  const own = countTokens(collectTexts([body.system, body.messages, body.input]).join(' ')) + 300;
  const rounds: { model: string; usage: TokenUsage; billed: boolean }[] = [];
  const bill = (model: string, prompt: number, output_tokens: number) => {
    const whole = Math.min(prompt, WINDOW);
    const mark = JSON.stringify(body);
    const isWritten = wire !== 'messages' || mark.includes('cache_control') || mark.includes('caching');
    const input = isWritten ? { cache_creation_input_tokens: whole } : { input_tokens: whole };
    rounds.push({ model: `p:${model}`, usage: { ...NO_TOKENS, ...input, output_tokens }, billed: true });
  };
  const copies = Math.max((body.n as number | undefined) ?? 1, (body.best_of as number | undefined) ?? 1);
  const edits = JSON.stringify(body.context_management ?? {});
  const threshold = Number(/"(?:value|compact_threshold)":(\d+)/.exec(edits)?.[1] ?? Number.POSITIVE_INFINITY);
  const chain = [
    { model: String(body.model), output: most(String(body.model)) },
    ...[...list(body.fallbacks), ...list(body.models)].map((entry) => {
      const given = entry as unknown as string | Body;
      if (typeof given === 'string') return { model: given, output: most(given) };
      const model = String(given.model);
      return { model, output: (given.max_tokens as number | undefined) ?? most(model) };
    }),
  ];
  let written = 0;
  for (const { model, output } of chain) {
    for (let i = 0; i < samplings; i++) {
      // Results of tools and advice fill the window.
      let prompt = i === 0 ? own + written : WINDOW;
      if (prompt >= threshold || body.compaction !== undefined) {
        bill(model, prompt, MOST_OUTPUT[model]!);
        // A summary may be longer than what it stands for.
        prompt += MOST_OUTPUT[model]!;
      }
      bill(model, prompt, (output + predicted) * copies);
    }
    written += output;
  }
  for (const { model, max_uses, max_tokens } of advisors)
    for (let i = 0; i < (max_uses as number); i++)
      bill(String(model), WINDOW, (max_tokens as number | undefined) ?? MOST_OUTPUT[String(model)]!);
  const pick = (asked: unknown, any: readonly string[]) =>
    asked === undefined || asked === 'auto' ? any[Math.floor(draw() * any.length)]! : String(asked);
  const served: Terms = {
    service_tier: pick(body.service_tier, ['standard', 'priority', 'flex']),
    speed: (body.speed as string | undefined) ?? null,
    inference_geo: pick(body.inference_geo, ['global', 'us']),
  };
  const feesOf = chain[Math.floor(draw() * chain.length)]!.model;
  const { tokens, fees, surcharge } = priceBill(PRICES, { model: `p:${feesOf}`, rounds, uses: usesOf, terms: served });
  return tokens + fees + surcharge;
}

/** The prompt reaches the threshold by what the first model wrote. */
const COMPACTED_BY_FALLBACK = {
  wire: 'messages' as const,
  body: {
    model: 'small',
    max_tokens: 1900,
    messages: [{ role: 'user', content: 'hello' }],
    fallbacks: [{ model: 'other' }],
    context_management: { edits: [{ type: 'compact_20260112', trigger: { type: 'input_tokens', value: 2000 } }] },
  } as Body,
};

describe('the largest bill', () => {
  // Promise 22.5: the reservation of a request is no less than what a provider that uses up every row bills.
  it('is no less than what a provider bills that uses up every row of the request', () => {
    let bounded = 0;
    fc.assert(
      fc.property(
        request,
        fc.array(fc.double({ min: 0, max: 0.999, noNaN: true }), { minLength: 30 }),
        (asked, dice) => {
          let at = 0;
          const reserved = reserve(asked.wire, asked.body);
          if (reserved === null) return;
          bounded++;
          const billed = billAll(asked.wire, asked.body, () => dice[at++ % dice.length]!);
          expect(reserved).toBeGreaterThanOrEqual(billed);
        },
      ),
      { ...runs(1500), examples: [[COMPACTED_BY_FALLBACK, [0]]] },
    );
    expect(bounded).toBeGreaterThan(100);
  });
});

/** Texts of eight classes, about 400 characters each; `seed` makes another one. */
const CLASSES: Readonly<Record<string, (seed: number) => string>> = {
  prose: (seed) =>
    `The cap of session ${seed} holds, however many workers run at once, and no call passes it. `.repeat(4),
  code: (seed) => `if (limits[${seed}]?.left !== null) {\n\t\treturn a${seed}[i] ?? \`\${x}\`;\n}\n`.repeat(6),
  digits: (seed) => Array.from({ length: 200 }, (_, i) => (i * 7 + seed) % 10).join(' '),
  UUIDs: (seed) => Array.from({ length: 11 }, (_, i) => toUuid(i * 7919 + seed)).join('\n'),
  base64: (seed) =>
    Buffer.from(Array.from({ length: 300 }, (_, i) => (i * i * 31 + seed * 17) % 256)).toString('base64'),
  CSV: (seed) => Array.from({ length: 30 }, (_, i) => `${seed},${i * 37},"a${i}",0.${i}`).join('\r\n'),
  CJK: (seed) => String.fromCodePoint(...Array.from({ length: 400 }, (_, i) => 0x4e00 + ((i * 97 + seed) % 0x5000))),
  'rare scripts': (seed) => [...'ᚠᚢᚦ𐌀𐌁ꙀꙁⰀⰁ᠀ᠠ𒀀𒀁ཀཁ'].join(String(seed % 10)).repeat(8),
};

function toUuid(seed: number): string {
  const hex = (BigInt(seed + 1) * 0x9e3779b97f4a7c15f39cc0605cedc835n).toString(16).padStart(32, '0').slice(-32);
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
}

describe('the bound of a prompt, counted with a real tokenizer', () => {
  // Promise 22.5: eight classes of text are never above the bound, first call and tenth.
  it.each(Object.keys(CLASSES))('is not below the tokens of any call of ten: %s', (kind) => {
    const known = createKnownPrompts();
    const capabilities = { max_context_tokens: 1_000_000, max_image_tokens: 0 };
    const spoken: object[] = [];
    const ratios: number[] = [];
    for (let call = 1; call <= 10; call++) {
      spoken.push({ role: 'user', content: CLASSES[kind]!(call) });
      const bytes = Buffer.from(JSON.stringify({ model: 'm', max_tokens: 1, messages: spoken }));
      const facts = must(readRequestFacts('messages', bytes));
      const prompt = clientPrompt(bytes, facts);
      const found = lookUpPrompt(known, 'sess_1' as SessionId, 'a:m', prompt);
      const bounds = [null, ...found.known].map((one) =>
        computeTokenBound(selectNewText(prompt, one), capabilities, OVERHEAD),
      );
      const bound = Math.min(...bounds);
      // Each message with its role and its borders, and what a provider adds unasked.
      const texts = spoken.map((one) => Object.values(one).join('\n\n'));
      const tokens = texts.reduce((sum, one) => sum + countTokens(one) + 8, 700);
      expect(bound).toBeGreaterThanOrEqual(tokens);
      ratios.push(bound / tokens);
      rememberPrompt(known, found.trace, tokens);
      spoken.push({ role: 'assistant', content: 'ok' });
    }
    // What is known makes the tenth bound a closer one than the first.
    expect(ratios[9]!).toBeLessThan(ratios[0]!);
  });
});
