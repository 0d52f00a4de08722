// `POST /analytics/what-if` over decisions as the chain makes them and calls as the journal stores them (21 §2).
import { describe, expect, it } from 'vitest';
import { decideRoute } from '#core/policy/routing/chain.ts';
import { mergePolicies, parsePolicyFile, policyKind, readPolicy } from '#core/policy/routing/policy-file.ts';
import { noteFacts } from '#core/policy/routing/route-facts.ts';
import { collectFacts } from '#core/policy/routing/rules.ts';
import type { WhatIfQuery } from '#core/ports/report-reader.ts';
import { draft } from '#protocol/event.ts';
import { createIdGenerator } from '#protocol/ids.ts';
import { fromPusd } from '#protocol/money.ts';
import type { TurnContext } from '#protocol/route.ts';
import type { SessionRecord } from '#protocol/session.ts';
import { NO_TOKENS, type TokenUsage } from '#protocol/usage.ts';
import { priceTableA } from '../../support/prices.ts';
import { turn } from '../../unit/routing/world.ts';
import { engineRegistry } from '../registry.ts';
import { completed, HAIKU, NOW, OPUS, type OpenWorld, SONNET, type World } from '../world.ts';

const A = priceTableA();
const EARLIER = NOW - 3_600_000;
const GPT = 'openai:gpt-5';
const REGISTRY = engineRegistry();
const TOKENS = {
  input_tokens: 1000,
  cached_input_tokens: 20_000,
  cache_creation_input_tokens: 3000,
  cache_creation_1h_input_tokens: 1000,
  output_tokens: 700,
} as const;

function policies(text: string) {
  const yaml = readPolicy(text);
  const kind = policyKind(yaml);
  const parsed = parsePolicyFile(text, kind, REGISTRY);
  if (!parsed.ok) throw new Error(parsed.error.join('\n'));
  const layers = { workspace: null, global: null, [kind]: parsed.value };
  return mergePolicies({ ...layers, configDefault: null }, REGISTRY);
}

const ids = createIdGenerator(() => NOW, Math.random);

interface Work {
  readonly session: SessionRecord;
  readonly policy: string;
  readonly context?: Partial<TurnContext>;
  readonly out?: readonly string[];
  /** Of each of its calls. */
  readonly calls?: readonly Partial<TokenUsage>[];
  readonly withoutFacts?: boolean;
  /** As calls of the gateway are. */
  readonly turnless?: boolean;
}

/** One turn: its decision, made and noted as the engine does, and its calls on the chosen model. */
async function work(world: World, given: Work): Promise<string> {
  const { session, policy, calls = [TOKENS], turnless = false } = given;
  const context = turn({ is_worker: session.is_worker, ...given.context });
  const rules = policies(policy);
  const outage = { trigger: '5_consecutive_failures', seconds_since: 0, seconds_left: 1 } as const;
  const known = collectFacts(context);
  const decision = decideRoute(
    context,
    {
      registry: REGISTRY,
      policies: rules,
      availability: { providers: new Map(), models: new Map((given.out ?? []).map((id) => [id, outage])) },
      isPriced: (id) => A.has(id),
      rateSum: (id) => A.ratesFor(id, 0)?.input ?? null,
      allowCostlierFallback: true,
    },
    { facts: known },
  );
  const turnId = turnless ? null : ids.turn();
  const facts = given.withoutFacts ? null : noteFacts(context, known, decision, rules.rules);
  const { chosen_model, chosen_effort, winner_index, refused, fallback_costlier, chain } = decision;
  const payload = { chosen_model, chosen_effort, winner_index, refused, fallback_costlier, chain: [...chain] };
  await world.emit(EARLIER, [
    draft({
      type: 'route.decided',
      session_id: session.id,
      turn_id: turnId,
      parent: null,
      payload: { ...payload, elapsed_ms: 0, requested_model: null, facts },
    }),
    ...calls.map((tokens) => ({
      ...completed({ session, at: EARLIER, model: chosen_model, prices: A, tokens }, { ids, time: { now: NOW } }),
      turn_id: turnId,
    })),
  ]);
  return chosen_model;
}

