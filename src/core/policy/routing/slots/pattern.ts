// Slot 4: what earlier turns recommend; in a worker only shown, never taken (03 §8).
import { propose, type Slot, withoutCandidate } from '../candidate.ts';

const POLICY = 'pattern';

export const pattern: Slot = (ctx, env) => {
  if (ctx.requested !== null)
    return withoutCandidate(POLICY, 'not_applicable', { reason: 'nothing of the gateway is stored to learn from' });
  const found = ctx.recommendation;
  const evidence = {
    confidence: found?.confidence ?? null,
    pattern_alternatives:
      found?.alternatives.map(({ model, score, sample_size }) => ({ model, score, sample_size })) ?? null,
  };
  if (ctx.is_worker) {
    const candidate_model = found?.chosen_model ?? null;
    return withoutCandidate(POLICY, 'deferred', { reason: 'delegate_request_in_flight', candidate_model, ...evidence });
  }
  if (found === null) {
    const reason = ctx.recommendation_absent ?? 'no neighbors in pattern store';
    return withoutCandidate(POLICY, 'not_applicable', { reason });
  }
  if (found.chosen_model === null) {
    const reason = 'no high-confidence pattern recommendation';
    return withoutCandidate(POLICY, 'not_applicable', { reason, ...evidence });
  }
  const reason = `pattern K-NN (confidence=${found.confidence.toFixed(2)}, sample=${found.sample_size})`;
  return propose(POLICY, { candidate_model: found.chosen_model, reason, ...evidence }, ctx, env);
};
