// Slot 7: the server's default (03 §6.1).
import { propose, type Slot, withoutCandidate } from '../candidate.ts';

const POLICY = 'global_default';

export const globalDefault: Slot = (ctx, env) => {
  const { global_default: model, faults } = env.policies;
  const said = (text: string) => [text, faults.global].filter((part) => part !== null).join('; ');
  if (model === null)
    return withoutCandidate(POLICY, 'not_applicable', { reason: said('no global default configured') });
  return propose(POLICY, { candidate_model: model, reason: said('global default fallback') }, ctx, env);
};