function question(over: Partial<WhatIfQuery> & { readonly policy?: string } = {}): WhatIfQuery {
  const { policy, ...rest } = over;
  return {
    window: { from: 0, to: NOW },
    workspace_hash: null,
    group_by: null,
    routing: policy === undefined ? null : { kind: policyKind(readPolicy(policy)), text: policy },
    tiers: null,
    models: [],
    catalog: {
      models: REGISTRY.models,
      adapters: REGISTRY.adapters,
      usable: new Set(['scripted']),
      gateway: new Set(['scripted']),
      default_model: null,
      allow_costlier_fallback: true,
    },
    ...rest,
  };
}

const replace = (from: string, to: string) => ({
  from: { model: from, effort: null },
  to: { model: to, effort: null },
});

/** By the formula of 08 §4.1, independent of the report. */
function price(model: string, tokens: Partial<TokenUsage>, cache: 'as it was' | 'missed'): bigint {
  const usage = { ...NO_TOKENS, ...tokens };
  if (cache === 'as it was') return A.cost(model, usage).cost_pusd;
  const input_tokens = usage.input_tokens + usage.cached_input_tokens;
  return A.cost(model, { ...usage, input_tokens, cached_input_tokens: 0 }).cost_pusd;
}

const SIZE = (above: number) => `
global_default: opus
rules:
  - { name: small, when: { not: { estimated_input_tokens_gt: ${above} } }, use: haiku }
  - { name: proof, when: { message_matches: "(?i)prove" }, use: sonnet }
`;

