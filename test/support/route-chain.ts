// An entry of a routing chain that says nothing yet.
import type { PolicyEvaluation, SlotName } from '#protocol/route.ts';

export function notApplicable(policy: SlotName, over: Partial<PolicyEvaluation> = {}): PolicyEvaluation {
  return {
    policy,
    verdict: 'not_applicable',
    candidate_model: null,
    candidate_effort: null,
    rule_name: null,
    reason: '',
    confidence: null,
    pattern_alternatives: null,
    validation_failure: null,
    tried_rules: null,
    ...over,
  };
}
