// A routing decision: seven slots, each with its verdict (03 §5, 02 §9.3).
import { z } from 'zod';
import { type ClientWire, ClientWireSchema } from './client-wire.ts';
import type { PatternConfig } from './learned-pattern.ts';
import type { RoutingMode } from './message.ts';
import type { Pusd } from './money.ts';
import { CountSchema, type Effort, EffortSchema, type Tier, TierSchema } from './scalars.ts';

/** The chain, in order. Position and name always agree. */
export const SLOTS = [
  'per_message_override',
  'manual_sticky',
  'rule',
  'pattern',
  'delegate_request',
  'workspace_default',
  'global_default',
] as const;
export const SlotNameSchema = z.enum(SLOTS);
export type SlotName = z.infer<typeof SlotNameSchema>;

export const ROUTING_MODE_OF: Readonly<Record<SlotName, RoutingMode>> = {
  per_message_override: 'override',
  manual_sticky: 'manual',
  rule: 'rule',
  pattern: 'pattern',
  delegate_request: 'delegate',
  workspace_default: 'default',
  global_default: 'default',
};

export const VerdictSchema = z.enum(['not_applicable', 'deferred', 'rejected', 'chose', 'not_evaluated']);
export const ValidationFailureSchema = z.enum([
  'no_vision_support',
  'exceeds_context_window',
  'no_tool_support',
  'no_system_prompt_support',
  'no_structured_output_support',
  'provider_unavailable',
  'not_configured',
  'not_priced',
  'no_document_support',
  'wrong_wire',
  'wrong_credentials',
  'no_such_effort',
]);
export type ValidationFailure = z.infer<typeof ValidationFailureSchema>;

export const PatternAlternativeSchema = z.strictObject({
  model: z.string(),
  score: z.number(),
  sample_size: CountSchema,
});
export const TriedRuleSchema = z.strictObject({
  rule_name: z.string(),
  candidate_model: z.string(),
  candidate_effort: EffortSchema.nullable(),
  validation_failure: ValidationFailureSchema,
});
export type TriedRule = z.infer<typeof TriedRuleSchema>;

export const OutageScopeSchema = z.enum(['model_specific', 'provider_wide']);
export type OutageScope = z.infer<typeof OutageScopeSchema>;
/** Why a model or a provider became unavailable (03 §11). */
export const OutageTriggerSchema = z.enum([
  '5_consecutive_failures',
  'auth_error',
  'quota_exhausted',
  'model_denied',
  'model_not_found',
]);
export type OutageTrigger = z.infer<typeof OutageTriggerSchema>;

export const PolicyEvaluationSchema = z.strictObject({
  policy: SlotNameSchema,
  verdict: VerdictSchema,
  candidate_model: z.string().nullable(),
  /** Null where the model has no efforts. */
  candidate_effort: EffortSchema.nullable(),
  rule_name: z.string().nullable(),
  reason: z.string(),
  confidence: z.number().nullable(),
  pattern_alternatives: z.array(PatternAlternativeSchema).nullable(),
  validation_failure: ValidationFailureSchema.nullable(),
  tried_rules: z.array(TriedRuleSchema).nullable(),
});
export type PolicyEvaluation = z.infer<typeof PolicyEvaluationSchema>;

export const RefusalSchema = z.enum(['routing_failed', 'explicit_model_rejected']);
export type Refusal = z.infer<typeof RefusalSchema>;

/** The decision of the chain. `winner_index` is the would-be winner when the explicit choice was refused, -1 when nothing passed. */
export interface RouteDecision {
  /** '' when refused. */
  readonly chosen_model: string;
  /** Null when refused, and where the model has no efforts. */
  readonly chosen_effort: Effort | null;
  readonly winner_index: number;
  readonly refused: Refusal | null;
  readonly fallback_costlier: boolean;
  readonly chain: readonly PolicyEvaluation[];
}

/** Scores of turns: their number and their mean, 0 without any. */
export interface ScoreShare {
  readonly count: number;
  readonly mean: number;
}

/** What is known of one model in the turns that a recommendation uses. */
export interface ModelEvidence {
  readonly turns: number;
  /** Every score. */
  readonly scored: ScoreShare;
  /** The scores that a check or a person gave. */
  readonly verified: ScoreShare;
}

