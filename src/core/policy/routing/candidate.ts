// A slot's candidate and the checks it must pass (03 §5, §7).
import { getProvider, type ModelEntry } from '#protocol/model.ts';
import type { PolicyEvaluation, SlotName, TurnContext, ValidationFailure } from '#protocol/route.ts';
import type { Effort } from '#protocol/scalars.ts';
import { canSpeak } from '../gateway/model-names.ts';
import { type AvailabilitySnapshot, findOutage, providerKey } from '../registry/availability.ts';
import { findOwnWire, listEfforts, resolveDefaultEffort } from '../registry/model-efforts.ts';
import type { ModelReference, ModelRegistry } from '../registry/model-registry.ts';
import type { RoutingPolicies } from './policy-file.ts';
import type { RuleFacts } from './rules.ts';

/** Inputs of a decision other than its turn. */
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

/** Inputs of a candidate's checks. */
export type CheckEnv = Pick<RouteEnv, 'registry' | 'availability' | 'isPriced'>;

/** One position of the chain. Pure. */
export type Slot = (ctx: TurnContext, env: RouteEnv, facts: RuleFacts) => PolicyEvaluation;

/** Details that a slot reports in addition to its model. */
export type Remark = Pick<PolicyEvaluation, 'reason'> & Partial<PolicyEvaluation>;

/** A model with the effort that it would work with. */
type Candidate = Pick<PolicyEvaluation, 'candidate_model' | 'candidate_effort'>;
const NO_CANDIDATE: Candidate = { candidate_model: null, candidate_effort: null };

// Seven of these make a decision: written out, since spreading costs several times as much.
function createEvaluation(
  policy: SlotName,
  verdict: PolicyEvaluation['verdict'],
  remark: Remark,
  { reason, validation_failure, ...candidate }: Pick<PolicyEvaluation, 'reason' | 'validation_failure'> & Candidate,
): PolicyEvaluation {
  return {
    policy,
    verdict,
    candidate_model: candidate.candidate_model,
    candidate_effort: candidate.candidate_effort,
    rule_name: remark.rule_name ?? null,
    reason,
    confidence: remark.confidence ?? null,
    pattern_alternatives: remark.pattern_alternatives ?? null,
    validation_failure,
    tried_rules: remark.tried_rules ?? null,
  };
}

/** An entry that proposes nothing; only a deferred one names a candidate. */
export function withoutCandidate(
  policy: SlotName,
  verdict: 'not_applicable' | 'deferred' | 'not_evaluated',
  remark: Remark,
): PolicyEvaluation {
  const { reason, candidate_model = null, candidate_effort = null } = remark;
  return createEvaluation(policy, verdict, remark, {
    reason,
    validation_failure: null,
    candidate_model,
    candidate_effort,
  });
}

/** The entry of every slot behind the winner's. */
export function createNotEvaluated(policy: SlotName, winner: SlotName): PolicyEvaluation {
  return withoutCandidate(policy, 'not_evaluated', { reason: `decided by ${winner}` });
}

/**
 * An entry that proposes a model: `chose` when it passes every check, else `rejected`.
 * @param remark its `candidate_model` is a model reference
 */
export function propose(
  policy: SlotName,
  remark: Remark & { readonly candidate_model: string },
  ctx: TurnContext,
  env: RouteEnv,
): PolicyEvaluation {
  const { reason } = remark;
  const reference = readReference(remark.candidate_model, env);
  const candidate = toCandidate(reference, ctx, env);
  const validation_failure = validationFailure(remark.candidate_model, ctx, env);
  if (validation_failure === null)
    return createEvaluation(policy, 'chose', remark, { reason, validation_failure, ...candidate });
  let explanation = reason;
  if (validation_failure === 'provider_unavailable') explanation = `${reason} (${describeOutage(reference.id, env)})`;
  return createEvaluation(policy, 'rejected', remark, { reason: explanation, validation_failure, ...candidate });
}

/** What a reference proposes for this turn. @param reference null = nothing */
export function describeCandidate(reference: string | null, ctx: TurnContext, env: RouteEnv): Candidate {
  if (reference === null) return NO_CANDIDATE;
  return toCandidate(readReference(reference, env), ctx, env);
}

/** A default that is not registered, and a model that a client names, are ids. */
function readReference(reference: string, { registry }: Pick<CheckEnv, 'registry'>): ModelReference {
  return registry.findReference(reference) ?? { id: reference, effort: null };
}

