// The facts that a decision is stored with: what rules and checks asked of its turn, without any text (21 §2).
import type { ModelNeed, RouteDecision, RouteFacts, TurnContext } from '#protocol/route.ts';
import type { Rule, RuleFacts } from './rules.ts';

/** Maximum text patterns that a decision notes: each takes 11 bytes of its event. */
export const MAX_NOTED_PATTERNS = 64;
const RULE_SLOT = 2;
const DELEGATION_SLOT = 4;

/** What a candidate is checked for (03 §7). */
export const FLAG_BY_NEED = {
  tools: 'has_tool_definitions',
  system_prompt: 'has_system_prompt',
  images: 'has_images',
  structured_output: 'requires_structured_output',
  price: 'budget_limited',
} as const satisfies Readonly<Record<ModelNeed, keyof TurnContext>>;
const NEEDS = Object.keys(FLAG_BY_NEED) as ModelNeed[];

/** @param facts that the decision was made with: texts are not searched twice */
export function noteFacts(
  ctx: TurnContext,
  facts: RuleFacts,
  { chain }: Pick<RouteDecision, 'chain'>,
  rules: readonly Rule[],
): RouteFacts {
  const { requested, estimated_input_tokens, smallest_input_tokens } = ctx;
  const isShown = chain[DELEGATION_SLOT]?.verdict !== 'not_evaluated';
  return {
    estimated_input_tokens,
    smallest_input_tokens: smallest_input_tokens === estimated_input_tokens ? null : smallest_input_tokens,
    is_worker: ctx.is_worker,
    message_has_images: ctx.message_has_images,
    needs: NEEDS.filter((need) => ctx[FLAG_BY_NEED[need]]),
    document_media_types: [...ctx.document_media_types],
    ...findPatterns(facts, chain[RULE_SLOT]?.verdict === 'not_evaluated' ? [] : rules),
    worker_model: isShown ? null : ctx.worker_tier_model,
    worker_tier: ctx.worker_tier,
    worker_effort: ctx.worker_effort,
    requested: requested && {
      wire: requested.wire,
      model: requested.model,
      effort: requested.effort,
      own_key_adapters: requested.own_key_adapters && [...requested.own_key_adapters],
      binding: requested.binding,
    },
  };
}

/** Every pattern of the policy, those behind the rule that won too: another policy may ask for them first. */
function findPatterns({ isFound }: RuleFacts, rules: readonly Rule[]): Pick<RouteFacts, 'matched' | 'unmatched'> {
  const matched = new Set<string>();
  const unmatched = new Set<string>();
  for (const { texts } of rules)
    for (const predicate of texts) {
      if (matched.size + unmatched.size >= MAX_NOTED_PATTERNS) break;
      if (isFound(predicate)) matched.add(predicate.key);
      else unmatched.add(predicate.key);
    }
  return { matched: [...matched], unmatched: [...unmatched] };
}
