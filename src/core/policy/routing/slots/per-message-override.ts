// Slot 1: the model this one message asks for (03 §4.1).
import type { PolicyEvaluation, RequestedModel, TurnContext } from '#protocol/route.ts';
import { propose, type RouteEnv, type Slot, withoutCandidate } from '../candidate.ts';

const POLICY = 'per_message_override';
/** Of the model that a client of the gateway names. */
export const ASKED = 'asked by the client';

export const perMessageOverride: Slot = (ctx, env) => {
  if (ctx.requested !== null) return askedFor(ctx.requested, ctx, env);
  const model = ctx.is_worker ? null : ctx.per_message_override;
  if (model === null) return withoutCandidate(POLICY, 'not_applicable', { reason: 'no @model in message' });
  return propose(POLICY, { candidate_model: model, reason: 'per-message @model override' }, ctx, env);
};

/** In the gateway each call asks for a model (19 §2.4). */
function askedFor({ model, binding }: RequestedModel, ctx: TurnContext, env: RouteEnv): PolicyEvaluation {
  if (model === null) return withoutCandidate(POLICY, 'not_applicable', { reason: 'no model asked for' });
  if (!binding) return withoutCandidate(POLICY, 'not_applicable', { reason: 'rules apply: gateway.rules_apply_to' });
  return propose(POLICY, { candidate_model: model, reason: ASKED }, ctx, env);
}
