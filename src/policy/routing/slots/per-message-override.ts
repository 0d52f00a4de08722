// Slot 1: the model this one message asks for (03 §4.1).
import { propose, type Slot, withoutCandidate } from '../candidate.ts';

const POLICY = 'per_message_override';

export const perMessageOverride: Slot = (ctx, env) => {
  const model = ctx.is_worker ? null : ctx.per_message_override;
  if (model === null) return withoutCandidate(POLICY, 'not_applicable', { reason: 'no @model in message' });
  return propose(POLICY, { candidate_model: model, reason: 'per-message @model override' }, ctx, env);
};