/** Slot 4's input: what earlier turns suggest (03 §8). */
export interface Recommendation {
  readonly config: PatternConfig;
  /** By model reference. */
  readonly evidence: ReadonlyMap<string, ModelEvidence>;
  /** A model reference. */
  readonly chosen_model: string | null;
  readonly confidence: number;
  readonly sample_size: number;
  readonly k_cluster_size: number;
  readonly alternatives: readonly { readonly model: string; readonly score: number; readonly sample_size: number }[];
}

/** The model that a client of the gateway asks for (19 §2.4). */
export interface RequestedModel {
  readonly wire: ClientWire;
  /** As it came. */
  readonly name: string;
  /** Canonical id; null where the client leaves the choice to the server. */
  readonly model: string | null;
  /** That the name ends in; null = none. */
  readonly effort: Effort | null;
  /** Adapters that the client's own key may be sent to; null = the server's keys are used. */
  readonly own_key_adapters: ReadonlySet<string> | null;
  /** Nothing but the model asked for may serve. */
  readonly binding: boolean;
}

/** What a turn needs of its model, as a candidate is checked (03 §7). `price`: a limit covers it. */
export const ModelNeedSchema = z.enum(['tools', 'system_prompt', 'images', 'structured_output', 'price']);
export type ModelNeed = z.infer<typeof ModelNeedSchema>;

/** What a decision was made from, without any text: enough to make it again under other rules (21 §2). */
export const RouteFactsSchema = z.strictObject({
  estimated_input_tokens: CountSchema,
  smallest_input_tokens: CountSchema.nullable().describe('Null = as the estimate.'),
  is_worker: z.boolean(),
  message_has_images: z.boolean(),
  needs: z.array(ModelNeedSchema),
  document_media_types: z.array(z.string()),
  matched: z.array(z.string()).describe('Keys of the text patterns of the rules that matched.'),
  unmatched: z.array(z.string()).describe('Keys of those that did not match.'),
  worker_model: z.string().nullable().describe('Candidate of slot 5, where the chain does not show it.'),
  worker_tier: TierSchema.nullable().describe('Tier that the candidate of slot 5 is the model of.'),
  worker_effort: EffortSchema.nullable().describe('That the delegation asked for.'),
  requested: z
    .strictObject({
      wire: ClientWireSchema,
      model: z.string().nullable(),
      effort: EffortSchema.nullable(),
      own_key_adapters: z.array(z.string()).nullable(),
      binding: z.boolean(),
    })
    .nullable()
    .describe('Of a client of the gateway.'),
});
export type RouteFacts = z.infer<typeof RouteFactsSchema>;

/** Everything one decision depends on besides registry, policies and availability (03 §3). Built once per turn. */
export interface TurnContext {
  readonly session_id: string;
  readonly turn_id: string;
  readonly estimated_input_tokens: number;
  /** The same for the smallest view that elision could leave (10 §7). */
  readonly smallest_input_tokens: number;
  /** Any image in the messages that will be sent: validation. */
  readonly has_images: boolean;
  /** Any image in the new user message: the predicate. */
  readonly message_has_images: boolean;
  readonly has_tool_definitions: boolean;
  readonly has_system_prompt: boolean;
  readonly requires_structured_output: boolean;
  readonly document_media_types: readonly string[];
  readonly budget_limited: boolean;
  /** A model reference, likewise below (22 §1). */
  readonly per_message_override: string | null;
  readonly session_active_model: string | null;
  /** True for every turn of a worker session. */
  readonly is_worker: boolean;
  /** Slot 5's candidate; null outside workers, and for a named worker without model or tier. */
  readonly worker_tier_model: string | null;
  /** Why slot 5 proposes: `delegate() tier resolution`, `worker definition model`, `worker definition tier`. */
  readonly worker_tier_reason: string | null;
  /** The tier that slot 5's candidate is the model of, and the effort that was asked for beside it. */
  readonly worker_tier: Tier | null;
  readonly worker_effort: Effort | null;
  readonly workspace_path: string;
  readonly user_message_text: string;
  readonly cost_today_pusd: Pusd;
  /** Unix milliseconds. */
  readonly now: number;
  /** The model that a client of the gateway requested; null outside the gateway. */
  readonly requested: RequestedModel | null;
  readonly recommendation: Recommendation | null;
  /** Why there is no recommendation to look at; null when `recommendation` is set. */
  readonly recommendation_absent: 'pattern store not configured' | 'pattern store unavailable' | null;
}
