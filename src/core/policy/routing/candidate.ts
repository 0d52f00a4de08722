// A slot's candidate and the ten checks it must pass (03 §5, §7).
import { getProvider, type ModelEntry } from '#protocol/model.ts';
import type { PolicyEvaluation, SlotName, TurnContext, ValidationFailure } from '#protocol/route.ts';
import { canSpeak } from '../gateway/model-names.ts';
import { type AvailabilitySnapshot, findOutage, providerKey } from '../registry/availability.ts';
import type { ModelRegistry } from '../registry/model-registry.ts';
import type { RoutingPolicies } from './policy-file.ts';

/** What a decision depends on besides its turn. */
export interface RouteEnv {
  readonly registry: ModelRegistry;
  readonly policies: RoutingPolicies;
  readonly availability: AvailabilitySnapshot;
  /** Whether the price table knows the model. */
  isPriced(modelId: string): boolean;
  /** Input + output rate without long-context rates, in one unit for all models; null = unpriced. */
  rateSum(modelId: string): bigint | null;
  /** `delegation.allow_costlier_fallback`. */
  readonly allowCostlierFallback: boolean;
}

/** What the checks of a candidate look at. */
export type CheckEnv = Pick<RouteEnv, 'registry' | 'availability' | 'isPriced'>;

/** One position of the chain. Pure. */
export type Slot = (ctx: TurnContext, env: RouteEnv) => PolicyEvaluation;

/** What a slot reports besides its model. */
export type Remark = Pick<PolicyEvaluation, 'reason'> & Partial<PolicyEvaluation>;

// Seven of these make a decision: written out, since spreading costs several times as much.
function evaluation(
  policy: SlotName,
  verdict: PolicyEvaluation['verdict'],
  remark: Remark,
  { reason, validation_failure }: Pick<PolicyEvaluation, 'reason' | 'validation_failure'>,
): PolicyEvaluation {
  return {
    policy,
    verdict,
    candidate_model: remark.candidate_model ?? null,
    rule_name: remark.rule_name ?? null,
    reason,
    confidence: remark.confidence ?? null,
    pattern_alternatives: remark.pattern_alternatives ?? null,
    validation_failure,
    tried_rules: remark.tried_rules ?? null,
  };
}

/** An entry that proposes nothing. */
export function withoutCandidate(
  policy: SlotName,
  verdict: 'not_applicable' | 'deferred' | 'not_evaluated',
  remark: Remark,
): PolicyEvaluation {
  return evaluation(policy, verdict, remark, { reason: remark.reason, validation_failure: null });
}

/** The entry of every slot behind the winner's. */
export function notEvaluated(policy: SlotName, winner: SlotName): PolicyEvaluation {
  return withoutCandidate(policy, 'not_evaluated', { reason: `decided by ${winner}` });
}

/** An entry that proposes a model: `chose` when it passes every check, else `rejected`. */
export function propose(
  policy: SlotName,
  remark: Remark & { readonly candidate_model: string },
  ctx: TurnContext,
  env: RouteEnv,
): PolicyEvaluation {
  const { candidate_model, reason } = remark;
  const validation_failure = validationFailure(candidate_model, ctx, env);
  if (validation_failure === null) return evaluation(policy, 'chose', remark, { reason, validation_failure });
  const explanation =
    validation_failure === 'provider_unavailable' ? `${reason} (${outage(candidate_model, env)})` : reason;
  return evaluation(policy, 'rejected', remark, { reason: explanation, validation_failure });
}

/** The first check the model fails, null when it may serve the turn. */
export function validationFailure(modelId: string, ctx: Checked, env: CheckEnv): ValidationFailure | null {
  const model = env.registry.get(modelId);
  if (model === null || !env.registry.isConfigured(modelId)) return 'not_configured';
  return CHECKS.find(([, fails]) => fails(model, ctx, env))?.[0] ?? null;
}

/** What the checks look at: they are asked before there is a recommendation too. */
type Checked = Omit<TurnContext, 'recommendation' | 'recommendation_absent'>;
type Check = readonly [ValidationFailure, (model: ModelEntry, ctx: Checked, env: CheckEnv) => boolean];

/** A client that must have the model it names learns from the provider what that cannot do; the registry may not know. */
const isBinding = ({ id }: ModelEntry, { requested }: Checked) => requested?.binding === true && requested.model === id;

/** A check of what the model can do. */
const capability = (name: ValidationFailure, fails: Check[1]): Check => [
  name,
  (model, ctx, env) => !isBinding(model, ctx) && fails(model, ctx, env),
];

const CHECKS: readonly Check[] = [
  ['provider_unavailable', (model, _, env) => findOutage(env.availability, model) !== null],
  capability('no_vision_support', ({ capabilities }, ctx) => ctx.has_images && !capabilities.supports_images),
  [
    'exceeds_context_window',
    // The requested model's provider rejects such a prompt itself, by its own count and with an error that clients handle.
    ({ id, capabilities }, ctx) =>
      ctx.smallest_input_tokens > capabilities.max_context_tokens && ctx.requested?.model !== id,
  ],
  capability('no_tool_support', ({ capabilities }, ctx) => ctx.has_tool_definitions && !capabilities.supports_tools),
  capability(
    'no_system_prompt_support',
    ({ capabilities }, ctx) => ctx.has_system_prompt && !capabilities.supports_system_prompt,
  ),
  capability(
    'no_structured_output_support',
    ({ capabilities }, ctx) => ctx.requires_structured_output && !capabilities.supports_structured_output,
  ),
  ['not_priced', ({ id }, ctx, env) => ctx.budget_limited && !env.isPriced(id)],
  capability('no_document_support', ({ capabilities }, ctx) =>
    ctx.document_media_types.some((type) => !capabilities.accepted_document_media_types.includes(type)),
  ),
  ['wrong_wire', (model, ctx, env) => ctx.requested !== null && !canSpeak(env.registry, model, ctx.requested.wire)],
  ['wrong_credentials', (model, ctx) => ctx.requested?.own_key_adapters?.has(model.adapter) === false],
];

function outage(modelId: string, { registry, availability }: CheckEnv): string {
  const model = registry.get(modelId);
  const isWide = model !== null && availability.providers.has(providerKey(model));
  return isWide ? `all ${getProvider(modelId)} models unavailable` : 'model-specific outage';
}
