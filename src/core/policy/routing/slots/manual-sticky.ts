// Slot 2: the model the session was set to (03 §4.2).
import { propose, type Slot, withoutCandidate } from '../candidate.ts';

const POLICY = 'manual_sticky';

export const manualSticky: Slot = (ctx, env) => {
  const model = ctx.is_worker ? null : ctx.session_active_model;
  if (model === null) return withoutCandidate(POLICY, 'not_applicable', { reason: 'no sticky model set' });
  return propose(POLICY, { candidate_model: model, reason: 'session sticky model (/model)' }, ctx, env);
};
