// Bodies and replies of `/models`, `/routing` (05 §3.5) and `/pricing` (08 §8).
import { z } from 'zod';
import { ConfigSchema } from '../config.ts';
import { SHOWN_SHAPE } from '../learned-pattern.ts';
import { ModelSchema } from '../model.ts';
import { PolicyEvaluationSchema, RefusalSchema } from '../route.ts';
import {
  CountSchema,
  EffortSchema,
  Sha256Schema,
  TierSchema,
  TimeSchema,
  UsdSchema,
  WorkspacePathSchema,
} from '../scalars.ts';

export const ModelListReply = z.object({ models: z.array(ModelSchema) });

const Model = z.string().nullable();
export const RoutingPolicyReply = z.object({
  version: Sha256Schema.nullable(),
  valid: z.boolean(),
  loaded_at: TimeSchema.nullable(),
  global_default: Model,
  workspace_default: Model,
  tiers: z.object({ fast: Model, balanced: Model, deep: Model }),
  rules: z.array(z.object({ name: z.string(), when: z.unknown(), use: z.string() })),
  pattern: ConfigSchema.shape.pattern,
  errors: z.array(z.string()).optional(),
  using_last_known_good: z.boolean().optional(),
});
export const CheckRoutingReply = z.object({
  valid: z.boolean(),
  errors: z.array(z.string()),
  warnings: z.array(z.string()),
});
export const ExplainRouteReply = z.object({
  chosen_model: z.string(),
  chosen_effort: EffortSchema.nullable(),
  winner_index: z.int().min(-1).max(6),
  refused: RefusalSchema.nullable(),
  chain: z.array(PolicyEvaluationSchema).length(7),
  estimated_input_tokens: CountSchema,
  routing_policy_version: Sha256Schema.nullable(),
});

export const CheckRoutingBody = z.strictObject({
  policy_yaml: z.string().nullable().default(null),
  workspace_path: WorkspacePathSchema.nullable().default(null),
});
export const ExplainRouteBody = z.strictObject({
  text: z.string(),
  workspace_path: WorkspacePathSchema,
  model: z.string().min(1).nullable().default(null),
});

export const SetDefaultModelBody = z
  .strictObject({
    workspace_path: WorkspacePathSchema,
    model: z.string().min(1).max(200).describe('Id or alias, with or without an effort.'),
    dry_run: z.boolean().default(false).describe('Answer with the text that the file would have; write nothing.'),
    previous_sha256: Sha256Schema.nullable()
      .optional()
      .describe('SHA-256 of the file as dry_run showed it; null: there was no file.'),
  })
  .refine((body) => body.dry_run || body.previous_sha256 !== undefined, {
    path: ['previous_sha256'],
    message: 'is required, null where there is no file; a request with dry_run: true answers it',
  });
export type SetDefaultModelBody = z.infer<typeof SetDefaultModelBody>;
/** The workspace's routing file before and after. */
export const RoutingDefaultReply = z.object({
  /** Relative to the workspace. */
  path: z.string(),
  /** As it is written: an id, with its effort where one was named. */
  model: z.string(),
  previous_model: Model,
  /** Null without a file, likewise below. */
  previous_sha256: Sha256Schema.nullable(),
  previous_text: z.string().nullable(),
  sha256: Sha256Schema,
  text: z.string(),
  /** False after `dry_run`, and where the file has this default already. */
  written: z.boolean(),
  warnings: z.array(z.string()),
});
export type RoutingDefault = z.infer<typeof RoutingDefaultReply>;

const rates = {
  input_per_mtok_usd: UsdSchema,
  output_per_mtok_usd: UsdSchema,
  cached_read_per_mtok_usd: UsdSchema,
  cache_write_per_mtok_usd: UsdSchema,
  cache_write_1h_per_mtok_usd: UsdSchema,
};
export const PricingReply = z.object({
  active_version: z.string(),
  /** Date of the active rates, `YYYY-MM-DD`; null = unknown. */
  imported_on: z.string().nullable(),
  currency: z.literal('USD'),
  versions: z.array(z.object({ version: z.string(), source: z.string(), created_at: TimeSchema, active: z.boolean() })),
  table: z.object({
    pricing_version: z.string(),
    content_hash: Sha256Schema,
    source: z.string(),
    models: z.record(
      z.string(),
      z.object({
        ...rates,
        long_context: z.array(z.object({ above_prompt_tokens: z.int(), ...rates })),
        /** USD per thousand uses, by tool. */
        fees: z.record(z.string(), UsdSchema).optional(),
        /** By term (`service_tier`, `speed`, `inference_geo`) and value. */
        multipliers: z.record(z.string(), z.record(z.string(), UsdSchema)).optional(),
      }),
    ),
  }),
});

// The reply of `GET /patterns` (12 §12.7).

const PatternOutcomeSchema = z.object({
  model: z.string(),
  /** Null where the model had none. */
  effort: EffortSchema.nullable(),
  /** The model's tier in the present registry; null if the model has no tier or is not in the registry. */
  tier: TierSchema.nullable(),
  /** Of turns of workers, else of top-level turns. */
  is_worker: z.boolean(),
  sample_size: CountSchema,
  /** Null without scores. */
  success_score_mean: z.number().min(0).max(1).nullable(),
  success_score_count: CountSchema,
  /** Of the scores that a check or a person gave. */
  verified_score_mean: z.number().min(0).max(1).nullable(),
  verified_score_count: CountSchema,
  /** For comparison, in whole picodollars; null where every turn was cut short. The reports hold the cost that was charged. */
  avg_cost_usd: UsdSchema.nullable(),
  avg_latency_ms: z.number().min(0),
  last_updated_at: TimeSchema,
});
const PatternSchema = z.object({
  ...SHOWN_SHAPE,
  outcomes: z.array(PatternOutcomeSchema),
});
export type Pattern = z.infer<typeof PatternSchema>;
export const PatternListReply = z.object({ patterns: z.array(PatternSchema), next_cursor: z.string().nullable() });
