// The seven slots of a routing decision, each with its candidate (03 §4-§6, §8).
import type { PolicyEvaluation, RequestedModel, SlotName, TriedRule, TurnContext } from '#protocol/route.ts';
import { nameReference } from '#protocol/text/model-reference.ts';
import { weighEvidence } from '../learning/weigh-evidence.ts';
import { describeCandidate, propose, type RouteEnv, type Slot, withoutCandidate } from './candidate.ts';
import type { RuleFacts } from './rules.ts';

const REQUESTED_BY_CLIENT = 'asked by the client';
const SUGGESTED_ONLY = 'suggested only';
const LATER_SLOTS = ['delegate_request', 'workspace_default', 'global_default'] as const;

const skipSlot = (policy: SlotName, reason: string) => withoutCandidate(policy, 'not_applicable', { reason });
const joinReasons = (...parts: readonly (string | null)[]) => parts.filter((part) => part !== null).join('; ');

/** Slot 1: the model that this one message requests (03 §4.1). */
const evaluateOverride: Slot = (ctx, env) => {
  if (ctx.requested !== null) return proposeRequested(ctx.requested, ctx, env);
  const model = ctx.per_message_override;
  if (ctx.is_worker || model === null) return skipSlot('per_message_override', 'no @model in message');
  return propose('per_message_override', { candidate_model: model, reason: 'per-message @model override' }, ctx, env);
};

/** In the gateway each call requests a model (19 §2.4). */
function proposeRequested({ model, binding }: RequestedModel, ctx: TurnContext, env: RouteEnv): PolicyEvaluation {
  if (model === null) return skipSlot('per_message_override', 'no model asked for');
  if (!binding) return skipSlot('per_message_override', 'rules apply: gateway.rules_apply_to');
  return propose('per_message_override', { candidate_model: model, reason: REQUESTED_BY_CLIENT }, ctx, env);
}

/** Slot 2: the model that the session was set to (03 §4.2). */
const evaluateSticky: Slot = (ctx, env) => {
  const model = ctx.session_active_model;
  if (ctx.is_worker || model === null) return skipSlot('manual_sticky', 'no sticky model set');
  return propose('manual_sticky', { candidate_model: model, reason: 'session sticky model (/model)' }, ctx, env);
};

/** Slot 3: the first matching rule whose model can serve. Matching rules before it are recorded as tried (03 §5, §6). */
const evaluateRules: Slot = (ctx, env, facts) => {
  const { rules, faults } = env.policies;
  const tried: TriedRule[] = [];
  let rejected: PolicyEvaluation | null = null;
  for (const { name, use, matches } of rules) {
    if (!matches(facts)) continue;
    const remark = { reason: `matched rule '${name}'`, rule_name: name, tried_rules: tried };
    const entry = propose('rule', { candidate_model: use, ...remark }, ctx, env);
    if (entry.validation_failure === null) return entry;
    tried.push({
      rule_name: name,
      candidate_model: entry.candidate_model ?? use,
      candidate_effort: entry.candidate_effort,
      validation_failure: entry.validation_failure,
    });
    rejected = entry;
  }
  if (rejected !== null) return rejected;
  const none = rules.length === 0 ? 'no rules configured' : 'no rule matched this turn';
  const reason = joinReasons(none, faults.workspace, faults.global);
  return withoutCandidate('rule', 'not_applicable', { reason, tried_rules: tried });
};

