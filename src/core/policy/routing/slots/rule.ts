// Slot 3: the first matching rule whose model can serve; the rules before it that could not are noted (03 §5, §6).
import type { PolicyEvaluation, TriedRule } from '#protocol/route.ts';
import { propose, type Slot, withoutCandidate } from '../candidate.ts';
import { factsOf } from '../predicates.ts';

const POLICY = 'rule';

export const rule: Slot = (ctx, env) => {
  const { rules, faults } = env.policies;
  const facts = factsOf(ctx);
  const tried: TriedRule[] = [];
  let rejected: PolicyEvaluation | null = null;
  for (const { name, use, matches } of rules) {
    if (!matches(facts)) continue;
    const remark = { reason: `matched rule '${name}'`, rule_name: name, tried_rules: tried };
    const entry = propose(POLICY, { candidate_model: use, ...remark }, ctx, env);
    if (entry.validation_failure === null) return entry;
    tried.push({ rule_name: name, candidate_model: use, validation_failure: entry.validation_failure });
    rejected = entry;
  }
  const none = rules.length === 0 ? 'no rules configured' : 'no rule matched this turn';
  const reason = [none, faults.workspace, faults.global].filter((part) => part !== null).join('; ');
  return rejected ?? withoutCandidate(POLICY, 'not_applicable', { reason, tried_rules: tried });
};
