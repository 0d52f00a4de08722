// The seven slots in their order: one decision, the error of a refusal, the record on a message (03 §5).
import { AppError } from '#protocol/errors.ts';
import type { RoutingDecisionRecord } from '#protocol/message.ts';
import { getProvider, type ModelEntry } from '#protocol/model.ts';
import {
  type OutageTrigger,
  type PolicyEvaluation,
  ROUTING_MODE_OF,
  type RouteDecision,
  SLOTS,
  type SlotName,
  type TurnContext,
} from '#protocol/route.ts';
import { describeUnlisted, listPriced } from '../gateway/model-names.ts';
import { keyVariable } from '../registry/adapter-config.ts';
import { type AvailabilitySnapshot, FAILURES_TO_TRIP, findOutage } from '../registry/availability.ts';
import { findOwnWire, listEfforts } from '../registry/model-efforts.ts';
import type { ModelRegistry } from '../registry/model-registry.ts';
import { createNotEvaluated, type RouteEnv } from './candidate.ts';
import { EVALUATE_SLOT, type Slots } from './routing-slots.ts';
import { collectFacts, type RuleFacts } from './rules.ts';

// The part of a refusal's error about a model that is out: why, for how long, and what to do (03 §7).

/** An outage as `details.outages` of the error shows it. */
interface OutageDetail {
  readonly model: string;
  readonly trigger_reason: OutageTrigger;
  readonly retry_after_seconds: number;
}

interface Known {
  readonly registry: Pick<ModelRegistry, 'get' | 'adapters'>;
  readonly availability: AvailabilitySnapshot;
}

/** Null where the model is not out, or not known. */
function describeOutage(modelId: string, known: Known): { text: string; detail: OutageDetail } | null {
  const model = known.registry.get(modelId);
  if (model === null) return null;
  const outage = findOutage(known.availability, model);
  if (outage === null) return null;
  const { trigger, seconds_since, seconds_left } = outage;
  const { cause, advice } = explain(trigger, model, known);
  const text = `${cause} ${seconds_since} s ago. Metis calls it again in ${seconds_left} s${advice}`;
  return { text, detail: { model: modelId, trigger_reason: trigger, retry_after_seconds: seconds_left } };
}

function explain(trigger: OutageTrigger, model: ModelEntry, { registry }: Known) {
  const provider = getProvider(model.id);
  const variable = keyVariable(model.adapter, registry.adapters.get(model.adapter)?.api_key_env ?? null);
  const key = `${variable} (environment, or .env in the data folder)`;
  switch (trigger) {
    case 'auth_error':
      return {
        cause: `${provider} rejected the key or account that the server has for it`,
        advice: `; check ${key}, then restart; metis doctor --online tries every key`,
      };
    case 'quota_exhausted':
      return {
        cause: `${provider} reported that the account of this server has no credit left`,
        advice: `; add credit, or replace ${key} and restart`,
      };
    case 'model_denied':
      return {
        cause: `${provider} denied the account of this server access to ${model.wire_name}`,
        advice: `; enable the model there, or check ${key} or remove the model from the registry file`,
      };
    case 'model_not_found':
      return {
        cause: `${provider} does not know ${model.wire_name}`,
        advice: `; check wire_name of ${model.id} in the registry file`,
      };
    case '5_consecutive_failures':
      return { cause: `it failed ${FAILURES_TO_TRIP} times in a row`, advice: '' };
  }
}

export type { RouteEnv } from './candidate.ts';

/** Slots that carry a person's own choice. */
const EXPLICIT = new Set<SlotName>(['per_message_override', 'manual_sticky']);
const NOTHING = { chosen_model: '', chosen_effort: null, fallback_costlier: false } as const;

/**
 * Evaluates the chain: the first candidate that passes its checks wins. Deterministic; at most 5 ms at 100 rules.
 * @param known facts that were collected before, and slots that are answered in another way
 */
