// How the models did with one shape of task, beside each other and their cost (07 §7.3).
import { z } from 'zod';
import { CountSchema, TierSchema, UsdSchema } from '../scalars.ts';
import { type PatternOutcome, SHOWN_SHAPE } from './pattern.ts';

/** A shape that ran on two models at least. */
export interface ShapeOnModels extends z.infer<z.ZodObject<typeof SHOWN_SHAPE>> {
  readonly outcomes: readonly (Pick<PatternOutcome, 'model' | 'sample_size' | 'sum_cost_pusd'> & {
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
export const ModelComparisonSchema = z.object({
  ...SHOWN_SHAPE,
  verdict: z.enum(['as_good', 'undecided', 'worse']),
  dearer: SideSchema,
  cheaper: SideSchema,
  /** Mean score of the cheaper one less that of the dearer one; null where one has none. */
  difference: z.number().min(-1).max(1).nullable(),
  saving_per_turn_usd: UsdSchema,
  saving_per_day_usd: UsdSchema,
});
export type ModelComparison = z.infer<typeof ModelComparisonSchema>;

export const QualitySchema = z.object({
  /** What was learned in the workspace so far. */
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
