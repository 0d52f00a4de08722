// The seven slots, validation, refusals, and what is kept of a decision (03 §5, §7, §8).
import { describe, expect, it } from 'vitest';
import { decideRoute, routeError, routingRecord } from '#core/policy/routing/chain.ts';
import { defaultConfig } from '#protocol/config.ts';
import { PolicyEvaluationSchema, type Recommendation, SLOTS, type TurnContext } from '#protocol/route.ts';
import { decide, envOf, GPT, HAIKU, LOCAL, OPUS, registryOf, SONNET, turn, type World } from './world.ts';

const PASSED = { count: 100, mean: 1 };
const ALWAYS = '{ not: { message_contains_any: ["never said"] } }';
const advice = (over: Partial<Recommendation> = {}): Recommendation => ({
  config: { ...defaultConfig('').pattern, mode: 'apply' },
  evidence: new Map([[GPT, { turns: 120, scored: PASSED, verified: PASSED }]]),
  chosen_model: GPT,
  confidence: 0.0812,
  sample_size: 12,
  k_cluster_size: 3,
  alternatives: [{ model: OPUS, score: 0.5, sample_size: 4, ...{ avg_cost_usd: '1' } }],
  ...over,
});
const advised = { recommendation: advice(), recommendation_absent: null };

function refusal(over: Partial<TurnContext>, world: World) {
  const ctx = turn(over);
  const env = envOf(world);
  const decision = decideRoute(ctx, env);
  return { decision, error: routeError(decision, ctx, env) };
}

describe('the order of the slots', () => {
  /** What makes each slot propose its own model. Slot 5 is alone in a worker. */
  const proposals: readonly { slot: number; model: string; ctx?: Partial<TurnContext>; world?: World }[] = [
    { slot: 0, model: OPUS, ctx: { per_message_override: OPUS } },
    { slot: 1, model: SONNET, ctx: { session_active_model: SONNET } },
    { slot: 2, model: HAIKU, world: { global: `rules: [{ when: ${ALWAYS}, use: haiku }]` } },
    { slot: 3, model: GPT, ctx: advised },
    { slot: 4, model: OPUS, ctx: { is_worker: true, worker_tier_model: OPUS } },
    { slot: 5, model: HAIKU, world: { workspace: 'default: haiku' } },
    { slot: 6, model: GPT, world: { configDefault: 'gpt' } },
  ];
  const pairs = proposals.flatMap((low) => proposals.filter((high) => high.slot > low.slot).map((high) => [low, high]));
  const possible = pairs.filter(([low, high]) => high!.slot !== 4 || low!.slot === 2);

  // Promise 03.3: of any two slots that propose the earlier one wins, and seven entries stand in order.
  it.each(possible.map(([low, high]) => [SLOTS[low!.slot], SLOTS[high!.slot], low!, high!] as const))(
    '%s wins over %s',
    (_, __, low, high) => {
      const decision = decide({ ...high.ctx, ...low.ctx }, { ...high.world, ...low.world });
      expect(decision).toMatchObject({ winner_index: low.slot, chosen_model: low.model, refused: null });
      expect(decision.chain.map((entry) => entry.policy)).toEqual(SLOTS);
      const isWorker = low.slot === 4 || high.slot === 4;
      const stated = isWorker ? 'pattern' : 'delegate_request';
      for (const entry of decision.chain.slice(low.slot + 1).filter(({ policy }) => policy !== stated)) {
        expect(entry).toMatchObject({
          verdict: 'not_evaluated',
          candidate_model: null,
          reason: `decided by ${SLOTS[low.slot]}`,
        });
      }
      for (const entry of decision.chain) expect(PolicyEvaluationSchema.safeParse(entry).error).toBeUndefined();
    },
  );

  // Promise 03.4: with nothing configured but the global default, slot 7 decides and every slot says why it did not.
  it('ends at the global default with a reason in every slot before it', () => {
    const { chain, ...decision } = decide({}, { global: `global_default: opus\nrules: []` });
    expect(decision).toEqual({
      chosen_model: OPUS,
      chosen_effort: null,
      winner_index: 6,
      refused: null,
      fallback_costlier: false,
    });
    expect(chain.map(({ verdict, reason }) => [verdict, reason])).toEqual([
      ['not_applicable', 'no @model in message'],
      ['not_applicable', 'no sticky model set'],
      ['not_applicable', 'no rules configured'],
      ['not_applicable', 'pattern store not configured'],
      ['not_applicable', 'not in delegation re-entry'],
      ['not_applicable', 'no workspace default configured'],
      ['chose', 'global default fallback'],
    ]);
    expect(chain[2]!.tried_rules).toEqual([]);
    expect(chain[0]!.tried_rules).toBeNull();
  });

  // Promise 03.1: a one-message override beats the sticky model, which is back for the next message.
  it('takes the override for one message and the sticky model for the next', () => {
    expect(decide({ session_active_model: SONNET, per_message_override: HAIKU }).chosen_model).toBe(HAIKU);
    expect(decide({ session_active_model: SONNET })).toMatchObject({ chosen_model: SONNET, winner_index: 1 });
  });
});

