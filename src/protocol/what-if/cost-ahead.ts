// Forecasts: what a turn will cost with its workers, by what earlier work of its shape has cost (21 §1).

import { z } from 'zod';
import type { Pusd } from '../money.ts';
import { CountSchema, EffortSchema, TierSchema, ToolUseIdSchema, UsdSchema } from '../scalars.ts';

/** The median, and the cost that nine of ten did not pass. */
export const ForecastSchema = z.object({ p50_usd: UsdSchema, p90_usd: UsdSchema });
export type Forecast = z.infer<typeof ForecastSchema>;

/** A forecast, the number of earlier trees that it is from, and whether they are of the workspace or of the server. */
export const CostHistorySchema = ForecastSchema.extend({
  n: z.int().min(1).max(500),
  basis: z.enum(['workspace', 'server']),
});
export type CostHistory = z.infer<typeof CostHistorySchema>;

/** How the newest forecasts compare with the costs that came: shares at or below; null where no tree had a forecast. */
export const ForecastCheckSchema = z.object({
  n: CountSchema,
  within_p50: z.number().min(0).max(1).nullable(),
  within_p90: z.number().min(0).max(1).nullable(),
});
export type ForecastCheck = z.infer<typeof ForecastCheckSchema>;

/** Work of which a forecast is made. */
export interface WorkShape {
  readonly workspace_path: string;
  /** Top-level turns and workers are never compared with each other. */
  readonly is_worker: boolean;
  /** Of the fingerprint without its workspace. */
  readonly shape_sig: string;
  /** A model reference, with the effort. */
  readonly model: string;
}

/** What a completed turn cost with all its workers, or a worker with all below it. */
export interface TreeCost extends WorkShape {
  /** The turn, or the worker's session. */
  readonly id: string;
  readonly cost_pusd: Pusd;
  /** Noted when the turn started. */
  readonly forecast: Forecast | null;
  /** Unix milliseconds. */
  readonly ended_at: number;
}

// The bill of the delegations of one message, shown before the first of them starts (21 §1).

export const BillRowSchema = z.strictObject({
  tool_use_id: ToolUseIdSchema,
  /** A named worker; null = `delegate`. */
  worker: z.string().nullable(),
  tier: TierSchema.nullable(),
  model: z.string(),
  effort: EffortSchema.nullable(),
  /** Of earlier workers of this model and shape; null without enough of them. */
  p50_usd: UsdSchema.nullable(),
  p90_usd: UsdSchema.nullable(),
  /** What the first call reserves; null where there is a history. */
  ceiling_usd: UsdSchema.nullable(),
});
export type BillRow = z.infer<typeof BillRowSchema>;

export const DelegationBillSchema = z.strictObject({
  tool_use_ids: z.array(ToolUseIdSchema),
  /** In block order. */
  rows: z.array(BillRowSchema),
  /** Sums of the rows: an upper figure, since not every worker costs its p90. */
  p90_usd: UsdSchema,
  ceiling_usd: UsdSchema,
  /** Both together: compared with `confirm_above_usd`. */
  compared_usd: UsdSchema,
});
export type DelegationBill = z.infer<typeof DelegationBillSchema>;

/** A change for all delegations of the bill; `first` lets only the first ones in block order start. */
export const BillEditSchema = z.strictObject({
  tier: TierSchema.optional(),
  effort: EffortSchema.optional(),
  first: z.int().min(1).optional(),
});
export type BillEdit = z.infer<typeof BillEditSchema>;

export const DelegatePricedSchema = DelegationBillSchema.extend({
  /** Null where the bill is within the limits: nothing was asked. */
  answer: z
    .strictObject({
      decision: z.enum(['approve', 'reject', 'modify', 'timeout']),
      reason: z.string().nullable(),
      modified_input: BillEditSchema.nullable(),
    })
    .nullable(),
});
export type BillAnswer = NonNullable<z.infer<typeof DelegatePricedSchema>['answer']>;
