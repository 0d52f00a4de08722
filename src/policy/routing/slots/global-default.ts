// Slot 7: the server's default (03 §6.1).
import { propose, type Slot, withoutCandidate } from '../candidate.ts';

const POLICY = 'global_default';

export const globalDefault: Slot = (ctx, env) => {
  const model = env.policies.global_default;
  if (model === null) return withoutCandidate(POLICY, 'not_applicable', { reason: 'no global default configured' });
  return propose(POLICY, { candidate_model: model, reason: 'global default fallback' }, ctx, env);
};