describe('the rule slot', () => {
  const rules = `rules:
  - { name: A, when: ${ALWAYS}, use: opus }
  - { name: other, when: { message_matches: "never said" }, use: gpt }
  - { name: B, when: ${ALWAYS}, use: sonnet }`;

  // Promise 03.5: a second rule with the same condition is the fallback of one whose model is out.
  it('falls back to a later matching rule and notes the rejected one', () => {
    const { chain, winner_index } = decide({}, { workspace: rules, out: [OPUS] });
    expect(winner_index).toBe(2);
    expect(chain[2]).toEqual({
      policy: 'rule',
      verdict: 'chose',
      candidate_model: SONNET,
      candidate_effort: null,
      rule_name: 'B',
      reason: "matched rule 'B'",
      confidence: null,
      pattern_alternatives: null,
      validation_failure: null,
      tried_rules: [
        { rule_name: 'A', candidate_model: OPUS, candidate_effort: null, validation_failure: 'provider_unavailable' },
      ],
    });
  });

  it('is rejected with the last one tried when none of them can serve, and the chain goes on', () => {
    const { chain, chosen_model } = decide({}, { workspace: rules, out: ['anthropic'], configDefault: 'gpt' });
    expect(chain[2]).toMatchObject({
      verdict: 'rejected',
      candidate_model: SONNET,
      rule_name: 'B',
      validation_failure: 'provider_unavailable',
      reason: "matched rule 'B' (all anthropic models unavailable)",
    });
    expect(chain[2]!.tried_rules!.map((tried) => tried.rule_name)).toEqual(['A', 'B']);
    expect(chosen_model).toBe(GPT);
  });

  it('says when no rule matched', () => {
    const entry = decide({}, { workspace: 'rules: [{ when: { has_images: true }, use: opus }]' }).chain[2];
    expect(entry).toMatchObject({ verdict: 'not_applicable', reason: 'no rule matched this turn', tried_rules: [] });
  });

  it('tries the rules of the workspace before the global ones', () => {
    const world = {
      workspace: `rules: [{ when: ${ALWAYS}, use: haiku }]`,
      global: `rules: [{ when: ${ALWAYS}, use: opus }]`,
    };
    expect(decide({}, world).chosen_model).toBe(HAIKU);
  });
});

