// Analytics: what may be asked about the ledger and what is answered (07 §3-§7).
import { z } from 'zod';
import { QualitySchema } from './learned-pattern.ts';
import { PersonRefSchema } from './people/person.ts';
import { SLOTS, SlotNameSchema, ValidationFailureSchema } from './route.ts';
import {
  CountSchema,
  DoorSchema,
  EffortSchema,
  ErrorClassSchema,
  SignedUsdSchema,
  TimeSchema,
  UsdSchema,
} from './scalars.ts';

export const DIMENSIONS = [
  'model',
  'provider',
  'session',
  'parent_session',
  'root_session',
  'is_worker',
  'day',
  'hour',
  'delegation_tier',
  'worker_name',
  'workspace',
  'door',
  'caller',
  'owner',
  'cost_kind',
  'effort',
] as const;
/** The parts of a cost (08 §12). */
export const COST_KINDS = ['tokens', 'fees', 'surcharge'] as const;
export type CostKind = (typeof COST_KINDS)[number];
export type Dimension = (typeof DIMENSIONS)[number];
export const ORDERS = ['cost', 'calls', 'tokens', 'key'] as const;
export type Order = (typeof ORDERS)[number];
export type Direction = 'asc' | 'desc';

/** Unix milliseconds; `from` inclusive, `to` exclusive. */
export interface TimeWindow {
  readonly from: number;
  readonly to: number;
}

/** Exact matches on stamped values, ANDed; null = not asked for. */
export interface CallFilter {
  readonly session: string | null;
  readonly parent_session: string | null;
  readonly model: string | null;
  readonly provider: string | null;
  readonly workspace_hash: string | null;
  readonly delegation_tier: string | null;
  readonly worker_name: string | null;
  readonly door: string | null;
  readonly caller: string | null;
  /** Id of a token. */
  readonly owner: string | null;
  /** Who the report is for; absent = an admin, who sees every group (23 §1). */
  readonly reader?: { readonly id: string | null };
  /** Null = absent: the third state of 07 §4.3. */
  readonly include_workers: boolean | null;
  /** Only calls that reached a provider; set where a report has such calls beside simulated ones (07 §4.6). */
  readonly without_simulated?: boolean;
}

/** Values of the sort terms of a row, in their order; integers as decimal strings. */
export type SortKey = readonly string[];

export interface CostQuery {
  readonly window: TimeWindow;
  readonly filter: CallFilter;
  /** At most two; empty = `none`. */
  readonly group_by: readonly Dimension[];
  readonly order: Order;
  readonly dir: Direction;
  readonly limit: number;
  /** Rows after this one; null = from the first. */
  readonly after: SortKey | null;
}

export interface SavingsQuery {
  readonly window: TimeWindow;
  readonly filter: CallFilter;
  /** A model id of the price table, or `planner`: each worker call against the model that delegated it. */
  readonly baseline: string;
}

export interface TraceQuery {
  readonly window: TimeWindow;
  readonly filter: Pick<CallFilter, 'session' | 'model' | 'provider'>;
}

/** Half-even to 6 places. */
const RatioSchema = z.number().nullable();
const LatencySchema = z.number().nullable();

const measures = {
  cost_usd: UsdSchema,
  input_tokens: CountSchema,
  output_tokens: CountSchema,
  cached_input_tokens: CountSchema,
  cache_creation_input_tokens: CountSchema,
  cache_creation_1h_input_tokens: CountSchema,
  reasoning_tokens: CountSchema,
  avg_latency_ms: LatencySchema,
  call_count: CountSchema,
  /** Calls whose cost is not complete; the counts below say why, where it is not for want of rates. */
  unpriced_call_count: CountSchema,
  fees_unpriced_call_count: CountSchema,
  surcharge_unknown_call_count: CountSchema,
  rounds_unknown_call_count: CountSchema,
};
const repriced = {
  /** Only in a repriced answer: what was really spent, and how many calls that version has no rates for. */
  stamped_cost_usd: UsdSchema.optional(),
  missing_call_count: CountSchema.optional(),
};

export const WorkerShareSchema = z.object({
  worker_session_id: z.string(),
  model: z.string(),
  cost_usd: UsdSchema,
  input_tokens: CountSchema,
  output_tokens: CountSchema,
  call_count: CountSchema,
});
export type WorkerShare = z.infer<typeof WorkerShareSchema>;