export function decideRoute(
  ctx: TurnContext,
  env: RouteEnv,
  known: { readonly facts?: RuleFacts; readonly slots?: Slots } = {},
): RouteDecision {
  const { facts = collectFacts(ctx), slots = EVALUATE_SLOT } = known;
  const chain: PolicyEvaluation[] = [];
  let winner: PolicyEvaluation | null = null;
  for (const name of SLOTS) {
    const isShown = winner === null || statesDelegation(name, ctx);
    const entry: PolicyEvaluation = isShown ? slots[name](ctx, env, facts) : createNotEvaluated(name, winner!.policy);
    if (entry.verdict === 'chose') winner = entry;
    chain.push(entry);
  }
  if (winner === null) return { ...NOTHING, winner_index: -1, refused: 'routing_failed', chain };

  const chosen_model = winner.candidate_model!;
  const chosen_effort = winner.candidate_effort;
  const winner_index = SLOTS.indexOf(winner.policy);
  if (rejectedChoice(chain)) return { ...NOTHING, winner_index, refused: 'explicit_model_rejected', chain };
  const fallback_costlier = isCostlierFallback(chain, chosen_model, env);
  if (fallback_costlier && !env.allowCostlierFallback) {
    return { ...NOTHING, winner_index: -1, refused: 'routing_failed', fallback_costlier, chain };
  }
  return { chosen_model, chosen_effort, winner_index, refused: null, fallback_costlier, chain };
}

/** Whether a slot can never win in this session. Its reason is recorded even after the winner (03 §5, §8). */
function statesDelegation(name: SlotName, ctx: TurnContext): boolean {
  if (ctx.requested !== null) return false;
  if (ctx.is_worker) return name === 'pattern';
  return name === 'delegate_request';
}

/**
 * The error of a refused decision, null when there is none: `explicit_model_rejected` (422) with what would have been
 * used instead, or `routing_failed` (503) with everything that was tried.
 */
export function routeError(decision: RouteDecision, ctx: TurnContext, env: RouteEnv): AppError | null {
  const { chain, refused } = decision;
  if (refused === null) return null;
  const choice = rejectedChoice(chain);
  if (refused === 'explicit_model_rejected' && choice) {
    const model = choice.candidate_model!;
    const fallback = chain[decision.winner_index]!.candidate_model!;
    const { policy: source, validation_failure } = choice;
    const why = explainRejection(model, validation_failure!, ctx, env);
    const message = `${model} cannot serve this turn: ${why}; choose another model, ${fallback} could`;
    return new AppError('explicit_model_rejected', message, {
      source,
      model,
      validation_failure,
      would_fall_back_to: fallback,
      ...outageDetails([model], env),
    });
  }
  const tried = triedCandidates(chain);
  // Two slots may have proposed the same model: it is listed once.
  const lines = new Set(tried.map(({ model, reason }) => `${model} (${explainRejection(model, reason, ctx, env)})`));
  const listed = [...lines].join(', ');
  let message = `no model can serve this turn: ${listed}`;
  if (tried.length === 0) message = 'no model is configured for this turn';
  if (decision.fallback_costlier) {
    const costlier = chain.find(({ verdict }) => verdict === 'chose')?.candidate_model;
    message = `${listed}; the fallback ${costlier} is more expensive, which delegation.allow_costlier_fallback forbids`;
  }
  return new AppError('routing_failed', message, {
    tried,
    alternative_providers_configured: alternativeProviders(tried, env),
    ...outageDetails(
      tried.map(({ model }) => model),
      env,
    ),
  });
}

/** The record of a successful decision, as the assistant's message stores it (01 §4.3). */
export function routingRecord(decision: RouteDecision): RoutingDecisionRecord {
  const { chain, chosen_model } = decision;
  const winner = chain[decision.winner_index];
  if (!winner || chosen_model === '') throw new Error('a refused decision chose no model to record');
  const proposed = chain.flatMap((entry) => [
    ...(entry.tried_rules ?? []).map((tried) => tried.candidate_model),
    entry.candidate_model,
    ...(entry.pattern_alternatives ?? []).map((alternative) => alternative.model),
  ]);
  const considered = proposed.filter((model) => model !== null);
  return {
    mode: ROUTING_MODE_OF[winner.policy],
    chosen_model,
    reason: winner.reason,
    rule_name: winner.rule_name,
    confidence: winner.confidence,
    alternatives_considered: [...new Set(considered)].filter((model) => model !== chosen_model),
  };
}