describe('validation', () => {
  // Promise 03.9: one token more does not.
  it.each<[string, Partial<TurnContext>, string]>([
    ['no_vision_support', { has_images: true }, HAIKU],
    ['exceeds_context_window', { smallest_input_tokens: 1001 }, HAIKU],
    ['no_tool_support', {}, LOCAL],
    ['no_system_prompt_support', { has_tool_definitions: false }, LOCAL],
    ['no_structured_output_support', { requires_structured_output: true }, SONNET],
    ['not_priced', { budget_limited: true, has_tool_definitions: false, has_system_prompt: false }, LOCAL],
    ['no_document_support', { document_media_types: ['application/pdf'] }, SONNET],
    ['not_configured', {}, 'anthropic:gone'],
  ])('rejects a tier model with %s', (failure, ctx, model) => {
    const { chain, chosen_model } = decide(
      { ...ctx, is_worker: true, worker_tier_model: model },
      { configDefault: 'opus' },
    );
    expect(chain[4]).toMatchObject({ verdict: 'rejected', candidate_model: model, validation_failure: failure });
    expect(chosen_model).toBe(OPUS);
  });

  // Promise 03.9: a prompt as long as the window passes.
  it.each<[string, Partial<TurnContext>, string]>([
    ['an estimate equal to the window', { estimated_input_tokens: 1001, smallest_input_tokens: 1000 }, HAIKU],
    ['an unpriced model without a budget', { has_tool_definitions: false, has_system_prompt: false }, LOCAL],
    ['a document type that is accepted', { document_media_types: ['application/pdf'] }, OPUS],
  ])('accepts a tier model with %s', (_, ctx, model) => {
    expect(decide({ ...ctx, is_worker: true, worker_tier_model: model })).toMatchObject({
      chosen_model: model,
      winner_index: 4,
    });
  });

  it('rejects a model whose adapter has no key before it looks at anything else', () => {
    const world = { registry: registryOf(['openai']), out: ['anthropic'], configDefault: 'gpt' };
    const { chain } = decide({ is_worker: true, worker_tier_model: HAIKU, has_images: true }, world);
    expect(chain[4]!.validation_failure).toBe('not_configured');
  });

  it('says in the reason how far an outage reaches', () => {
    const reason = (out: string) =>
      decide({ is_worker: true, worker_tier_model: HAIKU }, { out: [out], configDefault: 'gpt' }).chain[4]!.reason;
    expect(reason(HAIKU)).toBe('delegate() tier resolution (model-specific outage)');
    expect(reason('anthropic')).toBe('delegate() tier resolution (all anthropic models unavailable)');
  });

  // Promise 19.30: capabilities of a model that no rule may replace.
  it('leaves it to the provider what a model can do that a client must have, and to the registry where rules may replace it', () => {
    const asked = (model: string, binding: boolean) => ({
      ...{ has_images: true, requires_structured_output: true, document_media_types: ['text/csv'] },
      requested: {
        wire: model === LOCAL ? 'chat' : 'messages',
        name: model,
        model,
        effort: null,
        own_key_adapters: null,
        binding,
      } as const,
    });
    for (const model of [HAIKU, LOCAL])
      expect(decide(asked(model, true), {})).toMatchObject({ chosen_model: model, winner_index: 0, refused: null });
    const { decision } = refusal(asked(HAIKU, false), {});
    expect(decision.chain[4]).toMatchObject({ candidate_model: HAIKU, validation_failure: 'no_vision_support' });
    // The price is no capability.
    const limited = refusal({ ...asked(LOCAL, true), budget_limited: true }, {});
    expect(limited.decision.chain[0]).toMatchObject({ candidate_model: LOCAL, validation_failure: 'not_priced' });
  });

  // Promise 03.8: an image of an earlier message rules out text-only models but does not fire the image condition.
  it('sees an image of an earlier message, the predicate does not', () => {
    const world = { workspace: 'default: haiku\nrules: [{ when: { has_images: true }, use: opus }]' };
    const { chain } = decide({ has_images: true, message_has_images: false }, world);
    expect(chain[2]!.verdict).toBe('not_applicable');
    expect(chain[5]).toMatchObject({ verdict: 'rejected', validation_failure: 'no_vision_support' });
  });
});

