// Reads of the ledger and the trace for the `/analytics/*` endpoints (07).
import type {
  CostQuery,
  CostRow,
  CostTotals,
  LedgerDay,
  LedgerQuery,
  ModelReliability,
  RoutingStats,
  Savings,
  SavingsQuery,
  SimulatedPart,
  SortKey,
  TimeWindow,
  TraceQuery,
  VerifiedGroup,
  VerifiedQuery,
  WhatIf,
  WhatIfGroupKind,
} from '#protocol/analytics.ts';
import type { Quality } from '#protocol/learned-pattern.ts';
import type { ModelEntry } from '#protocol/model.ts';
import type { Reader } from '#protocol/people/person.ts';
import type { Effort, Tier } from '#protocol/scalars.ts';
import type { Term } from '#protocol/usage.ts';
import type { ForecastCheck } from '#protocol/what-if/cost-ahead.ts';

/** Question about one workspace; its path as it is stored. */
export interface QualityQuery {
  readonly workspace_path: string;
  /** Turns from then on are counted as recent, Unix ms. */
  readonly since: number;
  /** Of every model of the registry: others are passed over. */
  readonly tiers: ReadonlyMap<string, Tier | null>;
  /** Sees the shapes and models of turns of sessions that exist for it. */
  readonly reader: Reader;
}

/** A model with an effort; null = with any, or with none of its own. */
interface WhatIfModel {
  readonly model: string;
  readonly effort: Effort | null;
}

/** Other rules, tiers or models, and what deciding again needs; all of it is data, since it may cross to a thread. */
/** Calls that stay at their stamped price: for want of another one, and for want of their decision. */
export interface WhatIfFound extends WhatIf {
  readonly unpriced_calls: number;
  readonly unlinked_calls: number;
}

export interface WhatIfQuery {
  readonly window: TimeWindow;
  /** SHA-256 of the workspace's path; null = all. */
  readonly workspace_hash: string | null;
  readonly group_by: WhatIfGroupKind | null;
  /** As in `CallFilter`. */
  readonly reader?: { readonly id: string | null };
  /** The text of a valid routing file; null = rules and defaults as they were. */
  readonly routing: { readonly kind: 'workspace' | 'global'; readonly text: string } | null;
  /** Model references. */
  readonly tiers: Readonly<Record<Tier, string>> | null;
  readonly models: readonly { readonly from: WhatIfModel; readonly to: WhatIfModel }[];
  readonly catalog: {
    readonly models: readonly ModelEntry[];
    /** As the registry has them. */
    readonly adapters: ReadonlyMap<string, object>;
    /** Adapters that turns can use, and those that calls of the gateway can use. */
    readonly usable: ReadonlySet<string>;
    readonly gateway: ReadonlySet<string>;
    /** `routing.global_default_model`. */
    readonly default_model: string | null;
    readonly allow_costlier_fallback: boolean;
  };
}

/** Rates of one version, as far as repricing needs them. A price table is one. */
export interface CallPricer {
  readonly version: string;
  readonly source: string;
  readonly models: Readonly<
    Record<
      string,
      {
        readonly long_context: readonly { readonly above_prompt_tokens: number }[];
        readonly fees?: Readonly<Record<string, string | undefined>>;
        readonly multipliers?: Readonly<Partial<Record<Term, Readonly<Record<string, string>> | undefined>>>;
      }
    >
  >;
  /** Picodollars per token for a prompt of this size; null when the version does not know the model. */
  ratesFor(
    model: string,
    promptTokens: number,
  ): {
    readonly input: bigint;
    readonly output: bigint;
    readonly cached_read: bigint;
    readonly cache_write: bigint;
    readonly cache_write_1h: bigint;
  } | null;
}

export interface CostAnswer {
  /** Rows of the asked page; for `group_by=none` the totals. */
  readonly data: readonly CostRow[] | CostTotals;
  /** Over the whole window and all filters, before paging. */
  readonly totals: CostTotals;
  readonly simulated: SimulatedPart;
  /** Sort key of the last row when there are more. */
  readonly next: SortKey | null;
}

/**
 * Everything here only reads, and never holds the event loop for long: long scans go in slices.
 * A sum beyond 2^63 - 1 picodollars rejects instead of rounding (07 §9.2).
 */
export interface VerifiedResults {
  /** One row a group, by name. */
  readonly groups: readonly VerifiedGroup[];
  readonly simulated: SimulatedPart;
}

export interface Analytics {
  /** Stamped costs, or with `pricer` the same calls under its version (07 §4, §6). */
  cost(query: CostQuery, pricer: CallPricer | null): Promise<CostAnswer>;
  /** The same tokens on another model, both sides at `pricer`'s rates (07 §5). */
  savings(query: SavingsQuery, pricer: CallPricer): Promise<Savings>;
  routing(query: TraceQuery): Promise<RoutingStats>;
  /** One row per model, ascending. */
  reliability(query: TraceQuery): Promise<readonly ModelReliability[]>;
  /** One row a day and model, to be set beside a provider's bill (22 §6). */
  ledgerDays(query: LedgerQuery): Promise<readonly LedgerDay[]>;
  /** What workers cost whose check decided, at `pricer`'s rates on their planner's model (20 §10). */
  verified(query: VerifiedQuery, pricer: CallPricer): Promise<VerifiedResults>;
  /** What the same work would have cost, at `pricer`'s rates where the model is another one (21 §2). */
  whatIf(query: WhatIfQuery, pricer: CallPricer): Promise<WhatIfFound>;
  /** Which shapes of task a cheaper model does as well (07 §7.3). */
  quality(query: QualityQuery): Promise<Quality>;
  /** How the newest forecasts compare with what their turns cost (21 §1). */
  forecast(): Promise<ForecastCheck>;
}
