// Payloads of `pattern.*` and `eval.*` (02 §9.9).
import { z } from 'zod';
import { CountSchema, UlidSchema, UsdSchema } from '../scalars.ts';

export const PatternRecordedSchema = z.strictObject({
  fingerprint_id: UlidSchema,
  primary_model: z.string(),
  sample_size_before: CountSchema,
  sample_size_after: CountSchema,
  was_new_fingerprint: z.boolean(),
  success_score: z.number().nullable(),
  cost_usd_at_record: UsdSchema,
  pricing_version: z.string(),
});

export const EvalCompletedSchema = z.strictObject({
  eval_id: UlidSchema,
  subject_kind: z.enum(['turn', 'session']),
  subject_id: z.string(),
  score: z.number().min(0).max(1),
  confidence: z.number().min(0).max(1),
  rubric_id: z.string(),
  rubric_version: z.string(),
  signals: z.record(z.string(), z.unknown()),
});