describe('a choice of the person', () => {
  it.each<[string, Partial<TurnContext>]>([
    ['manual_sticky', { session_active_model: HAIKU }],
    ['per_message_override', { per_message_override: HAIKU, session_active_model: SONNET }],
  ])('of %s is refused rather than replaced in silence', (source, ctx) => {
    const { decision, error } = refusal({ ...ctx, has_images: true }, {});
    expect(decision).toMatchObject({ chosen_model: '', refused: 'explicit_model_rejected' });
    expect(decision.chain[decision.winner_index]).toMatchObject({ verdict: 'chose', candidate_model: SONNET });
    expect(error).toMatchObject({
      code: 'explicit_model_rejected',
      status: 422,
      details: { source, model: HAIKU, validation_failure: 'no_vision_support', would_fall_back_to: SONNET },
    });
    expect(() => routingRecord(decision)).toThrow();
  });

  it('that nothing could replace is a routing failure', () => {
    const { decision, error } = refusal({ session_active_model: HAIKU }, { out: ['anthropic'] });
    expect(decision).toMatchObject({ chosen_model: '', winner_index: -1, refused: 'routing_failed' });
    expect(error).toMatchObject({ code: 'routing_failed', status: 503 });
  });
});

describe('a routing failure', () => {
  it('lists what was tried in chain order and which providers are left', () => {
    const world = {
      out: ['anthropic'],
      workspace: `default: haiku\nrules: [{ name: A, when: ${ALWAYS}, use: opus }, { name: B, when: ${ALWAYS}, use: sonnet }]`,
      configDefault: 'llama',
    };
    const { decision, error } = refusal({ session_active_model: HAIKU }, world);
    expect(decision.chain).toHaveLength(7);
    const out = 'provider_unavailable';
    expect(error?.details).toEqual({
      tried: [
        { model: HAIKU, policy: 'manual_sticky', rule_name: null, reason: out },
        { model: OPUS, policy: 'rule', rule_name: 'A', reason: out },
        { model: SONNET, policy: 'rule', rule_name: 'B', reason: out },
        { model: HAIKU, policy: 'workspace_default', rule_name: null, reason: out },
        { model: LOCAL, policy: 'global_default', rule_name: null, reason: 'no_tool_support' },
      ],
      alternative_providers_configured: ['openai'],
      outages: [HAIKU, OPUS, SONNET].map((model) => ({
        model,
        trigger_reason: 'auth_error',
        retry_after_seconds: 280,
      })),
    });
    expect(error?.message).toContain(
      'anthropic rejected the key or account that the server has for it 20 s ago. Metis calls it again in 280 s; check ANTHROPIC_API_KEY',
    );
  });

  it('without any configured model says so', () => {
    const { error } = refusal({}, { registry: registryOf([]) });
    expect(error).toMatchObject({
      code: 'routing_failed',
      details: { tried: [], alternative_providers_configured: [] },
    });
    expect(error?.message).toContain('no model is configured');
  });

  it('with all providers out offers none', () => {
    const { error } = refusal({}, { out: ['anthropic', 'openai', 'local'] });
    expect(error?.details).toMatchObject({
      tried: [{ policy: 'global_default' }],
      alternative_providers_configured: [],
    });
  });
});

