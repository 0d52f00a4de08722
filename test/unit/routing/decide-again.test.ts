// A decision made again from its stored facts: the same rules give the same model, whatever decided (21 §2).
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { decideRoute } from '#core/policy/routing/chain.ts';
import { decideAgain } from '#core/policy/routing/decide-again.ts';
import { MAX_NOTED_PATTERNS, noteFacts } from '#core/policy/routing/route-facts.ts';
import { collectFacts } from '#core/policy/routing/rules.ts';
import type { RequestedModel, TurnContext } from '#protocol/route.ts';
import { envOf, GPT, HAIKU, OPUS, SONNET, turn, type World } from './world.ts';

const GATEWAY = new Set(['anthropic', 'openai', 'local']);

function storeDecision(context: TurnContext, world: World) {
  const env = envOf(world);
  const facts = collectFacts(context);
  const decision = decideRoute(context, env, { facts });
  return {
    ...decision,
    chain: [...decision.chain],
    elapsed_ms: 0,
    requested_model: context.requested?.name ?? null,
    facts: noteFacts(context, facts, decision, env.policies.rules),
  };
}

function repeat(stored: ReturnType<typeof storeDecision>, world: World) {
  const { policies, ...env } = envOf(world);
  return decideAgain(stored, { ...env, alternative: { policies, tiers: null }, gatewayAdapters: GATEWAY });
}

const asked = (over: Partial<RequestedModel>): RequestedModel => ({
  wire: 'messages',
  name: 'opus',
  model: OPUS,
  effort: null,
  own_key_adapters: null,
  binding: false,
  ...over,
});

const model = fc.constantFrom(OPUS, SONNET, HAIKU, GPT);
const context = fc.record({
  estimated_input_tokens: fc.integer({ min: 1, max: 12_000 }),
  has_images: fc.boolean(),
  message_has_images: fc.boolean(),
  has_tool_definitions: fc.boolean(),
  requires_structured_output: fc.boolean(),
  document_media_types: fc.constantFrom([], ['application/pdf']),
  budget_limited: fc.boolean(),
  user_message_text: fc.constantFrom('hello', 'prove it', 'refactor all'),
});
const who = fc.oneof(
  fc.record({ per_message_override: fc.option(model), session_active_model: fc.option(model) }),
  fc.record({ is_worker: fc.constant(true), worker_tier_model: fc.option(model) }),
  fc.record({
    is_worker: fc.boolean(),
    requested: fc.record({ model: fc.option(model), binding: fc.boolean() }).map(asked),
  }),
);
const POLICIES = [
  'global_default: sonnet',
  'rules:\n  - { when: { message_matches: prove }, use: opus }\n  - { when: { message_contains_any: [Refactor] }, use: gpt }\n  - { when: { estimated_input_tokens_gt: 4000 }, use: sonnet }',
  'rules:\n  - { when: { has_images: true }, use: haiku }\n  - { when: { requested_model: "op*" }, use: haiku }\n  - { when: { not: { is_worker: true } }, use: opus }',
];
const out = fc.subarray([OPUS, SONNET, HAIKU, GPT], { maxLength: 2 });

test('the same policy decides the same, for any turn that had a model', () => {
  fc.assert(
    fc.property(context, who, fc.constantFrom(...POLICIES), out, (facts, person, global, outages) => {
      const stored = storeDecision(turn({ ...facts, smallest_input_tokens: facts.estimated_input_tokens, ...person }), {
        global,
        out: outages,
      });
      const again = repeat(stored, { global });
      if (stored.refused !== null) expect(again).toBeNull();
      else
        expect([again?.model, again?.rule_name]).toEqual([
          stored.chosen_model,
          stored.chain[stored.winner_index]?.rule_name,
        ]);
    }),
  );
});

test('a call of the gateway follows another rule, and one for a model that is not listed keeps it', () => {
  const free = storeDecision(turn({ requested: asked({ name: 'auto', model: null }) }), { global: POLICIES[0]! });
  expect(free.chosen_model).toBe(SONNET);
  const rule = 'rules: [{ name: r, when: { requested_model: auto }, use: haiku }]';
  expect(repeat(free, { global: rule })).toMatchObject({ model: HAIKU, rule_name: 'r' });

  const registry = envOf({}).registry;
  const unlisted = asked({ name: 'claude-next', model: 'anthropic:claude-next', binding: true });
  const stored = { ...storeDecision(turn({ requested: asked({ binding: true }) }), {}) };
  const entry = { ...stored.chain[0]!, candidate_model: unlisted.model };
  const named = {
    ...stored,
    chosen_model: unlisted.model!,
    requested_model: unlisted.name,
    chain: [entry, ...stored.chain.slice(1)],
    facts: { ...stored.facts, requested: { ...unlisted, own_key_adapters: null, name: undefined } as never },
  };
  expect(registry.get(unlisted.model!)).toBeNull();
  expect(repeat(named, { global: rule })?.model).toBe(unlisted.model);
});

test('a decision notes a limited number of patterns, by keys that equal conditions share', () => {
  const rules = Array.from(
    { length: MAX_NOTED_PATTERNS + 6 },
    (_, i) => `{ when: { message_contains_any: ["<${i}>"] }, use: opus }`,
  );
  const { facts } = storeDecision(turn({ user_message_text: '<3> and <66>' }), {
    global: `rules: [${rules.join(', ')}]`,
  });
  // Only the first 64 are asked for.
  expect(facts.matched).toHaveLength(1);
  expect(facts.matched.length + facts.unmatched.length).toBe(MAX_NOTED_PATTERNS);
  const keys = (words: string) =>
    storeDecision(turn(), { global: `rules: [{ when: { message_contains_any: ${words} }, use: opus }]` }).facts
      .unmatched;
  expect(keys('[a, B]')).toEqual(keys('[b, A, a]'));
  expect(keys('[a]')).not.toEqual(keys('[a, b]'));
  expect(JSON.stringify(facts)).not.toContain('<3>');
});
