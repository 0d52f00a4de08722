// Patterns learned from finished turns: their shape, and the result of each model with it (12 §12.2, §12.3).
import { z } from 'zod';
import type { Pusd } from './money.ts';
import { CountSchema, TierSchema, UlidSchema, UsdSchema } from './scalars.ts';

/** `pattern.*` of the configuration and of a routing file (12 §12.1). */
export const PatternConfigSchema = z.strictObject({
  mode: z.enum(['off', 'suggest', 'apply']),
  evidence: z.enum(['verified', 'any']),
  cost_weight: z.number().min(0).max(1),
  min_confidence: z.number().min(0).max(1),
  min_sample_size: z.int().min(1),
});
export type PatternConfig = z.infer<typeof PatternConfigSchema>;

/** In the order of the table of 12 §12.2. */
export const INTENTS = ['commit', 'refactor', 'architecture', 'debug', 'doc', 'test'] as const;
const IntentSchema = z.enum(INTENTS);
export type Intent = z.infer<typeof IntentSchema>;
export const EFFECT_CLASSES = ['execute', 'network', 'read', 'write'] as const;

/** The shape of a turn, known before it is routed. Lists are unique and sorted, intents in the order above. */
export const FingerprintSchema = z.strictObject({
  file_extensions: z.array(z.string()),
  file_path_buckets: z.array(z.string()),
  tool_names: z.array(z.string()),
  side_effect_classes: z.array(z.enum(EFFECT_CLASSES)),
  has_images: z.boolean(),
  has_tool_calls_in_history: z.boolean(),
  estimated_input_tokens_bucket: z.int().min(0).max(3),
  intent_tags: z.array(IntentSchema),
  workspace_hash: z.string(),
});
export type Fingerprint = z.infer<typeof FingerprintSchema>;

const { intent_tags, file_extensions, tool_names, estimated_input_tokens_bucket, has_images } = FingerprintSchema.shape;
/** Fields of a shape as people are shown it. */
export const SHOWN_SHAPE = {
  fingerprint_id: UlidSchema,
  intent_tags,
  file_extensions,
  tool_names,
  estimated_input_tokens_bucket,
  has_images,
};

/** How one model did with one shape, over all its turns. */
export interface PatternOutcome {
  /** A model reference: a model does differently at each effort (22 §1). */
  readonly model: string;
  /** Of turns of workers, else of top-level turns: neither advises the other (12 §12.4). */
  readonly is_worker: boolean;
  readonly sample_size: number;
  /** Of the turns that have a score; 0 without one. */
  readonly success_score_mean: number;
  readonly success_score_count: number;
  /** The same of the scores that a check or a person gave. */
  readonly verified_mean: number;
  readonly verified_count: number;
  /** Of the `cost_count` turns that show what the work costs. */
  readonly sum_cost_pusd: Pusd;
  readonly cost_count: number;
  readonly sum_latency_ms: number;
  /** Unix milliseconds. */
  readonly last_updated_at: number;
}

/** A shape that occurred in a workspace. */
export interface StoredPattern {
  readonly fingerprint_id: string;
  readonly structural_sig: string;
  readonly fingerprint: Fingerprint;
  readonly outcomes: readonly PatternOutcome[];
}

/** One finished turn as it is added to the outcomes. */
export interface PatternRecord {
  readonly turn_id: string;
  readonly workspace_path: string;
  readonly fingerprint_id: string;
  readonly structural_json: string;
  readonly structural_sig: string;
  readonly primary_model: string;
  readonly is_worker: boolean;
  readonly cost_pusd: Pusd;
  /** False for a turn that was cut short: its cost is not what the work costs. */
  readonly has_cost: boolean;
  readonly latency_ms: number;
  readonly pricing_version: string;
  /** Null: none yet, or one that is too unsure to count. */
  readonly score: number | null;
  /** Unix milliseconds. */
  readonly at: number;
}

/** The rubric of scores that users give (12 §12.8). */
export const USER_RUBRIC = 'user-score-v1';

/** The rubric of checks: 1 or 0 (20 §10). */
export const CHECK_RUBRIC = 'check-v1';

/** An evaluator's score of a turn or a session. */
export interface Verdict {
  readonly score: number;
  readonly confidence: number;
  readonly rubric_id: string;
  readonly rubric_version: string;
  /** Never any text of a message. */
  readonly signals: Readonly<Record<string, unknown>>;
}

// Models compared by score and cost on one shape of task (07 §7.3).

/** A shape that ran on two models at least. */
export interface ShapeOnModels extends z.infer<z.ZodObject<typeof SHOWN_SHAPE>> {
  readonly is_worker: boolean;
  readonly outcomes: readonly (Pick<PatternOutcome, 'model' | 'sample_size' | 'sum_cost_pusd' | 'cost_count'> & {
    /** 0 without scores. */
    readonly score_mean: number;
    readonly scored_turns: number;
    /** Of the window. */
    readonly recent_turns: number;
  })[];
}

const SideSchema = z.object({
  model: z.string(),
  tier: TierSchema.nullable(),
  turns: CountSchema,
  scored_turns: CountSchema,
  /** Null without scores. */
  score_mean: z.number().min(0).max(1).nullable(),
  avg_cost_usd: UsdSchema,
  recent_turns: CountSchema,
});
export type SideOfComparison = z.infer<typeof SideSchema>;
const ModelComparisonSchema = z.object({
  ...SHOWN_SHAPE,
  /** Of turns of workers, else of top-level turns. */
  is_worker: z.boolean(),
  verdict: z.enum(['as_good', 'undecided', 'worse']),
  dearer: SideSchema,
  cheaper: SideSchema,
  /** Mean score of the cheaper model minus that of the more expensive one; null if either has none. */
  difference: z.number().min(-1).max(1).nullable(),
  saving_per_turn_usd: UsdSchema,
  saving_per_day_usd: UsdSchema,
});
export type ModelComparison = z.infer<typeof ModelComparisonSchema>;

export const QualitySchema = z.object({
  /** Counts of what the workspace has learned so far. */
  shapes: CountSchema,
  turns: CountSchema,
  scored_turns: CountSchema,
  /** Of every comparison whose verdict is `as_good`. */
  saving_per_day_usd: UsdSchema,
  comparisons_total: CountSchema,
  /** The first hundred. */
  comparisons: z.array(ModelComparisonSchema),
});
export type Quality = z.infer<typeof QualitySchema>;