describe('the pattern slot', () => {
  it.each<[Partial<TurnContext>, string, number | null]>([
    [{}, 'pattern store not configured', null],
    [{ recommendation_absent: 'pattern store unavailable' }, 'pattern store unavailable', null],
    [{ recommendation_absent: null }, 'no neighbors in pattern store', null],
    [
      { recommendation: advice({ chosen_model: null, confidence: 0.01 }), recommendation_absent: null },
      'no high-confidence pattern recommendation',
      0.01,
    ],
  ])('with %o is not applicable', (ctx, reason, confidence) => {
    expect(decide(ctx).chain[3]).toMatchObject({
      verdict: 'not_applicable',
      candidate_model: null,
      reason,
      confidence,
      pattern_alternatives: confidence === null ? null : [{ model: OPUS, score: 0.5, sample_size: 4 }],
    });
  });

  it('proposes the recommended model with its evidence', () => {
    expect(decide(advised).chain[3]).toMatchObject({
      verdict: 'chose',
      candidate_model: GPT,
      reason: expect.stringMatching(/^pattern K-NN \(confidence=0\.08, sample=12\); 120 turns like this one on /),
      confidence: 0.0812,
      pattern_alternatives: [{ model: OPUS, score: 0.5, sample_size: 4 }],
    });
  });

  it('walks no alternatives when its model is rejected', () => {
    const { chain, winner_index } = decide(advised, { out: [GPT] });
    expect(chain[3]).toMatchObject({ verdict: 'rejected', candidate_model: GPT });
    expect(winner_index).toBe(6);
  });
});

describe('a worker', () => {
  const worker = { is_worker: true, worker_tier_model: HAIKU };

  // Promise 03.25: slot 4 of a worker is deferred where a rule wins too.
  it('has slot 4 deferred, with its recommendation, where a rule wins too', () => {
    const ruled = { global: `rules: [{ when: { message_matches: '.' }, use: opus }]` };
    const { chain, winner_index } = decide({ ...worker, ...advised }, ruled);
    expect(winner_index).toBe(2);
    expect(chain[3]).toMatchObject({
      verdict: 'deferred',
      reason: 'delegate_request_in_flight',
      candidate_model: GPT,
      confidence: 0.0812,
    });
    expect(chain.slice(4).map(({ verdict }) => verdict)).toEqual(Array(3).fill('not_evaluated'));
  });

  // Promise 03.25: slot 5 is not applicable outside delegation, whichever slot won.
  it('is what slot 5 is for: outside of one it is not applicable, whichever slot won before it', () => {
    for (const ctx of [{ per_message_override: OPUS }, { session_active_model: OPUS }, advised])
      expect(decide(ctx).chain[4]).toMatchObject({
        verdict: 'not_applicable',
        reason: 'not in delegation re-entry',
        candidate_model: null,
      });
  });

  // Promise 03.14: a worker runs the model of its tier; a recommendation is shown, never taken.
  it('runs the model of its tier, with the recommendation shown and deferred', () => {
    const { chain, chosen_model, winner_index } = decide({ ...worker, ...advised });
    expect([chosen_model, winner_index]).toEqual([HAIKU, 4]);
    expect(chain.map((entry) => entry.verdict)).toEqual([
      'not_applicable',
      'not_applicable',
      'not_applicable',
      'deferred',
      'chose',
      'not_evaluated',
      'not_evaluated',
    ]);
    expect(chain[3]).toMatchObject({
      reason: 'delegate_request_in_flight',
      candidate_model: GPT,
      confidence: 0.0812,
      pattern_alternatives: [{ model: OPUS, score: 0.5, sample_size: 4 }],
    });
    expect(decide(worker).chain[3]).toMatchObject({ verdict: 'deferred', candidate_model: null, confidence: null });
  });

  it('has neither override nor sticky model', () => {
    const decision = decide({ ...worker, per_message_override: OPUS, session_active_model: SONNET });
    expect(decision.chosen_model).toBe(HAIKU);
  });

  it('may be routed by a rule on its task brief', () => {
    const world = { global: 'rules: [{ when: { message_contains_any: [prove] }, use: opus }]' };
    expect(decide({ ...worker, user_message_text: '@haiku Prove it' }, world)).toMatchObject({
      chosen_model: OPUS,
      winner_index: 2,
    });
  });

  // Promise 03.15: a worker whose tier model cannot serve falls to a default, not to a higher tier.
  it('falls through to a default, never to a higher tier', () => {
    const { chain, chosen_model, winner_index } = decide(
      { ...worker, has_images: true },
      { workspace: 'default: sonnet' },
    );
    expect(chain[4]).toMatchObject({ verdict: 'rejected', validation_failure: 'no_vision_support' });
    expect([chosen_model, winner_index]).toEqual([SONNET, 5]);
  });

  // Promise 13.16: a named worker without model or tier is routed by the defaults, and slot 5 says so.
  it('without a model of its own is routed by the defaults', () => {
    const { chain, chosen_model } = decide({ is_worker: true }, { configDefault: 'haiku' });
    expect(chain[4]).toMatchObject({ verdict: 'not_applicable', reason: 'worker has no model' });
    expect(chosen_model).toBe(HAIKU);
  });

  it('says where its model comes from', () => {
    expect(decide({ ...worker, worker_tier_reason: 'worker definition tier' }).chain[4]!.reason).toBe(
      'worker definition tier',
    );
  });

  it('of a session that is none proposes nothing', () => {
    expect(decide({ worker_tier_model: HAIKU }).chain[4]!.verdict).toBe('not_applicable');
  });

  // Promise 03.20: an unpriced tier model is refused under a budget and taken without one.
  it.each([
    ['rejected', { budget_limited: true }],
    ['chose', {}],
  ])('with an unpriced tier model is %s by whether a budget covers it', (verdict, ctx) => {
    const bare = { has_tool_definitions: false, has_system_prompt: false };
    const entry = decide({ ...bare, ...ctx, is_worker: true, worker_tier_model: LOCAL }).chain[4];
    expect(entry).toMatchObject({ verdict, validation_failure: verdict === 'rejected' ? 'not_priced' : null });
  });
});

