// Counts over routing decisions.
import { expect, it } from 'vitest';
import { createRouteCounter } from '#core/policy/analytics/route-stats.ts';
import type { PayloadOf } from '#protocol/event.ts';
import { type PolicyEvaluation, SLOTS, type SlotName } from '#protocol/route.ts';
import { notApplicable } from '../../support/route-chain.ts';

type Decision = PayloadOf<'route.decided'>;

function decision(slots: Partial<Record<SlotName, Partial<PolicyEvaluation>>>, rest: Partial<Decision> = {}): Decision {
  const chain = SLOTS.map((policy) => notApplicable(policy, slots[policy]));
  const winner_index = chain.findIndex((entry) => entry.verdict === 'chose');
  const chosen_model = chain[winner_index]?.candidate_model ?? '';
  return {
    chosen_model,
    chosen_effort: null,
    winner_index,
    elapsed_ms: 0,
    refused: null,
    fallback_costlier: false,
    requested_model: null,
    facts: null,
    chain,
    ...rest,
  };
}

const chose = (candidate_model: string): Partial<PolicyEvaluation> => ({ verdict: 'chose', candidate_model });
const rejected = (candidate_model: string): Partial<PolicyEvaluation> => ({
  verdict: 'rejected',
  candidate_model,
  validation_failure: 'provider_unavailable',
});

function count(decisions: readonly Decision[], filter = {}) {
  const counter = createRouteCounter({ model: null, provider: null, ...filter });
  for (const one of decisions) counter.add(one);
  return counter.result();
}

it('lists every slot without a decision', () => {
  const stats = count([]);
  expect(stats.wins_by_policy).toEqual(SLOTS.map((policy) => ({ policy, count: 0 })));
  expect(stats).toMatchObject({ wins_by_model: [], hard_failures: 0, rejections: [], deferrals: [] });
});

it('counts a turn that nobody could serve as a hard failure with its rejections and no win', () => {
  const slots = { manual_sticky: rejected('a:x'), workspace_default: rejected('a:y'), global_default: rejected('a:x') };
  const stats = count([decision(slots, { refused: 'routing_failed' })]);
  expect(stats.hard_failures).toBe(1);
  expect(stats.wins_by_policy.every(({ count: wins }) => wins === 0)).toBe(true);
  expect(stats.rejections).toEqual([
    { policy: 'global_default', model: 'a:x', validation_failure: 'provider_unavailable', count: 1 },
    { policy: 'manual_sticky', model: 'a:x', validation_failure: 'provider_unavailable', count: 1 },
    { policy: 'workspace_default', model: 'a:y', validation_failure: 'provider_unavailable', count: 1 },
  ]);
});

it('counts each tried rule once, whatever the slot then said', () => {
  const tried_rules = ['r1', 'r2'].map((rule_name) => ({
    rule_name,
    candidate_model: 'a:x',
    candidate_effort: null,
    validation_failure: 'no_vision_support' as const,
  }));
  const rule = { policy: 'rule', model: 'a:x', validation_failure: 'no_vision_support', count: 2 };
  const won = count([decision({ rule: { ...chose('a:y'), tried_rules } })]);
  expect(won.rejections).toEqual([rule]);
  expect(won.wins_by_model).toEqual([{ model: 'a:y', policy: 'rule', count: 1 }]);
  const lost = { ...rejected('a:x'), validation_failure: 'no_vision_support' as const, tried_rules };
  expect(count([decision({ rule: lost, global_default: chose('a:z') })]).rejections).toEqual([rule]);
});

it('keeps a refused explicit choice apart from wins', () => {
  const slots = { per_message_override: rejected('a:x'), global_default: chose('a:y') };
  const stats = count([decision(slots, { refused: 'explicit_model_rejected', chosen_model: '' })]);
  expect(stats).toMatchObject({ explicit_rejections: 1, hard_failures: 0, wins_by_model: [] });
});

it('counts who stood back, and why', () => {
  const slots = {
    pattern: { verdict: 'deferred', reason: 'delegate_request in flight' },
    delegate_request: chose('a:x'),
  } as const;
  const stats = count([decision(slots), decision(slots)]);
  expect(stats.deferrals).toEqual([{ policy: 'pattern', reason: 'delegate_request in flight', count: 2 }]);
});

it('counts what is about the asked model only', () => {
  const decisions = [
    decision({ rule: rejected('a:x'), global_default: chose('b:y') }),
    decision({ global_default: rejected('b:y') }, { refused: 'routing_failed' }),
  ];
  expect(count(decisions, { model: 'a:x' })).toMatchObject({
    wins_by_model: [],
    hard_failures: 0,
    rejections: [{ policy: 'rule', model: 'a:x', count: 1 }],
  });
  expect(count(decisions, { provider: 'b' })).toMatchObject({
    wins_by_model: [{ model: 'b:y', policy: 'global_default', count: 1 }],
    hard_failures: 1,
    rejections: [{ policy: 'global_default', model: 'b:y', count: 1 }],
  });
});