/** The key columns of the asked dimensions come first; the others are absent. */
export const CostRowSchema = z.object({
  model: z.string().optional(),
  provider: z.string().optional(),
  session_id: z.string().optional(),
  parent_session_id: z.string().optional(),
  root_session_id: z.string().optional(),
  is_worker: z.enum(['planner', 'worker']).optional(),
  bucket: z.string().optional(),
  delegation_tier: z.string().nullable().optional(),
  worker_name: z.string().nullable().optional(),
  workspace_hash: z.string().optional(),
  door: DoorSchema.optional(),
  caller: z.string().nullable().optional(),
  /** The token that owns the sessions; null = no token. */
  owner: PersonRefSchema.nullable().optional(),
  cost_kind: z.enum(COST_KINDS).optional(),
  effort: EffortSchema.nullable().optional(),
  ...measures,
  /** A surcharge may be a discount. */
  cost_usd: SignedUsdSchema,
  ...repriced,
  planner_cost_usd: UsdSchema.optional(),
  worker_cost_usd: UsdSchema.optional(),
  worker_call_count: CountSchema.optional(),
  hit_rate: RatioSchema.optional(),
  cache_write_share: RatioSchema.optional(),
  workers: z.array(WorkerShareSchema).optional(),
});
export type CostRow = z.infer<typeof CostRowSchema>;

export const CostTotalsSchema = z.object({
  ...measures,
  ...repriced,
  hit_rate: RatioSchema,
  cache_write_share: RatioSchema,
});
export type CostTotals = z.infer<typeof CostTotalsSchema>;

/** The calls of the window and filters that a script answered, at example prices (07 §4.6). */
export const SimulatedPartSchema = z.object({
  call_count: CountSchema,
  /** As stamped. */
  cost_usd: UsdSchema,
  /** The report is about these calls, because there are no others; else they are in none of its figures. */
  included: z.boolean(),
});
export type SimulatedPart = z.infer<typeof SimulatedPartSchema>;

const envelope = {
  window: z.object({ start: TimeSchema, end: TimeSchema }),
  current_pricing_version: z.string(),
  warnings: z.array(z.string()),
};

export const CostReportSchema = z.object({
  ...envelope,
  /** One object for `group_by=none`. */
  data: z.union([z.array(CostRowSchema), CostTotalsSchema]),
  totals: CostTotalsSchema,
  simulated: SimulatedPartSchema,
  next_cursor: z.string().nullable(),
  pricing_mode: z.literal('repriced').optional(),
  repriced_version: z.string().optional(),
});

export const SavingsSchema = z.object({
  baseline_model: z.string(),
  actual_repriced_usd: UsdSchema,
  baseline_repriced_usd: UsdSchema,
  savings_usd: SignedUsdSchema,
  savings_pct: z.number(),
  actual_stamped_usd: UsdSchema,
  rows_total: CountSchema,
  rows_missing_from_price_table: CountSchema,
  simulated: SimulatedPartSchema,
});
export type Savings = z.infer<typeof SavingsSchema>;
export const SavingsReportSchema = z.object({ ...envelope, data: SavingsSchema });

export const RoutingStatsSchema = z.object({
  wins_by_policy: z.array(z.object({ policy: SlotNameSchema, count: CountSchema })).length(SLOTS.length),
  wins_by_model: z.array(z.object({ model: z.string(), policy: SlotNameSchema, count: CountSchema })),
  hard_failures: CountSchema,
  explicit_rejections: CountSchema,
  rejections: z.array(
    z.object({
      policy: SlotNameSchema,
      model: z.string(),
      validation_failure: ValidationFailureSchema,
      count: CountSchema,
    }),
  ),
  deferrals: z.array(z.object({ policy: SlotNameSchema, reason: z.string(), count: CountSchema })),
});
export type RoutingStats = z.infer<typeof RoutingStatsSchema>;
export const RoutingReportSchema = z.object({ ...envelope, data: RoutingStatsSchema });