export function whatIfSuite(openWorld: OpenWorld): void {
  describe('what if', () => {
    // Promise 21.2: Under the policy in force every decision is the same, and both bounds are what was spent.
    it('changes nothing under the policy in force', async () => {
      const world = await openWorld();
      const session = await world.planner();
      const worker = await world.worker(session);
      const tier = { worker_tier_model: HAIKU, worker_tier: 'fast', worker_tier_reason: 'delegate() tier resolution' };
      for (const context of [
        { estimated_input_tokens: 50 },
        { estimated_input_tokens: 500, user_message_text: 'Prove it.' },
        { estimated_input_tokens: 500, per_message_override: GPT },
        { estimated_input_tokens: 500, session_active_model: SONNET },
        { estimated_input_tokens: 500, message_has_images: true, has_images: true },
      ])
        await work(world, { session, policy: SIZE(100), context });
      // What was out then is out for the same decision again.
      const proof = { estimated_input_tokens: 500, user_message_text: 'Prove it.' };
      expect(await work(world, { session, policy: SIZE(100), context: proof, out: [SONNET] })).toBe(OPUS);
      await work(world, {
        session: worker,
        policy: SIZE(100),
        context: { ...tier, estimated_input_tokens: 500 } as Partial<TurnContext>,
      });
      const report = await world.analytics.whatIf(question({ policy: SIZE(100), group_by: 'model' }), A);
      const spent = (await world.none()).cost_usd;
      expect(report).toMatchObject({
        actual_usd: spent,
        hypothetical_usd: { low: spent, high: spent },
        decisions: { same: 7, changed: 0, undecided: 0 },
        changed: [],
        basis: 'recorded tokens',
      });
      for (const { actual_usd, low_usd, high_usd } of report.groups)
        expect([low_usd, high_usd]).toEqual([actual_usd, actual_usd]);
    });

    // Promise 21.2: With each model mapped to another, `low` is each call repriced, `high` the same without cache reads, to the last digit.
    it('reprices every call where each model is mapped to another', async () => {
      const world = await openWorld();
      const session = await world.planner();
      const worker = await world.worker(session);
      const calls = [TOKENS, { ...TOKENS, input_tokens: 7, output_tokens: 13 }, { input_tokens: 1, output_tokens: 1 }];
      await work(world, { session, policy: 'global_default: opus', calls });
      await work(world, { session: worker, policy: 'global_default: sonnet', calls });
      const models = [replace(OPUS, SONNET), replace(SONNET, HAIKU)];
      const report = await world.analytics.whatIf(question({ models, group_by: 'day' }), A);
      const sum = (cache: 'as it was' | 'missed', of = [SONNET, HAIKU]) =>
        fromPusd(
          of.flatMap((model) => calls.map((call) => price(model, call, cache))).reduce((a, b) => a + b, 0n) as never,
        );
      const total = { low: sum('as it was'), high: sum('missed') };
      expect(report.hypothetical_usd).toEqual(total);
      expect(report.actual_usd).toBe((await world.none()).cost_usd);
      expect(report.decisions).toEqual({ same: 0, changed: 2, undecided: 0 });
      expect(report.changed).toMatchObject([
        {
          from_model: OPUS,
          to_model: SONNET,
          decisions: 1,
          low_usd: sum('as it was', [SONNET]),
          high_usd: sum('missed', [SONNET]),
        },
        { from_model: SONNET, to_model: HAIKU, decisions: 1, low_usd: sum('as it was', [HAIKU]) },
      ]);
      expect(report.groups).toEqual([
        { key: '2026-06-10', actual_usd: report.actual_usd, low_usd: total.low, high_usd: total.high },
      ]);
      expect(report.unpriced_calls).toBe(0);
    });

    // Promise 21.3: A rule on the input size that moves changes exactly the turns beyond it; text patterns are answered from what was stored.
    it('changes exactly the turns between the old and the new size', async () => {
      const world = await openWorld();
      const session = await world.planner();
      const sizes = [40, 90, 110, 150, 260, 400];
      for (const estimated_input_tokens of sizes)
        await work(world, { session, policy: SIZE(100), context: { estimated_input_tokens } });
      // It was small, so the text was of no matter then; its pattern was asked all the same.
      const proof = { estimated_input_tokens: 90, user_message_text: 'please PROVE it' };
      await work(world, { session, policy: SIZE(100), context: proof });

      const wider = await world.analytics.whatIf(question({ policy: SIZE(200) }), A);
      expect(wider.decisions).toEqual({ same: 5, changed: 2, undecided: 0 });
      expect(wider.changed).toMatchObject([{ from_model: OPUS, to_model: HAIKU, rule_name: 'small', decisions: 2 }]);

      const narrower = await world.analytics.whatIf(question({ policy: SIZE(50) }), A);
      expect(narrower.decisions).toEqual({ same: 5, changed: 2, undecided: 0 });
      expect(narrower.changed).toMatchObject([
        { from_model: HAIKU, to_model: OPUS, rule_name: null, decisions: 1 },
        { from_model: HAIKU, to_model: SONNET, rule_name: 'proof', decisions: 1 },
      ]);
    });

    // Promise 21.3: A decision without facts, a pattern that was not asked and the day's cost are undecided, at the stamped price.
    it('leaves undecided what the stored facts do not answer', async () => {
      const world = await openWorld();
      const session = await world.planner();
      await work(world, { session, policy: SIZE(100), withoutFacts: true });
      await work(world, { session, policy: SIZE(100), context: { estimated_input_tokens: 90 } });
      const spent = (await world.none()).cost_usd;
      for (const when of ['{ message_matches: "other" }', '{ cost_today_exceeds_usd: 1 }']) {
        const policy = `global_default: opus\nrules: [{ when: ${when}, use: haiku }]`;
        const report = await world.analytics.whatIf(question({ policy }), A);
        expect(report).toMatchObject({
          decisions: { same: 0, changed: 0, undecided: 2 },
          hypothetical_usd: { low: spent, high: spent },
        });
      }
      // A rule that decides before the pattern is asked leaves nothing open.
      const first =
        'rules:\n  - { when: { is_worker: false }, use: haiku }\n  - { when: { message_matches: x }, use: opus }';
      expect((await world.analytics.whatIf(question({ policy: first }), A)).decisions).toEqual({
        same: 1,
        changed: 0,
        undecided: 1,
      });
    });

    it('gives workers the model of another tier map, and leaves those alone that a rule or their definition chose', async () => {
      const world = await openWorld();
      const session = await world.planner();
      const worker = await world.worker(session);
      const tiers = { fast: GPT, balanced: OPUS, deep: OPUS };
      const fast: Partial<TurnContext> = { worker_tier_model: HAIKU, worker_tier: 'fast' };
      const none = 'global_default: opus';
      await work(world, { session, policy: none });
      await work(world, { session: worker, policy: none, context: fast });
      await work(world, { session: worker, policy: none, context: { worker_tier_model: SONNET } });
      const rule = 'global_default: opus\nrules: [{ when: { is_worker: true }, use: sonnet }]';
      await work(world, { session: worker, policy: rule, context: fast });
      const changed = [{ from_model: HAIKU, to_model: GPT, rule_name: null, decisions: 1 }];
      const report = await world.analytics.whatIf(question({ tiers }), A);
      expect(report).toMatchObject({ decisions: { same: 3, changed: 1, undecided: 0 }, changed });
      // With a file without that rule the worker of the rule has its tier's model too.
      const both = await world.analytics.whatIf(question({ tiers, policy: none }), A);
      expect(both.decisions).toEqual({ same: 2, changed: 2, undecided: 0 });
      expect(both.changed.map(({ from_model, to_model }) => [from_model, to_model]).sort()).toEqual([
        [HAIKU, GPT],
        [SONNET, GPT],
      ]);
    });

    it('asks for the capabilities that the turn needed, and passes over what was out', async () => {
      const world = await openWorld();
      const session = await world.planner();
      const images = { has_images: true, message_has_images: true };
      await work(world, { session, policy: 'global_default: opus', context: images });
      // haiku takes no images.
      const policy = 'global_default: sonnet\nrules: [{ name: all, when: { has_images: true }, use: haiku }]';
      expect((await world.analytics.whatIf(question({ policy }), A)).changed).toMatchObject([
        { from_model: OPUS, to_model: SONNET, rule_name: null },
      ]);
    });

    it('finds the decision of a call without a turn by its session and model, the newest first', async () => {
      const world = await openWorld();
      const [one, other] = [await world.planner(), await world.planner()];
      await work(world, { session: one, policy: 'global_default: opus', turnless: true });
      await work(world, { session: one, policy: 'global_default: haiku', turnless: true });
      await work(world, { session: other, policy: 'global_default: opus', turnless: true, withoutFacts: true });
      const report = await world.analytics.whatIf(question({ models: [replace(OPUS, SONNET)] }), A);
      expect(report).toMatchObject({
        decisions: { same: 1, changed: 1, undecided: 1 },
        changed: [{ from_model: OPUS, actual_usd: fromPusd(price(OPUS, TOKENS, 'as it was') as never) }],
      });
    });

    it('keeps calls whose other model has no price at their stamped price, and counts them', async () => {
      const world = await openWorld();
      const session = await world.planner();
      await work(world, { session, policy: 'global_default: opus', calls: [TOKENS, TOKENS] });
      const report = await world.analytics.whatIf(question({ models: [replace(OPUS, 'nobody:knows')] }), A);
      expect(report).toMatchObject({ unpriced_calls: 2, actual_usd: report.hypothetical_usd.low });
    });

    it('keeps calls whose decision is gone at their stamped price, and counts them', async () => {
      const world = await openWorld();
      const session = await world.planner();
      await work(world, { session, policy: 'global_default: opus' });
      const models = [replace(OPUS, HAIKU)];
      const whole = await world.analytics.whatIf(question({ models }), A);
      expect(whole).toMatchObject({ unlinked_calls: 0, decisions: { changed: 1 } });
      const time = { ids, time: { now: NOW } };
      await world.emit(EARLIER, [
        { ...completed({ session, at: EARLIER, model: OPUS, prices: A, tokens: TOKENS }, time), turn_id: ids.turn() },
      ]);
      const report = await world.analytics.whatIf(question({ models }), A);
      const stamped = price(OPUS, TOKENS, 'as it was');
      expect(report).toMatchObject({
        unlinked_calls: 1,
        decisions: { changed: 1 },
        actual_usd: fromPusd((stamped * 2n) as never),
        hypothetical_usd: { low: fromPusd((price(HAIKU, TOKENS, 'as it was') + stamped) as never) },
      });
    });

    it('keeps to its window and workspace', async () => {
      const world = await openWorld();
      const [one, other] = [await world.planner(), await world.planner('b'.repeat(64))];
      for (const session of [one, other]) await work(world, { session, policy: 'global_default: opus' });
      const models = [replace(OPUS, HAIKU)];
      const own = await world.analytics.whatIf(question({ models, workspace_hash: 'b'.repeat(64) }), A);
      const half = fromPusd(price(OPUS, TOKENS, 'as it was') as never);
      expect(own).toMatchObject({ actual_usd: half, decisions: { changed: 1 } });
      const groups = (await world.analytics.whatIf(question({ models, group_by: 'workspace' }), A)).groups;
      expect(groups.map(({ key }) => key)).toEqual(['a'.repeat(64), 'b'.repeat(64)]);
      const none = await world.analytics.whatIf(question({ models, window: { from: 0, to: EARLIER } }), A);
      expect(none).toMatchObject({ actual_usd: '0', decisions: { same: 0, changed: 0 } });
    });
  });
}
