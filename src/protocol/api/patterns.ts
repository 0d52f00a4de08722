// What is answered by `GET /patterns` (12 §12.7).
import { z } from 'zod';
import { SHOWN_SHAPE } from '../learning/pattern.ts';
import { CountSchema, TierSchema, TimeSchema, UsdSchema } from '../scalars.ts';

export const PatternOutcomeSchema = z.object({
  model: z.string(),
  /** The registry's of today; null where it has none, or no such model. */
  tier: TierSchema.nullable(),
  sample_size: CountSchema,
  /** Null without scores. */
  success_score_mean: z.number().min(0).max(1).nullable(),
  success_score_count: CountSchema,
  /** For comparison, in whole picodollars; what was paid is in the reports. */
  avg_cost_usd: UsdSchema,
  avg_latency_ms: z.number().min(0),
  last_updated_at: TimeSchema,
});
export const PatternSchema = z.object({
  ...SHOWN_SHAPE,
  outcomes: z.array(PatternOutcomeSchema),
});
export type Pattern = z.infer<typeof PatternSchema>;
export const PatternListReply = z.object({ patterns: z.array(PatternSchema), next_cursor: z.string().nullable() });