interface Tried {
  readonly model: string;
  readonly policy: SlotName;
  readonly rule_name: string | null;
  /** The check it failed. */
  readonly reason: string;
}

function triedCandidates(chain: readonly PolicyEvaluation[]): Tried[] {
  return chain.flatMap((entry): Tried[] => {
    const { policy, candidate_model: model, validation_failure: reason } = entry;
    if (entry.tried_rules) {
      return entry.tried_rules.map((tried) => ({
        model: tried.candidate_model,
        policy,
        rule_name: tried.rule_name,
        reason: tried.validation_failure,
      }));
    }
    if (model === null || reason === null) return [];
    return [{ model, policy, rule_name: null, reason }];
  });
}

function rejectedChoice(chain: readonly PolicyEvaluation[]): PolicyEvaluation | undefined {
  return chain.find((entry) => EXPLICIT.has(entry.policy) && entry.verdict === 'rejected');
}

// A fallback whose rate is unknown, or that replaces a model of unknown rate, counts as more expensive.
function isCostlierFallback(chain: readonly PolicyEvaluation[], chosen: string, env: RouteEnv): boolean {
  const asked = chain.find((entry) => entry.policy === 'delegate_request' && entry.verdict === 'rejected');
  if (!asked) return false;
  const [chosenRate, askedRate] = [env.rateSum(chosen), env.rateSum(asked.candidate_model!)];
  return chosenRate === null || askedRate === null || chosenRate > askedRate;
}

function explainRejection(modelId: string, failure: string, ctx: TurnContext, env: RouteEnv): string {
  if (failure === 'provider_unavailable') return `${failure}: ${describeOutage(modelId, env)?.text ?? 'it is out'}`;
  if (failure === 'wrong_wire' && ctx.requested !== null) return `${failure}: it does not speak ${ctx.requested.wire}`;
  if (failure === 'wrong_credentials') return `${failure}: the client's own key is for another address`;
  if (failure === 'not_configured' && env.registry.get(modelId) !== null)
    return `${failure}: the server has no key for ${getProvider(modelId)}`;
  if (failure === 'not_priced') return `${failure}: ${whyUnpriced(modelId, ctx, env)}`;
  if (failure === 'no_such_effort') return `${failure}: here it takes ${listTakenEfforts(modelId, ctx, env) || 'none'}`;
  if (failure !== 'exceeds_context_window') return failure;
  const limit = env.registry.get(modelId)?.capabilities.max_context_tokens;
  return `${failure}: about ${ctx.smallest_input_tokens} tokens, it takes ${limit}`;
}

function listTakenEfforts(modelId: string, { requested }: TurnContext, { registry }: RouteEnv): string {
  const model = registry.get(modelId);
  if (model === null) return '';
  return listEfforts(model, requested?.wire ?? findOwnWire(registry.adapters, model)).join(', ');
}

/** Nothing where no model is out. */
function outageDetails(models: readonly string[], env: RouteEnv): { outages?: readonly OutageDetail[] } {
  const outages = [...new Set(models)].flatMap((model) => describeOutage(model, env)?.detail ?? []);
  if (outages.length === 0) return {};
  return { outages };
}

function whyUnpriced(modelId: string, { requested }: TurnContext, env: RouteEnv): string {
  const { registry, isPriced } = env;
  const isListed = registry.models.some(({ id }) => id === modelId);
  const advice = 'no limit can hold what has no price; add one to a file of pricing.tables';
  if (requested === null) return advice;
  const priced = listPriced(registry, requested.wire, isPriced);
  if (requested.model !== modelId || isListed) return `${advice}; ${priced}`;
  return `${describeUnlisted(registry, requested.name)}; ${priced}`;
}

// Providers with a usable adapter and a model that is not out.
function alternativeProviders(tried: readonly Tried[], env: RouteEnv): string[] {
  const known = new Set(tried.map(({ model }) => getProvider(model)));
  const healthy = env.registry.models.filter(
    (model) => env.registry.isConfigured(model.id) && findOutage(env.availability, model) === null,
  );
  return [...new Set(healthy.map(({ id }) => getProvider(id)))].filter((provider) => !known.has(provider));
}