function toCandidate({ id, effort }: ModelReference, ctx: TurnContext, { registry }: RouteEnv): Candidate {
  const model = registry.get(id);
  if (model === null || model.efforts === null) return { candidate_model: id, candidate_effort: null };
  return { candidate_model: id, candidate_effort: chooseEffort(model, effort, ctx, registry) };
}

/** The provider decides for the model that a client asks for, unless a rule or the name has an effort. */
function chooseEffort(
  model: ModelEntry,
  named: Effort | null,
  { requested }: TurnContext,
  { adapters }: Pick<ModelRegistry, 'adapters'>,
): Effort | null {
  if (requested?.model === model.id) return named ?? requested.effort ?? model.default_effort;
  return named ?? resolveDefaultEffort(model, requested?.wire ?? findOwnWire(adapters, model));
}

/** The first check that the reference fails, null when its model may serve the turn. */
export function validationFailure(reference: string, ctx: Checked, env: CheckEnv): ValidationFailure | null {
  const { id, effort } = readReference(reference, env);
  const model = env.registry.get(id);
  if (model === null || !env.registry.isConfigured(id)) return 'not_configured';
  const failure = CHECKS.find(([, fails]) => fails(model, ctx, env))?.[0] ?? null;
  if (failure === null && isEffortMissing(model, effort, ctx, env)) return 'no_such_effort';
  return failure;
}

/** Where efforts differ by wire, a reference may name one that the wire of this turn lacks. */
function isEffortMissing(
  model: ModelEntry,
  named: Effort | null,
  { requested }: Checked,
  { registry }: CheckEnv,
): boolean {
  const effort = named ?? (requested?.model === model.id ? requested.effort : null);
  if (effort === null) return false;
  return !listEfforts(model, requested?.wire ?? findOwnWire(registry.adapters, model)).includes(effort);
}

/** Inputs of the checks, which also run before a recommendation exists. */
type Checked = Omit<TurnContext, 'recommendation' | 'recommendation_absent'>;
type Check = readonly [ValidationFailure, (model: ModelEntry, ctx: Checked, env: CheckEnv) => boolean];

/** A client that requires the named model gets the provider's own error for missing capabilities; the registry may be incomplete. */
const isBinding = ({ id }: ModelEntry, { requested }: Checked) => requested?.binding === true && requested.model === id;

/** A check of the model's capabilities. */
const createCapabilityCheck = (name: ValidationFailure, fails: Check[1]): Check => [
  name,
  (model, ctx, env) => !isBinding(model, ctx) && fails(model, ctx, env),
];

const CHECKS: readonly Check[] = [
  ['provider_unavailable', (model, _, env) => findOutage(env.availability, model) !== null],
  createCapabilityCheck(
    'no_vision_support',
    ({ capabilities }, ctx) => ctx.has_images && !capabilities.supports_images,
  ),
  [
    'exceeds_context_window',
    // The requested model's provider rejects such a prompt itself, by its own count and with an error that clients handle.
    ({ id, capabilities }, ctx) =>
      ctx.smallest_input_tokens > capabilities.max_context_tokens && ctx.requested?.model !== id,
  ],
  createCapabilityCheck(
    'no_tool_support',
    ({ capabilities }, ctx) => ctx.has_tool_definitions && !capabilities.supports_tools,
  ),
  createCapabilityCheck(
    'no_system_prompt_support',
    ({ capabilities }, ctx) => ctx.has_system_prompt && !capabilities.supports_system_prompt,
  ),
  createCapabilityCheck(
    'no_structured_output_support',
    ({ capabilities }, ctx) => ctx.requires_structured_output && !capabilities.supports_structured_output,
  ),
  ['not_priced', ({ id }, ctx, env) => ctx.budget_limited && !env.isPriced(id)],
  createCapabilityCheck('no_document_support', ({ capabilities }, ctx) =>
    ctx.document_media_types.some((type) => !capabilities.accepted_document_media_types.includes(type)),
  ),
  ['wrong_wire', (model, ctx, env) => ctx.requested !== null && !canSpeak(env.registry, model, ctx.requested.wire)],
  ['wrong_credentials', (model, ctx) => ctx.requested?.own_key_adapters?.has(model.adapter) === false],
];

function describeOutage(modelId: string, { registry, availability }: CheckEnv): string {
  const model = registry.get(modelId);
  const isWide = model !== null && availability.providers.has(providerKey(model));
  if (isWide) return `all ${getProvider(modelId)} models unavailable`;
  return 'model-specific outage';
}