/** Slot 4: the recommendation learned from earlier turns. In a worker, and unless it is to be applied, it is only shown (03 §8). */
const evaluatePattern: Slot = (ctx, env, facts) => {
  if (ctx.requested !== null) return skipSlot('pattern', 'nothing of the gateway is stored to learn from');
  const found = ctx.recommendation;
  const alternatives = found?.alternatives.map(({ model, score, sample_size }) => ({ model, score, sample_size }));
  const evidence = { confidence: found?.confidence ?? null, pattern_alternatives: alternatives ?? null };
  if (ctx.is_worker) {
    const candidate = describeCandidate(found?.chosen_model ?? null, ctx, env);
    const reason = 'delegate_request_in_flight';
    return withoutCandidate('pattern', 'deferred', { reason, ...candidate, ...evidence });
  }
  if (found === null) return skipSlot('pattern', ctx.recommendation_absent ?? 'no neighbors in pattern store');
  if (found.chosen_model === null) {
    const reason = 'no high-confidence pattern recommendation';
    return withoutCandidate('pattern', 'not_applicable', { reason, ...evidence });
  }
  const candidate = found.chosen_model;
  const other = findLaterChoice(ctx, env, facts);
  const { suffices, statement } = weighEvidence(found, {
    candidate,
    other,
    is_cheaper: isCheaper(candidate, other, env),
  });
  if (found.config.mode === 'suggest' || !suffices) {
    const why = found.config.mode === 'suggest' ? SUGGESTED_ONLY : 'too little evidence for a cheaper model';
    const shown = describeCandidate(candidate, ctx, env);
    return withoutCandidate('pattern', 'deferred', { reason: joinReasons(why, statement), ...shown, ...evidence });
  }
  const found_by = `pattern K-NN (confidence=${found.confidence.toFixed(2)}, sample=${found.sample_size})`;
  return propose(
    'pattern',
    { candidate_model: candidate, reason: joinReasons(found_by, statement), ...evidence },
    ctx,
    env,
  );
};

/** The model reference that the slots behind the fourth choose; null = none. */
function findLaterChoice(ctx: TurnContext, env: RouteEnv, facts: RuleFacts): string | null {
  for (const policy of LATER_SLOTS) {
    const { verdict, candidate_model, candidate_effort } = EVALUATE_SLOT[policy](ctx, env, facts);
    if (verdict === 'chose') return nameReference(candidate_model!, candidate_effort);
  }
  return null;
}

/** Whether a model costs less than another, or may: an unknown rate, or the same model at another effort. */
function isCheaper(candidate: string, other: string | null, { registry, rateSum }: RouteEnv): boolean {
  if (other === null || candidate === other) return false;
  const [mine, its] = [candidate, other].map((reference) => registry.findReference(reference)?.id ?? reference);
  const [rate, otherRate] = [rateSum(mine!), rateSum(its!)];
  return mine === its || rate === null || otherRate === null || rate < otherRate;
}

/** Slot 5: the model that a delegation requested, by tier or by worker definition (03 §5, 13 §8). */
const evaluateDelegation: Slot = (ctx, env) => {
  const requested = ctx.requested?.model ?? null;
  if (requested !== null)
    return propose('delegate_request', { candidate_model: requested, reason: REQUESTED_BY_CLIENT }, ctx, env);
  if (!ctx.is_worker || ctx.requested !== null) return skipSlot('delegate_request', 'not in delegation re-entry');
  if (ctx.worker_tier_model === null) return skipSlot('delegate_request', 'worker has no model');
  const reason = ctx.worker_tier_reason ?? 'delegate() tier resolution';
  return propose('delegate_request', { candidate_model: ctx.worker_tier_model, reason }, ctx, env);
};

/** Slot 6: `default` of the workspace's policy file (03 §6.1). */
const evaluateWorkspaceDefault: Slot = (ctx, env) => {
  const { workspace_default: model, faults } = env.policies;
  if (model === null)
    return skipSlot('workspace_default', joinReasons('no workspace default configured', faults.workspace));
  return propose('workspace_default', { candidate_model: model, reason: 'workspace default' }, ctx, env);
};

/** Slot 7: the server's default (03 §6.1). */
const evaluateGlobalDefault: Slot = (ctx, env) => {
  const { global_default: model, faults } = env.policies;
  if (model === null) return skipSlot('global_default', joinReasons('no global default configured', faults.global));
  const reason = joinReasons('global default fallback', faults.global);
  return propose('global_default', { candidate_model: model, reason }, ctx, env);
};

export type Slots = Readonly<Record<SlotName, Slot>>;

export const EVALUATE_SLOT: Slots = {
  per_message_override: evaluateOverride,
  manual_sticky: evaluateSticky,
  rule: evaluateRules,
  pattern: evaluatePattern,
  delegate_request: evaluateDelegation,
  workspace_default: evaluateWorkspaceDefault,
  global_default: evaluateGlobalDefault,
};