export const ModelReliabilitySchema = z.object({
  model: z.string(),
  provider: z.string(),
  calls: CountSchema,
  completed: CountSchema,
  cancelled: CountSchema,
  failed: CountSchema,
  failures: z.array(z.object({ error_class: ErrorClassSchema, count: CountSchema })),
  failure_rate: RatioSchema,
  p50: CountSchema.nullable(),
  p95: CountSchema.nullable(),
  avg_latency_ms: LatencySchema,
  sample_size: CountSchema,
});
export type ModelReliability = z.infer<typeof ModelReliabilitySchema>;
export const ReliabilityReportSchema = z.object({ ...envelope, data: z.array(ModelReliabilitySchema) });

/** What the ledger has of one day (UTC) and model; a round counts for the model that it names. */
export const LedgerDaySchema = z.object({
  day: z.string(),
  provider: z.string(),
  model: z.string(),
  call_count: CountSchema,
  input_tokens: CountSchema,
  cached_input_tokens: CountSchema,
  cache_creation_input_tokens: CountSchema,
  cache_creation_1h_input_tokens: CountSchema,
  output_tokens: CountSchema,
  tokens_usd: UsdSchema.describe('With surcharges.'),
  fees_usd: UsdSchema,
  unpriced_call_count: CountSchema,
  usage_estimated_call_count: CountSchema,
  fees_unpriced_call_count: CountSchema,
  surcharge_unknown_call_count: CountSchema,
  rounds_unknown_call_count: CountSchema,
});
export type LedgerDay = z.infer<typeof LedgerDaySchema>;
export const LedgerReportSchema = z.object({ ...envelope, data: z.array(LedgerDaySchema) });
/** `provider` null = all. */
export interface LedgerQuery {
  readonly window: TimeWindow;
  readonly provider: string | null;
}

export const VERIFIED_GROUPS = ['model', 'tier', 'worker_name', 'check'] as const;
/** Delegations that named a check, of one model, tier, worker or check (20 §10). */
export const VerifiedGroupSchema = z.object({
  key: z.string().describe('Empty for none.'),
  delegations: CountSchema,
  /** Those whose check was run. */
  checked: CountSchema,
  passed_first: CountSchema,
  passed: CountSchema,
  failed: CountSchema,
  cost_usd: UsdSchema.describe('Of those that were checked, all attempts included.'),
  cost_per_verified_usd: UsdSchema.nullable().describe('Rounded down to the picodollar; null where none passed.'),
  planner_cost_usd: UsdSchema.nullable().describe("The same tokens on the planner's model; null without a price."),
});
export type VerifiedGroup = z.infer<typeof VerifiedGroupSchema>;
export const VerifiedReportSchema = z.object({
  ...envelope,
  data: z.array(VerifiedGroupSchema),
  simulated: SimulatedPartSchema,
});
export interface VerifiedQuery {
  readonly window: TimeWindow;
  readonly group_by: (typeof VERIFIED_GROUPS)[number];
  /** As in `CallFilter`. */
  readonly reader?: { readonly id: string | null };
}

export const WHAT_IF_GROUPS = ['day', 'model', 'workspace'] as const;
export type WhatIfGroupKind = (typeof WHAT_IF_GROUPS)[number];
const bounds = { actual_usd: UsdSchema, low_usd: UsdSchema, high_usd: UsdSchema };
/** What the same work would have cost under other rules, tiers or models (21 §2). */
export const WhatIfSchema = z.object({
  actual_usd: UsdSchema.describe('As stamped.'),
  hypothetical_usd: z.object({
    low: UsdSchema.describe('With the same cache reads and writes.'),
    high: UsdSchema.describe('With cached reads as uncached input.'),
  }),
  basis: z.string(),
  decisions: z.object({
    same: CountSchema,
    changed: CountSchema,
    undecided: CountSchema.describe('At their stamped price: the stored facts do not answer the rules.'),
  }),
  changed: z.array(
    z.object({
      from_model: z.string(),
      to_model: z.string(),
      rule_name: z.string().nullable(),
      decisions: CountSchema,
      ...bounds,
    }),
  ),
  groups: z.array(z.object({ key: z.string(), ...bounds })),
  simulated: SimulatedPartSchema,
});
export type WhatIf = z.infer<typeof WhatIfSchema>;
export const WhatIfReportSchema = z.object({ ...envelope, ...WhatIfSchema.shape });

export const QualityReportSchema = z.object({ ...envelope, data: QualitySchema });
