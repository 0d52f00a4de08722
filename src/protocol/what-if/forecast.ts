// Forecasts: what a turn will cost with its workers, by what earlier work of its shape has cost (21 §1).
import { z } from 'zod';
import type { Pusd } from '../money.ts';
import { CountSchema, UsdSchema } from '../scalars.ts';

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