describe('a costlier fallback', () => {
  const image = { is_worker: true, worker_tier_model: HAIKU, has_images: true };

  it('is flagged', () => {
    expect(decide(image)).toMatchObject({ chosen_model: SONNET, fallback_costlier: true, refused: null });
  });

  it('is refused where the operator forbids it', () => {
    const { decision, error } = refusal(image, { allowCostlierFallback: false });
    expect(decision).toMatchObject({
      chosen_model: '',
      winner_index: -1,
      refused: 'routing_failed',
      fallback_costlier: true,
    });
    expect(error?.code).toBe('routing_failed');
    expect(error?.message).toContain(SONNET);
    expect(error?.details?.tried).toEqual([
      { model: HAIKU, policy: 'delegate_request', rule_name: null, reason: 'no_vision_support' },
    ]);
  });

  it('is neither when the fallback costs less, and an unpriced winner counts as costlier', () => {
    const fallback = (from: string, to: string) =>
      decide(
        { is_worker: true, worker_tier_model: from, has_tool_definitions: false, has_system_prompt: false },
        {
          out: [from],
          configDefault: to,
        },
      ).fallback_costlier;
    expect(fallback(OPUS, GPT)).toBe(false);
    expect(fallback(GPT, OPUS)).toBe(true);
    expect(fallback(OPUS, LOCAL)).toBe(true);
  });

  it('is a matter of workers only', () => {
    expect(decide({}, { workspace: 'default: haiku', out: [HAIKU] })).toMatchObject({
      chosen_model: SONNET,
      fallback_costlier: false,
    });
  });
});

describe('what a message keeps', () => {
  it('is the winner, its evidence and the models it was preferred to', () => {
    const world = {
      workspace: `rules: [{ name: A, when: ${ALWAYS}, use: opus }, { name: B, when: ${ALWAYS}, use: haiku }]`,
      out: [OPUS],
    };
    expect(routingRecord(decide({}, world))).toEqual({
      mode: 'rule',
      chosen_model: HAIKU,
      reason: "matched rule 'B'",
      rule_name: 'B',
      confidence: null,
      alternatives_considered: [OPUS],
    });
    expect(routingRecord(decide(advised))).toMatchObject({
      mode: 'pattern',
      confidence: 0.0812,
      alternatives_considered: [OPUS],
    });
    expect(routingRecord(decide())).toMatchObject({ mode: 'default', alternatives_considered: [] });
  });
});
