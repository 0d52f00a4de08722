// Slot 5: the model a delegation asked for, by tier or by worker definition (03 §5, 13 §8).
import { propose, type Slot, withoutCandidate } from '../candidate.ts';
import { ASKED } from './per-message-override.ts';

const POLICY = 'delegate_request';

export const delegateRequest: Slot = (ctx, env) => {
  const asked = ctx.requested?.model ?? null;
  if (asked !== null) return propose(POLICY, { candidate_model: asked, reason: ASKED }, ctx, env);
  if (!ctx.is_worker || ctx.requested !== null)
    return withoutCandidate(POLICY, 'not_applicable', { reason: 'not in delegation re-entry' });
  if (ctx.worker_tier_model === null) {
    return withoutCandidate(POLICY, 'not_applicable', { reason: 'worker has no model' });
  }
  const reason = ctx.worker_tier_reason ?? 'delegate() tier resolution';
  return propose(POLICY, { candidate_model: ctx.worker_tier_model, reason }, ctx, env);
};
