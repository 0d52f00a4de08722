// The seven slots of a routing decision, each with its candidate (03 §4-§6, §8).
import type { PolicyEvaluation, RequestedModel, SlotName, TriedRule, TurnContext } from '#protocol/route.ts';
import { propose, type RouteEnv, type Slot, withoutCandidate } from './candidate.ts';
import { collectFacts } from './rules.ts';

const REQUESTED_BY_CLIENT = 'asked by the client';

const notApplicable = (policy: SlotName, reason: string) => withoutCandidate(policy, 'not_applicable', { reason });
const joinReasons = (...parts: readonly (string | null)[]) => parts.filter((part) => part !== null).join('; ');

/** Slot 1: the model that this one message requests (03 §4.1). */
const perMessageOverride: Slot = (ctx, env) => {
  if (ctx.requested !== null) return proposeRequested(ctx.requested, ctx, env);
  const model = ctx.per_message_override;
  if (ctx.is_worker || model === null) return notApplicable('per_message_override', 'no @model in message');
  return propose('per_message_override', { candidate_model: model, reason: 'per-message @model override' }, ctx, env);
};

/** In the gateway each call requests a model (19 §2.4). */
function proposeRequested({ model, binding }: RequestedModel, ctx: TurnContext, env: RouteEnv): PolicyEvaluation {
  if (model === null) return notApplicable('per_message_override', 'no model asked for');
  if (!binding) return notApplicable('per_message_override', 'rules apply: gateway.rules_apply_to');
  return propose('per_message_override', { candidate_model: model, reason: REQUESTED_BY_CLIENT }, ctx, env);
}

/** Slot 2: the model that the session was set to (03 §4.2). */
const manualSticky: Slot = (ctx, env) => {
  const model = ctx.session_active_model;
  if (ctx.is_worker || model === null) return notApplicable('manual_sticky', 'no sticky model set');
  return propose('manual_sticky', { candidate_model: model, reason: 'session sticky model (/model)' }, ctx, env);
};

/** Slot 3: the first matching rule whose model can serve. Matching rules before it are recorded as tried (03 §5, §6). */
const rule: Slot = (ctx, env) => {
  const { rules, faults } = env.policies;
  const facts = collectFacts(ctx);
  const tried: TriedRule[] = [];
  let rejected: PolicyEvaluation | null = null;
  for (const { name, use, matches } of rules) {
    if (!matches(facts)) continue;
    const remark = { reason: `matched rule '${name}'`, rule_name: name, tried_rules: tried };
    const entry = propose('rule', { candidate_model: use, ...remark }, ctx, env);
    if (entry.validation_failure === null) return entry;
    tried.push({ rule_name: name, candidate_model: use, validation_failure: entry.validation_failure });
    rejected = entry;
  }
  if (rejected !== null) return rejected;
  const none = rules.length === 0 ? 'no rules configured' : 'no rule matched this turn';
  const reason = joinReasons(none, faults.workspace, faults.global);
  return withoutCandidate('rule', 'not_applicable', { reason, tried_rules: tried });
};

/** Slot 4: the recommendation learned from earlier turns. In a worker it is recorded and never used (03 §8). */
const pattern: Slot = (ctx, env) => {
  if (ctx.requested !== null) return notApplicable('pattern', 'nothing of the gateway is stored to learn from');
  const found = ctx.recommendation;
  const alternatives = found?.alternatives.map(({ model, score, sample_size }) => ({ model, score, sample_size }));
  const evidence = { confidence: found?.confidence ?? null, pattern_alternatives: alternatives ?? null };
  if (ctx.is_worker) {
    const candidate_model = found?.chosen_model ?? null;
    const reason = 'delegate_request_in_flight';
    return withoutCandidate('pattern', 'deferred', { reason, candidate_model, ...evidence });
  }
  if (found === null) return notApplicable('pattern', ctx.recommendation_absent ?? 'no neighbors in pattern store');
  if (found.chosen_model === null) {
    const reason = 'no high-confidence pattern recommendation';
    return withoutCandidate('pattern', 'not_applicable', { reason, ...evidence });
  }
  const reason = `pattern K-NN (confidence=${found.confidence.toFixed(2)}, sample=${found.sample_size})`;
  return propose('pattern', { candidate_model: found.chosen_model, reason, ...evidence }, ctx, env);
};

/** Slot 5: the model that a delegation requested, by tier or by worker definition (03 §5, 13 §8). */
const delegateRequest: Slot = (ctx, env) => {
  const requested = ctx.requested?.model ?? null;
  if (requested !== null)
    return propose('delegate_request', { candidate_model: requested, reason: REQUESTED_BY_CLIENT }, ctx, env);
  if (!ctx.is_worker || ctx.requested !== null) return notApplicable('delegate_request', 'not in delegation re-entry');
  if (ctx.worker_tier_model === null) return notApplicable('delegate_request', 'worker has no model');
  const reason = ctx.worker_tier_reason ?? 'delegate() tier resolution';
  return propose('delegate_request', { candidate_model: ctx.worker_tier_model, reason }, ctx, env);
};

/** Slot 6: `default` of the workspace's policy file (03 §6.1). */
const workspaceDefault: Slot = (ctx, env) => {
  const { workspace_default: model, faults } = env.policies;
  if (model === null)
    return notApplicable('workspace_default', joinReasons('no workspace default configured', faults.workspace));
  return propose('workspace_default', { candidate_model: model, reason: 'workspace default' }, ctx, env);
};

/** Slot 7: the server's default (03 §6.1). */
const globalDefault: Slot = (ctx, env) => {
  const { global_default: model, faults } = env.policies;
  if (model === null)
    return notApplicable('global_default', joinReasons('no global default configured', faults.global));
  const reason = joinReasons('global default fallback', faults.global);
  return propose('global_default', { candidate_model: model, reason }, ctx, env);
};

export const EVALUATE_SLOT: Readonly<Record<SlotName, Slot>> = {
  per_message_override: perMessageOverride,
  manual_sticky: manualSticky,
  rule,
  pattern,
  delegate_request: delegateRequest,
  workspace_default: workspaceDefault,
  global_default: globalDefault,
};
