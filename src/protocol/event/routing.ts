// Payloads of `route.*` and `routing.*` (02 §9.3).
import { z } from 'zod';
import { OutageScopeSchema, OutageTriggerSchema, PolicyEvaluationSchema, RefusalSchema } from '../route.ts';

export const RouteDecidedSchema = z.strictObject({
  chosen_model: z.string(),
  winner_index: z.int().min(-1).max(6),
  elapsed_ms: z.number().min(0),
  refused: RefusalSchema.nullable(),
  fallback_dearer: z.boolean(),
  chain: z.array(PolicyEvaluationSchema).length(7),
  /** The name that a client of the gateway asked for; null elsewhere. */
  requested_model: z.string().nullable(),
});

export const RoutingPolicyInvalidSchema = z.strictObject({
  policy_path: z.string(),
  errors: z.array(z.string()),
  using_last_known_good: z.boolean(),
});

export const ProviderUnavailableSchema = z.strictObject({
  provider: z.string(),
  scope: OutageScopeSchema,
  models_affected: z.array(z.string()),
  trigger_reason: OutageTriggerSchema,
});

export const ProviderRecoveredSchema = z.strictObject({
  provider: z.string(),
  scope: OutageScopeSchema,
  models_recovered: z.array(z.string()),
  downtime_seconds: z.number().min(0),
});
